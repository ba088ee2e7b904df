# SPDX-License-Identifier: Apache-2.0
"""A stream that starts from a stored topic's files and goes on in the topic: each record once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.delta.optimize import optimize_table
from tests.spark.spark_lab import TIMEOUT_S, Broker, message_of
from tests.spark.test_spark_topic_table import Rows, Stored, in_transactions, rows_of

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.timeout(600)]


class TableFirst:
    """A query over one checkpoint; keeps what each finished batch had."""

    def __init__(self, spark: Any, broker: Broker, stored: Stored, checkpoint: Path) -> None:
        self._spark = spark
        self._options = {
            "bootstrap": broker.bootstrap,
            "subscribe": stored.topic,
            "columns": "key,value,topic,partition,offset,timestamp,headers",
            "startingTable": str(stored.path),
        }
        self._checkpoint = checkpoint
        self.batches: dict[int, Rows] = {}

    def run(self, *, fails_at: int | None = None, **changed: str) -> None:
        options = {**self._options, **changed}

        def take(frame: Any, number: int) -> None:
            if number == fails_at:
                raise RuntimeError("the driver died")
            self.batches[number] = rows_of(frame)

        reader = self._spark.readStream.format("headrace").options(
            **{name: value for name, value in options.items() if value}
        )
        query = (
            reader.load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"

    def rows(self) -> Rows:
        return sum(self.batches.values(), Counter())

    def documents(self) -> list[dict[str, Any]]:
        entries = sorted(self._checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in entries]


@pytest.fixture
def stored(spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]) -> Stored:
    """A table of several files, and records that it does not have."""
    stored = Stored(spark, broker, new_topic(2), tmp_path, max_rows=20)
    broker.fill(stored.topic, 0, 80)
    in_transactions(broker, stored.topic)
    stored.store()
    broker.fill(stored.topic, 80, 100)
    in_transactions(broker, stored.topic)
    return stored


def test_files_then_the_topic_each_record_once_across_restarts(
    spark: Any, broker: Broker, stored: Stored, tmp_path: Path
) -> None:
    query = TableFirst(spark, broker, stored, tmp_path / "checkpoint")
    with pytest.raises(Exception, match="the driver died"):
        query.run(fails_at=2, maxOffsetsPerTrigger="15")
    in_files = query.documents()
    assert [each["version"] for each in in_files] == [2, 2, 2]
    places = [each["table"]["next"] for each in in_files]
    assert places == sorted(set(places))

    stored.store()
    optimize_table(stored.path)
    broker.fill(stored.topic, 100, 110)
    with pytest.raises(Exception, match="in the middle of the files"):
        query.run(startingTable="", maxOffsetsPerTrigger="15")
    query.run(maxOffsetsPerTrigger="15")
    assert query.rows() == stored.produced()
    assert "table" not in query.documents()[-1]

    broker.fill(stored.topic, 110, 120)
    query.run(startingTable="")
    assert query.rows() == stored.produced()


def test_files_that_vacuum_removed_end_the_query(
    spark: Any, broker: Broker, stored: Stored, tmp_path: Path
) -> None:
    query = TableFirst(spark, broker, stored, tmp_path / "checkpoint")
    with pytest.raises(Exception, match="the driver died"):
        query.run(fails_at=1, maxOffsetsPerTrigger="15")
    optimize_table(stored.path, retain_hours=0, force=True)
    assert "which was removed" in message_of(lambda: query.run(maxOffsetsPerTrigger="15"))


def test_what_does_not_fit_is_named(spark: Any, broker: Broker, stored: Stored, tmp_path: Path) -> None:
    def message(**changed: str) -> str:
        query = TableFirst(spark, broker, stored, tmp_path / "-".join(changed))
        return message_of(lambda: query.run(**changed))

    assert "no column 'timestampType'" in message(columns="value,timestampType")
    assert "both set; leave one out" in message(startingOffsets="earliest")
    assert "there is no Delta table in" in message(startingTable=str(tmp_path / "nowhere"))
    assert "json is not decoded from the files" in message(value="json", valueSchema="a INT", columns="value")
    batch = spark.read.format("headrace").options(bootstrap=broker.bootstrap, subscribe=stored.topic)
    assert "is for streams" in message_of(batch.option("startingTable", str(stored.path)).load().count)
