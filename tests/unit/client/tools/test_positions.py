# SPDX-License-Identifier: Apache-2.0
"""Which client of a partition is the group's member, and what a broker says of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.client.tools.group_calls import GroupMember
from headrace.client.tools.positions import Reader, position_of, read_readers
from headrace.types import TopicPartition

pytestmark = pytest.mark.row("D14")

MEMBER = GroupMember(member_id="m", instance_id=None, client_id="worker", host="10.0.0.1", assigned=())


@pytest.mark.parametrize(
    ("readers", "position"),
    [
        ([], None),
        ([Reader("worker", "10.0.0.1", 42, 90_000)], 42),
        ([Reader("worker", "10.0.0.2", 42, 0), Reader("other", "10.0.0.1", 43, 0)], None),
        ([Reader("worker", "10.0.0.1", 42, 0), Reader("other", "10.0.0.1", 43, 0)], 42),
        # two at once could both be it, unless they are at the same offset
        ([Reader("worker", "10.0.0.1", 42, 0), Reader("worker", "10.0.0.1", 7, 500)], None),
        ([Reader("worker", "10.0.0.1", 42, 0), Reader("worker", "10.0.0.1", 42, 500)], 42),
        # the one before it has stopped
        ([Reader("worker", "10.0.0.1", 42, 0), Reader("worker", "10.0.0.1", 7, 10_000)], 42),
    ],
)
def test_a_member_is_known_by_its_client_id_and_address(readers: list[Reader], position: int | None) -> None:
    assert position_of(MEMBER, readers) == position


def test_a_brokers_answer() -> None:
    def config(name: str, value: str | None) -> SimpleNamespace:
        return SimpleNamespace(name=name, value=value)

    configs = [
        config("headrace.readers.0", '[["worker", "10.0.0.1", 42, 5]]'),
        config("headrace.readers.1", "[]"),
        config("headrace.readers.2", '{"of": "a newer broker"}'),
        config("retention.ms", "1000"),
    ]
    reply = SimpleNamespace(results=[SimpleNamespace(resource_name="orders", configs=configs)])
    assert read_readers(reply) == {
        TopicPartition("orders", 0): [Reader("worker", "10.0.0.1", 42, 5)],
        TopicPartition("orders", 1): [],
    }
