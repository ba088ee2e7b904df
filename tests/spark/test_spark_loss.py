# SPDX-License-Identifier: Apache-2.0
"""Data loss: deleted, recreated and truncated topics are distinguished, and onDataLoss decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.spark_lab import Broker, Query, message_of, reported


@pytest.fixture
def query(spark: Any, broker: Broker, tmp_path: Path, topic: str, new_topic: Callable[..., str]) -> Query:
    """One that has read twenty records of its topic and stopped."""
    new_topic(1)
    broker.fill(topic, 0, 20)
    query = Query(spark, broker, tmp_path, subscribe=topic)
    query.run()
    query.taken()
    return query


def test_records_that_aged_out_are_counted(broker: Broker, query: Query, topic: str) -> None:
    broker.fill(topic, 20, 50)
    broker.delete_before(topic, 0, 45)
    said = message_of(query.run)
    assert "no longer holds offset 20: it begins at 45 now; up to 25 records were removed" in said
    assert query.batches == []
    ran = query.run(onDataLoss="skip")
    assert query.taken() == [f"value {number}" for number in range(45, 50)]
    assert reported(ran)["lost"] == {"aged out": 1, "records at most": 25}
    ran = query.run(onDataLoss="fail")
    assert query.batches == []


def test_a_recreated_topic_is_not_confused_with_the_old_one(
    broker: Broker, query: Query, topic: str, new_topic: Callable[..., str]
) -> None:
    """It is longer than the old one was: by offsets alone nobody would notice."""
    broker.delete(topic)
    new_topic(1)
    values = broker.fill(topic, 1000, 1030)
    said = message_of(query.run)
    assert f"topic '{topic}' was deleted and recreated" in said
    assert "set onDataLoss=skip to read the new topic from its beginning" in said
    query.run(onDataLoss="skip")
    assert query.taken() == values
    query.run(onDataLoss="fail")
    assert query.batches == []


def test_a_deleted_topic_is_reported_as_deleted(
    broker: Broker, query: Query, topic: str, new_topic: Callable[..., str]
) -> None:
    other = new_topic(1, suffix="-other")
    values = broker.fill(other, 0, 5)
    broker.delete(topic)
    said = message_of(lambda: query.run(subscribe=f"{topic},{other}"))
    assert f"topic '{topic}' was deleted; records that the query had not read are lost" in said
    query.run(onDataLoss="skip")
    assert query.taken() == values


def test_a_checkpoint_of_another_query_is_refused(spark: Any, query: Query) -> None:
    (newest,) = sorted(query.checkpoint.glob("offsets/[0-9]*"))[-1:]
    lines = newest.read_text().splitlines()
    newest.write_text("\n".join([*lines[:-1], '{"orders": {"0": 5}}']))
    for stray in query.checkpoint.glob("offsets/.*.crc"):
        stray.unlink()
    assert "the checkpoint has no offsets of this source" in message_of(query.run)


def test_a_frame_keeps_the_offsets_of_its_first_action(
    spark: Any, broker: Broker, topic: str, new_topic: Callable[..., str]
) -> None:
    """Spark plans a source once for each `load()`."""
    new_topic(1)
    broker.fill(topic, 0, 20)

    def load() -> Any:
        return spark.read.format("headrace").options(bootstrap=broker.bootstrap, subscribe=topic).load()

    frame = load()
    assert frame.count() == 20
    broker.fill(topic, 20, 30)
    assert (frame.count(), frame.where("offset >= 0").count(), load().count()) == (20, 20, 30)
    broker.delete_before(topic, 0, 5)
    said = message_of(frame.count)
    assert "between planning and reading" in said
    assert "A DataFrame or view keeps the offsets of its first action; load it again" in said
    assert load().count() == 25
