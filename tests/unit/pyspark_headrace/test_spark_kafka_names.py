# SPDX-License-Identifier: Apache-2.0
"""`kafka.*` options: misspelled ones are refused, and those without effect are logged."""

from __future__ import annotations

import logging

import pytest

from headrace.client.errors import ClientError
from pyspark_headrace import kafka_names
from pyspark_headrace.options import read_settings, write_settings

READ = {"bootstrap": "127.0.0.1:9092", "subscribe": "orders"}
WRITE = {"bootstrap": "127.0.0.1:9092", "topic": "copies"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.isolaton.level", "kafka.isolation.level"),
        ("kafka.group.ids", "kafka.group.id"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
    ],
)
def test_a_misspelled_name_is_refused_with_the_right_one(written: str, meant: str) -> None:
    with pytest.raises(ClientError, match=f"there is no option '{written}'; did you mean '{meant}'"):
        read_settings({**READ, written: "x"}, streaming=True)


def test_a_name_like_no_other_is_refused() -> None:
    with pytest.raises(ClientError, match=r"no option 'kafka\.zzz'; docs/pipelines\.md lists"):
        write_settings({**WRITE, "kafka.zzz": "1"}, streaming=False)


@pytest.mark.parametrize("name", kafka_names.REFUSED)
def test_what_breaks_the_guarantee_is_refused_with_what_to_do(name: str) -> None:
    for refuse in (
        lambda: read_settings({**READ, f"kafka.{name}": "x"}, streaming=True),
        lambda: write_settings({**WRITE, f"kafka.{name}": "x"}, streaming=True),
    ):
        with pytest.raises(ClientError, match=rf"'kafka\.{name}' cannot be set; {kafka_names.REFUSED[name]}"):
            refuse()


def test_acks_0_is_refused_and_others_have_no_effect() -> None:
    with pytest.raises(ClientError, match=r"'kafka\.acks' cannot be '0'.*acks=all"):
        write_settings({**WRITE, "kafka.acks": "0"}, streaming=True)
    assert write_settings({**WRITE, "kafka.acks": "all"}, streaming=True).topic == "copies"


def test_settings_without_effect_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    kafka_names._log_without_effect.cache_clear()
    given = {**READ, "kafka.max.poll.records": "5", "kafka.fetch.max.bytes": "7", "kafka.group.id": "g"}
    with caplog.at_level(logging.WARNING):
        settings = [read_settings(given, streaming=True) for _ in range(2)]
    assert [each.group for each in settings] == ["g", "g"]
    assert caplog.messages == ["options without effect here: kafka.fetch.max.bytes, kafka.max.poll.records"]
