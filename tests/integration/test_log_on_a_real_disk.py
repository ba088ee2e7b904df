# SPDX-License-Identifier: Apache-2.0
"""The log on the real file system: compaction in the worker process, few descriptors, time of recovery."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from headrace.log.compaction.compaction import compact
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.scrub import scrub
from headrace.log.segments.descriptors import DescriptorPool
from headrace.realworld import RealFiles, RealTasks
from headrace.wire.records import Record
from tests.harness.batches.log_tools import Producer, StillClock, batch, batch_of, flush, open_log, read_all

GIB = 1 << 30


def test_compaction_and_scrub_run_in_the_worker_process(tmp_path: Path) -> None:
    """Ten thousand updates of a hundred keys: the last value of each, offsets and producer unchanged."""
    config = LogConfig(segment_bytes=100_000, cleanup_policy=frozenset({"compact"}))
    log = open_log(RealFiles(), config, directory=tmp_path / "topic-0")
    random, producer, last = Random(1), Producer(4), {}
    for _ in range(100):
        records = []
        for delta in range(100):
            key = b"key-%d" % random.randrange(100)
            records.append(Record(delta, 1, key, random.randbytes(20)))
            last[key] = (log.log_end_offset + delta, records[-1].value)
        fields = {"producer_id": 4, "producer_epoch": 0, "base_sequence": producer.sequence}
        log.append(*batch_of(records, **fields), 0)
        producer.sequence += 100
    flush(log)
    plan = log.plan_compaction(StillClock().now_ms, log.log_end_offset)
    assert plan is not None

    async def work() -> None:
        tasks = RealTasks()
        log.finish_compaction(plan, await tasks.bulk(compact, plan))
        assert (await tasks.bulk(scrub, log.plan_scrub())).faults == ()
        await tasks.close()

    asyncio.run(work())
    remove = log.collect_deleted(0)
    assert remove is not None
    remove()
    found = read_all(log)
    assert len(found) < 2_000
    assert {record.key: (record.offset, record.value) for record in found} == last
    log.close()
    again = open_log(RealFiles(), config, clean=False, directory=tmp_path / "topic-0")
    assert read_all(again) == found
    producer.sequence -= 100
    duplicate = producer.batch(*[b""] * 100)[1][0][1]
    assert again.producers.check(duplicate) == 9_900


def test_two_thousand_partitions_share_a_hundred_descriptors(tmp_path: Path) -> None:
    files = RealFiles()
    pool = DescriptorPool(files, 100)
    logs = [open_log(files, descriptors=pool, directory=tmp_path / f"topic-{n}") for n in range(2_000)]
    for log in logs:
        log.append(*batch(b"x"), 0)
    assert pool.open_count <= 100
    assert all(len(read_all(log)) == 1 for log in logs)
    for log in logs:
        log.close(clean=False)
    assert pool.open_count == 0


def _fill(log: PartitionLog, value_bytes: int, producer: Producer | None, total: int) -> None:
    made = producer.batch(bytes(value_bytes)) if producer else batch(bytes(value_bytes))
    view, batches = made
    for _ in range(total // len(view)):
        log.append(view, batches, 0)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("value_bytes", "idempotent", "limit_s"),
    [(16_000, False, 10), (100, False, 60), (100, True, 60)],
    ids=["16 KiB batches", "single records", "single records of a producer"],
)
def test_recovery_of_a_gibibyte_is_quick(
    tmp_path: Path, value_bytes: int, idempotent: bool, limit_s: float
) -> None:
    files = RealFiles()
    log = open_log(files, directory=tmp_path / "topic-0")
    _fill(log, value_bytes, Producer(3) if idempotent else None, GIB)
    end = log.log_end_offset
    log.close(clean=False)
    started = time.perf_counter()
    again = open_log(files, clean=False, directory=tmp_path / "topic-0")
    elapsed = time.perf_counter() - started
    print(f"{again.recovery.batches_scanned} batches of {GIB} bytes in {elapsed:.1f} s")
    assert again.log_end_offset == end
    assert elapsed < limit_s
