# SPDX-License-Identifier: Apache-2.0
"""T7: files that were cut or whose bits flipped. Never a wrong record; torn tails cut, bit rot reported."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from headrace.errors import ApiError, CorruptLogError, StorageError
from headrace.log.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.scrub import scrub
from headrace.testing.memory_files import MemoryFiles
from headrace.types import TopicPartition
from headrace.wire.batch import split_batches
from headrace.wire.records import Record
from headrace.world import read_file
from tests.harness import soak
from tests.harness.batches.log_tools import (
    DIRECTORY,
    NOW_MS,
    Producer,
    batch_of,
    flush,
    open_log,
    read_all,
    read_batches,
)

CONFIG = LogConfig(segment_bytes=9_000, index_interval_bytes=300)
TAIL_BYTES = 4096


class Sample:
    """A log of a few segments on a disk that is copied for each damage."""

    def __init__(self, *, close: bool) -> None:
        random = Random(5)
        self.files = MemoryFiles()
        log = open_log(self.files, CONFIG)
        producer = Producer(7)
        self.boundaries = [0]
        for number in range(230):
            if number % 3:
                view, batches = batch_of(
                    [
                        Record(delta, NOW_MS + 10 * number + delta, b"key", random.randbytes(30))
                        for delta in range(random.randint(1, 4))
                    ]
                )
            else:
                view, batches = producer.batch(random.randbytes(40), timestamp=NOW_MS + 10 * number)
            log.append(view, batches, number // 100)
            self.boundaries.append(log.log_end_offset)
            if number == 150:
                flush(log)
        self.records = read_all(log)
        self.batches = [data for _, data in read_batches(log)]
        self.end = log.log_end_offset
        self.last_sequence = producer.sequence - 1
        self.epochs = log.epochs.entries
        flush(log)
        if close:
            log.close()
        self.last_file = log._segments.active.pooled.path
        self.last_base = log._segments.active.base_offset

    def copy(self) -> MemoryFiles:
        return self.files.clone(Random(0))


@pytest.fixture(scope="module")
def killed() -> Sample:
    return Sample(close=False)


@pytest.fixture(scope="module")
def stopped() -> Sample:
    return Sample(close=True)


def cut(files: MemoryFiles, path: Path, size: int) -> None:
    file = files.open(path, "write")
    file.truncate(size)
    file.close()


def flip(files: MemoryFiles, path: Path, position: int, bit: int) -> None:
    file = files.open(path, "write")
    byte = file.pread(1, position)[0]
    file.pwritev([bytes([byte ^ (1 << bit)])], position)
    file.close()


def test_tail_cut_at_every_byte_keeps_the_whole_batches_before_it(killed: Sample) -> None:
    size = len(read_file(killed.files, killed.last_file))
    assert size > TAIL_BYTES
    ends = _ends_in_last_file(killed)
    for length in range(size - TAIL_BYTES, size):
        files = killed.copy()
        cut(files, killed.last_file, length)
        log = open_log(files, CONFIG, clean=False, recovery_point=killed.last_base)
        assert log.log_end_offset == max(end for end, position in ends.items() if position <= length)
        assert (log.recovery.bytes_cut > 0) == (length not in ends.values())
        kept = [r for r in killed.records if killed.last_base <= r.offset < log.log_end_offset]
        assert read_all(log, killed.last_base) == kept


def test_tail_cut_below_the_recovery_point_is_reported_not_repaired(killed: Sample) -> None:
    size = len(read_file(killed.files, killed.last_file))
    ends = set(_ends_in_last_file(killed).values())
    for length in range(size - 600, size):
        files = killed.copy()
        cut(files, killed.last_file, length)
        if length in ends:
            log = open_log(files, CONFIG, clean=False, recovery_point=killed.end)
            assert log.recovery.missing_offsets == killed.end - log.log_end_offset
            continue
        with pytest.raises(CorruptLogError, match=f"{killed.last_base:020d}.log.* at position"):
            open_log(files, CONFIG, clean=False, recovery_point=killed.end)
        assert len(read_file(files, killed.last_file)) == length, "nothing may be cut"


def _ends_in_last_file(sample: Sample) -> dict[int, int]:
    """Offset after each batch of the last segment -> position after it."""
    ends = {sample.last_base: 0}
    position = 0
    for data, offset in zip(sample.batches, sample.boundaries[1:], strict=True):
        if offset > sample.last_base:
            position += len(data)
            ends[offset] = position
    return ends


def _flip_in_log(sample: Sample, seed: int, recovery_point: int) -> None:
    random = Random(seed)
    files = sample.copy()
    path = DIRECTORY / random.choice([n for n in files.listdir(DIRECTORY) if n.endswith(".log")])
    flip(files, path, random.randrange(len(read_file(files, path))), random.randrange(8))
    try:
        log = open_log(files, CONFIG, clean=False, recovery_point=recovery_point)
    except CorruptLogError:
        assert recovery_point > 0
        return
    assert log.log_end_offset >= min(recovery_point, sample.end)
    try:
        found = read_all(log)
    except (ApiError, CorruptLogError):
        found = []
    expected = [record for record in sample.records if record.offset < log.log_end_offset]
    assert found == expected or scrub(log.plan_scrub()).faults, "a wrong record was served unnoticed"


@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_in_a_log_file_is_cut_or_reported(killed: Sample, part: int) -> None:
    for seed in range(100 * part, 100 * (part + 1)):
        _flip_in_log(killed, seed, recovery_point=0)
        _flip_in_log(killed, seed, recovery_point=killed.last_base + 5)
        _flip_in_log(killed, seed, recovery_point=killed.end)


def _damage_cache(sample: Sample, seed: int, *, clean: bool) -> None:
    """Damages one file that is only a cache; nothing may be seen of it."""
    random = Random(seed)
    files = sample.copy()
    names = [n for n in files.listdir(DIRECTORY) if not n.endswith((".log", "checkpoint"))]
    path = DIRECTORY / random.choice(names)
    size = len(read_file(files, path))
    if size and random.random() < 0.7:
        flip(files, path, random.randrange(size), random.randrange(8))
    elif size and random.random() < 0.8:
        cut(files, path, random.randrange(size))
    else:
        files.unlink(path)
    recovery_point = sample.end if clean else sample.last_base
    log = open_log(files, CONFIG, clean=clean, recovery_point=recovery_point)
    _check_whole(log, sample, random)


def _check_whole(log: PartitionLog, sample: Sample, random: Random) -> None:
    assert log.log_end_offset == sample.end
    assert read_all(log) == sample.records
    for _ in range(5):
        record = random.choice(sample.records)
        assert read_all(log, record.offset, max_bytes=200)[0] == record
        first = next(r for r in sample.records if r.timestamp >= record.timestamp)
        assert log.offset_for_timestamp(record.timestamp) == (first.timestamp, first.offset)
    latest = max(sample.records, key=lambda r: (r.timestamp, -r.offset))
    assert log.offset_of_max_timestamp() == (latest.timestamp, latest.offset)
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == sample.last_sequence
    assert log.epochs.entries == sample.epochs


@pytest.mark.parametrize("clean", [True, False])
def test_damaged_indexes_and_snapshots_are_not_noticed(stopped: Sample, clean: bool) -> None:
    for seed in range(150):
        _damage_cache(stopped, seed, clean=clean)


def test_damaged_epoch_file_never_harms_records(stopped: Sample) -> None:
    path = DIRECTORY / "leader-epoch-checkpoint"
    size = len(read_file(stopped.files, path))
    for position in range(size):
        for bit in range(8):
            files = stopped.copy()
            flip(files, path, position, bit)
            log = open_log(files, CONFIG, clean=False, recovery_point=stopped.last_base)
            assert read_all(log) == stopped.records


def test_damaged_offset_checkpoints_are_refused_or_harmless_to_what_is_served(killed: Sample) -> None:
    """A flipped digit can only be believed; it may hide records or take the log offline, never alter one."""
    partition = TopicPartition("topic", 0)
    path = DIRECTORY.parent / "checkpoint"
    originals = {record.offset: record for record in killed.records}
    clean_copy = killed.copy()
    write_offset_checkpoint(clean_copy, path, {partition: killed.last_base})
    served = 0
    for position in range(len(read_file(clean_copy, path))):
        for bit in range(8):
            files = clean_copy.clone(Random(0))
            flip(files, path, position, bit)
            try:
                offset = read_offset_checkpoint(files, path).get(partition, 0)
                log = open_log(files, CONFIG, clean=False, recovery_point=offset, log_start_offset=offset)
            except StorageError:
                continue
            for record in read_all(log):
                assert originals[record.offset] == record
                served += 1
    assert served, "some checkpoints are believed"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_t7_flips_at_length(killed: Sample, stopped: Sample) -> None:
    """Ten minutes."""
    started = time.monotonic()
    damage: Counter[str] = Counter()
    for seed in soak.seeds_within(soak.minutes(10)):
        _flip_in_log(killed, seed, recovery_point=Random(seed).randrange(killed.end + 1))
        damage["bits flipped in segments"] += 1
        _damage_cache(stopped, seed, clean=bool(seed % 2))
        damage["indexes and snapshots flipped, cut or removed"] += 1
    soak.write_report("T7", started, {"first_seed": soak.first_seed(), "damage": dict(damage)})


@pytest.mark.parametrize("clean", [True, False])
def test_an_offset_that_no_segment_can_hold_is_reported(stopped: Sample, clean: bool) -> None:
    """A bit in the high half of the last batch's base offset, which no CRC covers."""
    files = stopped.copy()
    data = memoryview(read_file(files, stopped.last_file))
    position, _ = split_batches(data, 0, len(data), max_batch_bytes=None, producer=False)[-1]
    flip(files, stopped.last_file, position + 1, 3)
    for name in (".index", ".timeindex"):
        files.unlink(stopped.last_file.with_suffix(name))
    with pytest.raises(CorruptLogError):
        open_log(files, CONFIG, clean=clean, recovery_point=stopped.end)
