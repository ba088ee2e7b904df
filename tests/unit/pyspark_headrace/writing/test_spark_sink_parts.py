# SPDX-License-Identifier: Apache-2.0
"""The exactly-once sink without a broker: where batches of tasks go, how they come back, what is known."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from headrace.client.arrow.fetch.sections import whole_batches
from headrace.client.errors import ClientError
from headrace.wire.records import Record, build_batch
from pyspark_headrace import client_pool
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.replays import BatchIdentity
from pyspark_headrace.source import HeadraceSource
from pyspark_headrace.writing.commit_messages import Encoded, InMessage, InStaging, Run, Written
from pyspark_headrace.writing.ledger import DecidedRecords, Published, read_published
from pyspark_headrace.writing.publish import publish_batch, with_bytes
from pyspark_headrace.writing.staging import wanted_batches
from pyspark_headrace.writing.task import EncodedBatches

NOWHERE = WriteSettings(bootstrap="127.0.0.1:1", topic="out", compression="none", timeout_ms=100)


class Staging:
    """Keeps what it is given, and says so."""

    def __init__(self) -> None:
        self.given: list[dict[tuple[str, int], list[bytes]]] = []
        self.closed = False

    def put(self, batches: Mapping[tuple[str, int], Sequence[bytearray]]) -> list[InStaging]:
        self.given.append({target: [bytes(each) for each in given] for target, given in batches.items()})
        return [staged(topic, partition) for topic, partition in batches]

    def close(self) -> None:
        self.closed = True


def staged(topic: str, partition: int, *, start: int = 0, end: int = 1, producer_id: int = 5) -> InStaging:
    return InStaging(
        topic=topic,
        partition=partition,
        staging_partition=0,
        start=start,
        end=end,
        size=10,
        producer_id=producer_id,
    )


def encoded(limit: int) -> tuple[EncodedBatches, list[Staging]]:
    opened: list[Staging] = []

    def open_staging() -> Any:
        opened.append(Staging())
        return opened[-1]

    return EncodedBatches(limit=limit, open_staging=open_staging), opened


def test_few_bytes_go_in_the_message() -> None:
    made, opened = encoded(limit=30)
    for topic, partition, batch in (("a", 1, b"1" * 10), ("b", 0, b"2" * 10), ("a", 1, b"3" * 10)):
        made.put(topic, partition, bytearray(batch))
    assert made.runs() == (
        InMessage(topic="a", partition=1, batches=b"1" * 10 + b"3" * 10),
        InMessage(topic="b", partition=0, batches=b"2" * 10),
    )
    made.close()
    assert opened == []


def test_more_bytes_than_that_are_all_staged_in_pieces_of_that_size() -> None:
    made, opened = encoded(limit=30)
    for number in range(7):
        made.put("a", number % 2, bytearray(b"%d" % number * 10))
    assert all(isinstance(run, InStaging) for run in made.runs())
    made.close()
    (staging,) = opened
    assert staging.closed
    assert staging.given == [
        {("a", 0): [b"0" * 10, b"2" * 10], ("a", 1): [b"1" * 10, b"3" * 10]},
        {("a", 0): [b"4" * 10, b"6" * 10], ("a", 1): [b"5" * 10]},
    ]


def test_a_task_without_rows_sends_nothing() -> None:
    made, opened = encoded(limit=0)
    assert made.runs() == ()
    assert opened == []


def test_messages_survive_their_way_through_spark() -> None:
    message = Encoded(3, "query", (InMessage(topic="a", partition=0, batches=b"x"), staged("a", 1)))
    assert pickle.loads(pickle.dumps(message)) == message


def test_staged_runs_are_read_ahead_and_handed_on_in_order() -> None:
    asked: list[int] = []

    def read(run: InStaging) -> Future[bytes]:
        asked.append(run.partition)
        future: Future[bytes] = Future()
        future.set_result(b"%d" % run.partition)
        return future

    runs: list[Run] = [staged("a", number) for number in range(8)]
    runs.insert(2, InMessage(topic="a", partition=99, batches=b"inline"))
    handed = with_bytes(runs, read)
    assert next(handed) == (0, b"0")
    assert asked == [0, 1, 2, 3]
    assert list(handed) == [(1, b"1"), (99, b"inline"), *((number, b"%d" % number) for number in range(2, 8))]


def test_prefetched_runs_are_dropped_after_a_failure() -> None:
    futures: list[Future[bytes]] = []

    def read(run: InStaging) -> Future[bytes]:
        futures.append(Future())
        if run.partition == 0:
            futures[0].set_exception(ClientError("gone"))
        return futures[-1]

    with pytest.raises(ClientError, match="gone"):
        next(with_bytes([staged("a", number) for number in range(9)], read))
    assert len(futures) == 5
    assert all(future.cancelled() for future in futures[1:])


def log_of(*batches: tuple[int, int, int]) -> memoryview:
    """(base offset, records, producer id) of every batch."""
    whole = bytearray()
    for base, count, producer_id in batches:
        records = [Record(base + number, 1, None, b"v") for number in range(count)]
        whole += build_batch(records, base_offset=base, producer_id=producer_id, producer_epoch=0)
    return memoryview(whole)


def test_exactly_the_batches_of_the_run_are_taken() -> None:
    log = log_of((10, 2, 5), (12, 3, 5), (15, 1, 6))
    run = staged("a", 0, start=10, end=15)
    taken, position = wanted_batches(log, run, 10)
    assert (taken, position) == (bytes(log_of((10, 2, 5), (12, 3, 5))), 15)
    cut = log[: len(log_of((10, 2, 5))) + 20]
    assert wanted_batches(cut, run, 10) == (bytes(log_of((10, 2, 5))), 12)
    assert wanted_batches(memoryview(b""), run, 12) == (b"", 12)


@pytest.mark.parametrize("log", [log_of((10, 2, 6)), log_of((11, 1, 5))], ids=["other-writer", "other-place"])
def test_other_records_in_their_place_are_noticed(log: memoryview) -> None:
    with pytest.raises(ClientError, match=r"are no longer in .*: offset 10 holds other records"):
        wanted_batches(log, staged("a", 0, start=10, end=12), 10)


@pytest.mark.parametrize("offsets", [None, 123])
def test_an_entry_is_read_as_it_was_written(offsets: int | None) -> None:
    published = Published(query="q", batch=BatchIdentity(number=7, offsets=offsets, sources=('{"a":1}', "-")))
    found = read_published("sink", published.to_json())
    assert found == published
    assert found.batch.sources == published.batch.sources


def test_entries_of_an_earlier_release_have_no_fingerprint() -> None:
    found = read_published("sink", b'{"format": 1, "query": "q", "batch": 7}')
    assert found == Published(query="q", batch=BatchIdentity(number=7))
    assert found.batch.sources == ()


@pytest.mark.parametrize("value", [b"", b"[]", b'{"format": "2"}', b'{"format": 1}'])
def test_entries_of_another_form_are_refused(value: bytes) -> None:
    with pytest.raises(ClientError, match=r"record of sink 'orders' in topic .* has an unknown format"):
        read_published("orders", value)


def test_at_least_once_is_logged_when_a_query_starts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pyspark_headrace.writing.publish"):
        publish_batch([Written(3)], NOWHERE, 0)
        publish_batch([Written(3)], NOWHERE, 1)
    (record,) = caplog.records
    assert record.getMessage().startswith("the broker has no transactions: rows are written at least once")


def test_making_writers_has_no_side_effects() -> None:
    """Spark makes two for every batch, in two processes; the one that it pickles then asks brokers."""
    schema = StructType([StructField("value", StringType())])
    source = HeadraceSource({"bootstrap": "127.0.0.1:1", "topic": "out", "exactlyOnce": "batch"})
    clients_before, threads_before = dict(client_pool._clients), threading.active_count()
    for make in (source.writer, source.streamWriter):
        make(schema, False)
    assert (client_pool._clients, threading.active_count()) == (clients_before, threads_before)


def ledger_of(*entries: tuple[int, bytes | bool]) -> memoryview:
    """(producer id, value) of records of one sink, (producer id, committed) of markers."""
    log = bytearray()
    for offset, (producer_id, what) in enumerate(entries):
        is_marker = isinstance(what, bool)
        key, value = (bytes([0, 0, 0, what]), b"") if isinstance(what, bool) else (b"sink", what)
        log += build_batch(
            [Record(offset, 1, key, value)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=is_marker,
        )
    return memoryview(log)


@pytest.mark.parametrize(
    ("entries", "newest"),
    [
        ([(1, b"a"), (1, True)], b"a"),
        ([(1, b"a"), (1, False)], None),
        ([(1, b"a")], None),
        ([(1, b"a"), (1, True), (1, b"b"), (1, False)], b"a"),
        ([(1, b"a"), (1, True), (2, b"b"), (2, True), (2, b"c")], b"b"),
        ([(1, b"a"), (2, True), (1, False)], None),
        ([(1, True), (1, b"a")], None),
    ],
)
def test_a_batch_behind_an_open_transaction_is_known_by_its_marker(
    entries: list[tuple[int, bytes | bool]], newest: bytes | None
) -> None:
    log = ledger_of(*entries)
    whole, in_pieces, of_others = (DecidedRecords(key) for key in (b"sink", b"sink", b"other"))
    whole.read(log)
    of_others.read(log)
    for position, header in whole_batches(log):
        in_pieces.read(log[position : position + header.size])
    assert (whole.newest, in_pieces.newest, of_others.newest) == (newest, newest, None)
