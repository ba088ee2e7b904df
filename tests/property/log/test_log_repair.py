# SPDX-License-Identifier: Apache-2.0
"""Repaired logs: whatever was damaged, every batch beside the damage is read at its offset."""

from __future__ import annotations

from random import Random

import pytest

from headrace.log.damage import find_damage, isolate
from headrace.log.epochs import EpochHistory
from headrace.log.leftovers import offsets_of
from headrace.log.scrub import scrub
from headrace.log.segments.files import LOG_SUFFIX, file_stem
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.batch import HEADER_SIZE, split_batches
from headrace.wire.records import Record, read_records
from headrace.world import read_file
from tests.harness.batches.log_tools import DIRECTORY, NOW_MS, batch_of, open_log, read_all
from tests.property.log.test_log_damage import CONFIG, Sample, cut

DAMAGES = 300


@pytest.fixture(scope="module")
def sample() -> Sample:
    return Sample(close=True)


def bases(files: MemoryFiles) -> list[int]:
    return offsets_of(files.listdir(DIRECTORY), LOG_SUFFIX)


def repair(files: MemoryFiles, end_offset: int) -> list[str]:
    """As `headrace log repair` does; the names of the files that it kept."""
    history = EpochHistory.load(files, DIRECTORY)
    epochs = () if history is None else history.entries
    found = bases(files)
    kept = []
    for base, following in zip(found, [*found[1:], None], strict=True):
        before = read_file(files, DIRECTORY / (file_stem(base) + LOG_SUFFIX))
        damage = find_damage(files, DIRECTORY, base, epochs, end_offset=following, known_end=end_offset)
        if damage.gaps or damage.wrong_epochs:
            name = isolate(files, damage)
            assert read_file(files, name) == before
            kept.append(name.name)
    return kept


def harm(files: MemoryFiles, random: Random) -> tuple[int, int, int]:
    """Flips a bit, writes zeros or noise, or cuts; the segment and the bytes that are concerned."""
    base = random.choice(bases(files))
    path = DIRECTORY / (file_stem(base) + LOG_SUFFIX)
    data = read_file(files, path)
    kind = random.choice(("bit", "zeros", "noise", "cut"))
    position = random.randrange(len(data))
    if kind == "cut":
        cut(files, path, position)
        return base, position, len(data)
    length = 1 if kind == "bit" else random.randint(1, 700)
    harmed = data[position : position + length]
    if kind == "bit":
        harmed = bytes((harmed[0] ^ (1 << random.randrange(8)),))
    else:
        harmed = bytes(len(harmed)) if kind == "zeros" else random.randbytes(len(harmed))
    file = files.open(path, "write")
    file.pwritev([harmed], position)
    file.close()
    return base, position, position + len(harmed)


def untouched(files: MemoryFiles, base: int, start: int, end: int) -> list[Record]:
    """Of an undamaged log: the records of batches that share no byte with the range."""
    records: list[Record] = []
    for each in bases(files):
        data = memoryview(read_file(files, DIRECTORY / (file_stem(each) + LOG_SUFFIX)))
        for position, header in split_batches(data, 0, len(data), max_batch_bytes=None, producer=False):
            if each != base or position >= end or position + header.size <= start:
                records += read_records(data[position : position + header.size])
    return records


def test_what_is_not_damaged_is_read_at_its_offset(sample: Sample) -> None:
    random = Random(11)
    repaired = 0
    for _ in range(DAMAGES):
        files = sample.copy()
        base, start, end = harm(files, random)
        repaired += bool(repair(files, sample.end))
        for clean in (True, False):
            log = open_log(files.clone(Random(1)), CONFIG, clean=clean, recovery_point=sample.end)
            found = read_all(log)
            assert log.log_end_offset == sample.end
            assert scrub(log.plan_scrub()).faults == ()
            assert set(found) <= set(sample.records)
            missing = set(untouched(sample.copy(), base, start, end)) - set(found)
            assert not missing, f"bytes {start} to {end} of segment {base}: {sorted(missing)[:3]}"
            log.append(*batch_of([Record(0, NOW_MS + 10**6, b"key", b"new")]), 9)
            assert read_all(log)[-1].offset == sample.end
    assert repaired > DAMAGES * 0.9


@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_a_damaged_header_costs_its_batch_alone(sample: Sample, bit: int) -> None:
    """Whichever of its fields is wrong: also those that the CRC does not cover, and the length."""
    path = DIRECTORY / (file_stem(0) + LOG_SUFFIX)
    data = read_file(sample.copy(), path)
    batches = split_batches(memoryview(data), 0, len(data), max_batch_bytes=None, producer=False)
    start, header = next((at, each) for at, each in batches[10:] if each.record_count == 1)
    others = untouched(sample.copy(), 0, start, start + header.size)
    for position in range(start, start + HEADER_SIZE):
        files = sample.copy()
        file = files.open(path, "write")
        file.pwritev([bytes((data[position] ^ bit,))], position)
        file.close()
        repair(files, sample.end)
        log = open_log(files, CONFIG, recovery_point=sample.end)
        assert set(others) <= set(read_all(log)) <= set(sample.records)
        assert log.log_end_offset == sample.end


def test_every_offset_is_found_in_a_repaired_log(sample: Sample) -> None:
    """Positions have changed, so that the indexes are made again."""
    files = sample.copy()
    path = DIRECTORY / (file_stem(0) + LOG_SUFFIX)
    file = files.open(path, "write")
    file.pwritev([bytes(1500)], 2000)
    file.close()
    repair(files, sample.end)
    log = open_log(files, CONFIG, recovery_point=sample.end)
    for record in sample.records:
        found = read_all(log, record.offset)[:1]
        assert found[0].offset >= record.offset
        if found[0].offset == record.offset:
            assert found == [record]


def test_a_sound_log_has_no_damage(sample: Sample) -> None:
    assert repair(sample.copy(), sample.end) == []


def test_a_leader_epoch_is_corrected_and_loses_no_record(sample: Sample) -> None:
    files = sample.copy()
    path = DIRECTORY / (file_stem(0) + LOG_SUFFIX)
    file = files.open(path, "write")
    file.pwritev([b"\x40"], 12)
    file.close()
    assert repair(files, sample.end) == [f"{path.name}.damaged-1"]
    log = open_log(files, CONFIG, recovery_point=sample.end)
    assert read_all(log) == sample.records
    assert scrub(log.plan_scrub()).faults == ()


def test_a_second_repair_keeps_the_first_file_too(sample: Sample) -> None:
    files = sample.copy()
    path = DIRECTORY / (file_stem(0) + LOG_SUFFIX)
    names = []
    for position in (100, 4000):
        file = files.open(path, "write")
        file.pwritev([b"\xee" * 8], position)
        file.close()
        names += repair(files, sample.end)
    assert names == [f"{path.name}.damaged-1", f"{path.name}.damaged-2"]
