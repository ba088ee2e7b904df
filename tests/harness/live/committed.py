# SPDX-License-Identifier: Apache-2.0
"""Waits until what was committed is visible: a commit is final before its markers are in the partitions."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.harness.waiting import wait_until

_TIMEOUT_S = 20
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def wait_for_markers(bootstrap: str, *topics: str) -> None:
    """Returns when no transaction is open in these topics: readers of committed records see all of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(timeout=_TIMEOUT_S).topics
    partitions = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]

    def ends(isolation: IsolationLevel) -> list[int]:
        asked = dict.fromkeys(partitions, _LATEST)
        found = admin.list_offsets(asked, isolation_level=isolation)
        return [found[partition].result(_TIMEOUT_S).offset for partition in partitions]

    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        timeout_s=_TIMEOUT_S,
    )
