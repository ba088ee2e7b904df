# SPDX-License-Identifier: Apache-2.0
"""A topic as a table on real Spark: its files and the topic meet without a gap and without duplicates."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable

import headrace
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.delta.optimize import optimize_table
from headrace.pipelines.jobs.store_record import read_record
from headrace.pipelines.runner import Runner
from headrace.spark import table, view
from tests.harness.live.committed import wait_for_markers
from tests.spark.spark_lab import Broker, message_of, wait_until
from tests.spark.test_spark_pipelines import run_once

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.timeout(600)]

Rows = Counter[tuple[int, int, bytes]]


class Stored:
    """A topic and the pipeline that stores it."""

    def __init__(self, spark: Any, broker: Broker, topic: str, folder: Path, **keys: Any) -> None:
        self._spark = spark
        self._broker = broker
        self.topic = topic
        self.path = folder / "table"
        self.document = {
            "bootstrap": broker.bootstrap,
            "checkpoints": str(folder / "checkpoints"),
            "store": {"orders": {"topic": topic, "path": str(self.path), **keys}},
        }

    def store(self) -> None:
        run_once(self._spark, self.document)

    def table(self, **arguments: Any) -> Any:
        given = {"path": self.path, "bootstrap": self._broker.bootstrap, **arguments}
        return table(self._spark, self.topic, **given)

    def rows(self, **arguments: Any) -> Rows:
        return rows_of(self.table(**arguments))

    def is_there(self) -> bool:
        return DeltaTable.is_deltatable(str(self.path))

    def stored(self) -> Rows:
        """What the table alone has."""
        found = DeltaTable(self.path).to_pyarrow_table(columns=["partition", "offset", "value"])
        return Counter((row["partition"], row["offset"], row["value"]) for row in found.to_pylist())

    def produced(self) -> Rows:
        """What a consumer of committed records sees."""
        found: Rows = Counter()
        columns = ["partition", "offset", "value"]
        for batch in headrace.read(self.topic, bootstrap=self._broker.bootstrap, columns=columns):
            found.update(tuple(row[name] for name in columns) for row in batch.to_pylist())
        return found

    def files(self) -> list[str]:
        return DeltaTable(self.path).file_uris()


def rows_of(frame: Any) -> Rows:
    return Counter((row.partition, row.offset, bytes(row.value)) for row in frame.collect())


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def stored(spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]) -> Iterator[Stored]:
    return Stored(spark, broker, new_topic(2), tmp_path)


def test_files_then_the_topic_meet_exactly(spark: Any, broker: Broker, stored: Stored) -> None:
    broker.fill(stored.topic, 0, 100)
    stored.store()
    everything_stored = stored.table()
    assert "BatchScan" not in plan_of(everything_stored)
    assert rows_of(everything_stored) == stored.produced()

    in_transactions(broker, stored.topic)
    broker.fill(stored.topic, 100, 150)
    broker.admin.create_partitions([NewPartitions(stored.topic, 3)])[stored.topic].result(20)
    to_partition(broker, stored.topic, 2, 5)
    with_tail = stored.table()
    assert rows_of(with_tail) == stored.produced()
    assert with_tail.count() == 100 + 50 + 5 + 5
    assert with_tail.schema == everything_stored.schema

    broker.fill(stored.topic, 150, 160)
    assert rows_of(with_tail) == rows_of(with_tail) != stored.produced(), "it is as of its call"
    stored.store()
    in_transactions(broker, stored.topic)
    assert stored.rows() == stored.produced()
    before = len(stored.files())
    assert optimize_table(stored.path).files_after < before
    assert stored.rows() == stored.produced(), "the newest commit is a merge"

    old = stored.table()
    broker.fill(stored.topic, 160, 161)
    stored.store()
    optimize_table(stored.path, retain_hours=0, force=True)
    assert stored.rows() == stored.produced()
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        old.count()


def test_columns_and_filters_reach_the_files(spark: Any, broker: Broker, stored: Stored) -> None:
    broker.fill(stored.topic, 0, 20)
    stored.store()
    broker.fill(stored.topic, 20, 30)
    frame = stored.table(columns=["offset", "date"]).where("offset >= 3 AND date > DATE'2020-01-01'")
    plan = plan_of(frame)
    assert "PushedFilters: [IsNotNull(offset), GreaterThanOrEqual(offset,3)]" in plan
    assert "ReadSchema: struct<offset:bigint>" in plan
    assert "PartitionFilters: [isnotnull(date" in plan
    assert frame.count() == sum(1 for _, offset, _ in stored.produced() if offset >= 3)
    everything = stored.table()
    assert everything.where("offset < 1 AND partition = 0").count() == 1
    assert everything.count() == 30, "a filter of an earlier query must not hold for the next"
    with pytest.raises(ClientError, match="has no column 'of'"):
        stored.table(columns=["of"])


def test_every_acknowledged_record_is_there_while_records_are_produced_and_files_merged(
    spark: Any, broker: Broker, stored: Stored
) -> None:
    broker.fill(stored.topic, 0, 10)
    stored.store()
    acknowledged, done = [10], threading.Event()

    def produce() -> None:
        while not done.is_set():
            first = acknowledged[-1]
            broker.fill(stored.topic, first, first + 20)
            acknowledged.append(first + 20)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        for turn in range(6):
            at_least = acknowledged[-1]
            found = stored.rows()
            assert sum(found.values()) == len(found) >= at_least
            assert {value for _, _, value in found} == {b"value %d" % each for each in range(len(found))}
            if turn % 2:
                stored.store()
                optimize_table(stored.path)
    finally:
        done.set()
        producing.join()
    assert stored.rows() == stored.produced()


def test_typed_rows_are_the_same_from_both_halves(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    schema = "shop STRING, cents BIGINT, at TIMESTAMP, tags ARRAY<STRING>"
    keys = {"value": "json", "schema": schema, "time": "at", "rejects": new_topic(1, suffix="-bad")}
    sales = Stored(spark, broker, new_topic(2), tmp_path, **keys)
    produce_sales(broker, sales.topic, range(50))
    sales.store()
    record = read_record(_newest_user_metadata(sales.path))
    assert record is not None
    assert record.schema == schema
    assert broker.bootstrap not in record.to_text()
    produce_sales(broker, sales.topic, range(50, 80))
    headrace.write(pa.table({"value": ["no json"]}), sales.topic, bootstrap=broker.bootstrap)
    frame = sales.table()
    assert frame.columns == ["shop", "cents", "at", "tags", *map("_{}".format, BESIDE)]
    assert sorted(row.cents for row in frame.collect()) == list(range(80))
    in_tail = sales.table().where("cents = 60").first()
    sales.store()
    assert sales.table().where("cents = 60").first() == in_tail
    bad = list(headrace.read(keys["rejects"], bootstrap=broker.bootstrap))
    assert sum(batch.num_rows for batch in bad) == 1, "the table reports no rejects, the pipeline does"
    with pytest.raises(ClientError, match="stored with value='json', and value='avro' is given"):
        sales.table(value="avro")
    produce_sales(broker, sales.topic, range(80, 90))
    with pytest.raises(ClientError, match=r"column 'cents' is bigint in the table .*, and string"):
        sales.table(schema=schema.replace("cents BIGINT", "cents STRING"))


def test_dates_are_those_of_the_pipelines_time_zone(spark: Any, broker: Broker, stored: Stored) -> None:
    setting, times = (
        "spark.sql.session.timeZone",
        [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 23)],
    )
    before = spark.conf.get(setting)
    spark.conf.set(setting, "UTC")
    try:
        for zone in ("UTC", "Pacific/Kiritimati", "America/Los_Angeles"):
            headrace.write(
                pa.table({"value": [zone] * 2, "timestamp": times}), stored.topic, bootstrap=broker.bootstrap
            )
            if not stored.is_there():
                stored.store()
            spark.conf.set(setting, zone)
            dates = {str(row.date) for row in stored.table().select("date").collect()}
            assert dates == {"2026-01-01"}
            assert spark.conf.get(setting) == zone
    finally:
        spark.conf.set(setting, before)


def test_a_view_is_as_of_its_call(spark: Any, broker: Broker, stored: Stored) -> None:
    broker.fill(stored.topic, 0, 10)
    stored.store()
    arguments = {"path": stored.path, "bootstrap": broker.bootstrap}
    view(spark, stored.topic, **arguments)
    count = f"SELECT count(*) FROM `{stored.topic}`"
    assert spark.sql(count).first()[0] == 10
    broker.fill(stored.topic, 10, 15)
    assert spark.sql(count).first()[0] == 10
    view(spark, stored.topic, **arguments)
    assert spark.sql(count).first()[0] == 15


def test_what_is_lost_between_table_and_topic_is_named(spark: Any, broker: Broker, stored: Stored) -> None:
    to_partition(broker, stored.topic, 0, 10)
    stored.store()
    to_partition(broker, stored.topic, 0, 10)
    broker.delete_before(stored.topic, 0, 5)
    assert stored.table().count() == 20, "the topic may keep less than the table"
    broker.delete_before(stored.topic, 0, 15)
    lost = f"removed offsets 10 to 14 of partition 0 of topic '{stored.topic}' before they were stored"
    with pytest.raises(ClientError, match=lost) as raised:
        stored.table()
    assert raised.value.code == "DATA_LOSS"
    assert stored.table(on_data_loss="skip").count() == 15

    planned = stored.table(on_data_loss="skip")
    broker.delete(stored.topic)
    wait_until(lambda: stored.topic not in broker.admin.list_topics(timeout=10).topics)
    with pytest.raises(ClientError, match=r"from which the table .* is stored, was deleted"):
        stored.table()
    headrace.Admin(bootstrap=broker.bootstrap).create_topic(stored.topic, partitions=2)
    to_partition(broker, stored.topic, 0, 30)
    with pytest.raises(ClientError, match="was deleted and recreated: its id is"):
        stored.table()
    assert "was deleted and recreated" in message_of(planned.count)


def test_a_compacted_topic_keeps_its_history_in_the_table(
    spark: Any, broker: Broker, tmp_path: Path, topic: str
) -> None:
    """Offsets that compaction left out are no loss, on either side of the split."""
    configs = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.01}
    headrace.Admin(bootstrap=broker.bootstrap).create_topic(topic, partitions=1, configs=configs)
    stored = Stored(spark, broker, topic, tmp_path)
    broker.fill(topic, 0, 10)
    stored.store()
    history = stored.produced()
    updates = pa.table({"key": ["7"] * 300, "value": ["x" * 10_000] * 300})
    headrace.write(updates, topic, bootstrap=broker.bootstrap, key="key")
    wait_until(lambda: sum(stored.produced().values()) < 300)
    remaining = stored.produced()
    assert not history <= remaining
    assert stored.rows() == history | remaining
    stored.store()
    assert stored.rows() == history | remaining


def test_files_are_merged_under_a_running_pipeline(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """Each batch is there at once, readers of older files go on, and in the end there are few files."""
    stored = Stored(spark, broker, new_topic(2), tmp_path, optimize="50ms", target_size="1m")
    stop = threading.Event()
    with running(spark, stored.document, stop) as runner:
        for first in range(0, 100, 10):
            broker.fill(stored.topic, first, first + 10)
            wait_until(lambda: stored.is_there() and stored.rows() == stored.stored() == stored.produced())
        before = stored.table()
        wait_until(lambda: len(stored.files()) == 1)
        assert rows_of(before) == stored.produced()
        assert runner.queries[0].failure() is None
    merges = [each for each in DeltaTable(stored.path).history() if "batchId" not in each]
    assert merges
    assert stored.rows() == stored.stored() == stored.produced()


@contextmanager
def running(spark: Any, document: dict[str, Any], stop: threading.Event) -> Iterator[Runner]:
    runner = Runner(spark, pipelines_of(document, "the test").pipelines, once=False)
    runner.start()
    thread = threading.Thread(target=runner.run, args=(lambda _: None, stop))
    thread.start()
    try:
        yield runner
    finally:
        stop.set()
        thread.join(120)
        runner.close()


BESIDE = ("key", "topic", "partition", "offset", "timestamp", "date")


def _newest_user_metadata(path: Path) -> str:
    return str(DeltaTable(path).history(1)[0]["userMetadata"])


def produce_sales(broker: Broker, topic: str, numbers: range) -> None:
    values = [
        json.dumps({"shop": f"shop {each % 3}", "cents": each, "at": "2026-01-01T12:00:00Z", "tags": ["a"]})
        for each in numbers
    ]
    headrace.write(pa.table({"key": ["k"] * len(values), "value": values}), topic, bootstrap=broker.bootstrap)


def to_partition(broker: Broker, topic: str, partition: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(topic, b"to %d" % number, partition=partition)
    assert producer.flush(30) == 0


def in_transactions(broker: Broker, topic: str) -> None:
    """Five records that count, and five that do not."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(30)
    for number in range(2):
        producer.begin_transaction()
        for each in range(5):
            producer.produce(topic, b"of transaction %d: %d" % (number, each), partition=0)
        assert producer.flush(30) == 0
        if number:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    wait_for_markers(broker.bootstrap, topic)
