# SPDX-License-Identifier: Apache-2.0
"""Compaction under load on a live node: the last value of each key, offsets unchanged, tombstones gone.

A producer's duplicate is still recognised afterwards. 1 M updates of 10,000 keys in the soak.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient
from tests.harness.simulation.clients import end_of, records_in
from tests.harness.waiting import wait_until

StartNode = Callable[..., NodeProcess]
TOPIC = "compacted"
NODE_SETTINGS = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "200"}
TOPIC_SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": str(1 << 20),
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "1000",
    "file_delete_delay_ms": "0",
    "headrace_flush": "os",
}
BATCH = 500
PRODUCER_ID = 1


class Updates:
    """Keys with changing values, sent as one idempotent producer; remembers what a reader has to find."""

    def __init__(self, bootstrap: str, keys: int, seed: int) -> None:
        self.last: dict[bytes, tuple[int, bytes | None]] = {}
        self.last_batch = b""
        self._client = RawClient(bootstrap, timeout_s=60)
        self._keys = keys
        self._source = random.Random(seed)
        self._sequence = 0
        self.next_offset = 0

    def send(self, values: list[tuple[bytes, bytes | None]]) -> int:
        now_ms = int(time.time() * 1000)
        records = [Record(place, now_ms, key, value) for place, (key, value) in enumerate(values)]
        batch = bytes(
            build_batch(
                records,
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
        )
        code, base = self._client.produce(TOPIC, batch, acks=1)
        assert code is ErrorCode.none, code.name
        self._sequence += len(values)
        self.last_batch = batch
        for place, (key, value) in enumerate(values):
            self.last[key] = (base + place, value)
        self.next_offset = base + len(values)
        return base

    def send_many(self, count: int) -> None:
        for number in range(0, count, BATCH):
            chosen = [f"key-{self._source.randrange(self._keys):05}".encode() for _ in range(BATCH)]
            self.send([(key, b"%s=%d" % (key, number + place)) for place, key in enumerate(chosen)])

    def send_again(self) -> tuple[ErrorCode, int]:
        return self._client.produce(TOPIC, self.last_batch, acks=1)


def read_all(bootstrap: str) -> list[Record]:
    """Everything a reader from the beginning gets, in order."""
    records: list[Record] = []
    with RawClient(bootstrap, timeout_s=60) as client:
        end, position = client.end_offset(TOPIC), 0
        while position < end:
            data = client.fetch(TOPIC, position, max_bytes=8 << 20)
            records += [record for record in records_in(data) if record.offset >= position]
            following = end_of(data, position)
            assert following > position, f"nothing at {position}, below {end}"
            position = following
    return records


def state_of(records: list[Record]) -> dict[bytes, tuple[int, bytes | None]]:
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    return {record.key or b"": (record.offset, record.value) for record in records}


def log_bytes(node: NodeProcess) -> int:
    return sum(path.stat().st_size for path in (node.data / f"{TOPIC}-0").glob("*.log"))


def compact_under_load(node: NodeProcess, updates: int, keys: int, seed: int) -> dict[str, Any]:
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC, **TOPIC_SETTINGS)
    source = Updates(node.bootstrap, keys, seed)
    gone = [f"gone-{number}".encode() for number in range(100)]
    source.send([(key, b"soon gone") for key in gone])
    failures: list[BaseException] = []

    def load() -> None:
        try:
            source.send_many(updates)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    loader = threading.Thread(target=load)
    loader.start()
    reads = 0
    while loader.is_alive():  # readers meet segments that are being swapped
        state_of(read_all(node.bootstrap))
        reads += 1
    assert not failures, failures
    source.send([(key, None) for key in gone])
    # Only sealed segments are cleaned: what follows pushes all of the above out of the active one.
    filler = [(b"filler-%d" % (number % 7), b"x" * 2000) for number in range(BATCH)]
    for _ in range(3):
        source.send(filler)
    written = source.next_offset
    _wait_for_the_tombstones(node, source, filler, gone)
    assert state_of(read_all(node.bootstrap)) == {
        key: place for key, place in source.last.items() if key not in gone
    }
    kept = len(read_all(node.bootstrap))
    assert kept < written // 2
    _check_duplicates_and_restart(node, source)
    return {"seed": seed, "updates": updates, "keys": keys, "records_kept": kept, "full_reads": reads}


def _wait_for_the_tombstones(
    node: NodeProcess, source: Updates, filler: list[tuple[bytes, bytes | None]], gone: list[bytes]
) -> None:
    def tombstones_are_gone() -> bool:
        source.send(filler)  # rolls, and makes the log dirty enough to be looked at again
        return not set(gone) & set(state_of(read_all(node.bootstrap)))

    wait_until(tombstones_are_gone, "tombstones are removed after delete.retention.ms")


def _check_duplicates_and_restart(node: NodeProcess, source: Updates) -> None:
    expected = state_of(read_all(node.bootstrap))
    original = source.next_offset - BATCH
    assert source.send_again() == (ErrorCode.none, original)
    workers = psutil.Process(node.pid).children(recursive=True)
    assert workers, "compaction runs in a process of its own"
    node.kill()
    _, left_behind = psutil.wait_procs(workers, timeout=10)
    assert not left_behind, "the worker did not notice that its node is gone"
    node.start(timeout_ms=60_000)
    after = Updates(node.bootstrap, 1, 0)
    after.last_batch = source.last_batch
    assert after.send_again() == (ErrorCode.none, original)
    assert state_of(read_all(node.bootstrap)) == expected


def test_compaction_under_load_keeps_the_last_value_of_each_key(start_node: StartNode) -> None:
    compact_under_load(start_node(NODE_SETTINGS), updates=50_000, keys=1000, seed=soak.first_seed())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_compaction_a_million_updates_of_ten_thousand_keys(start_node: StartNode) -> None:
    started = time.monotonic()
    figures = compact_under_load(
        start_node(NODE_SETTINGS), updates=1_000_000, keys=10_000, seed=soak.first_seed()
    )
    soak.write_report("compaction", started, figures)
