# SPDX-License-Identifier: Apache-2.0
"""A damaged segment is replaced (R27): byte for byte what it was, and by one of both after a power cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.errors import CorruptLogError
from headrace.log.epochs import EpochHistory
from headrace.log.leftovers import offsets_of
from headrace.log.repair import marker
from headrace.log.repair.replacement import Replacement
from headrace.log.repair.survey import Gap, Run, Survey, survey_step
from headrace.log.scrub import SegmentCheck, scrub
from headrace.log.segments.files import LOG_SUFFIX, file_stem
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.batch import HEADER_SIZE, split_batches
from headrace.world import read_file
from tests.harness.batches.log_tools import DIRECTORY, open_log, read_batches
from tests.property.log.test_log_damage import CONFIG, Sample, cut

DAMAGES = 200
STEP_BYTES = 1_000
LOSSES = 4


@pytest.fixture(scope="module")
def sample() -> Sample:
    return Sample(close=True)


def bases(files: MemoryFiles) -> list[int]:
    return offsets_of(files.listdir(DIRECTORY), LOG_SUFFIX)


def path_of(base: int) -> Path:
    return DIRECTORY / (file_stem(base) + LOG_SUFFIX)


def surveyed(files: MemoryFiles, base: int, following: int, size: int) -> Survey:
    history = EpochHistory.load(files, DIRECTORY)
    assert history is not None
    check = SegmentCheck(
        files=files,
        directory=DIRECTORY,
        base_offset=base,
        size=size,
        gapless=True,
        end_offset=following,
        epochs=history.entries,
        offset=base,
    )
    survey = Survey(left=check, is_last=False)
    while survey.left is not None:
        survey = survey_step(survey, STEP_BYTES)
    return survey


def replace(
    files: MemoryFiles, survey: Survey, base: int, end: int, fetch: Callable[[Gap], list[bytes]]
) -> Path | None:
    """As broker/replication/log_repairs.py does, without a leader."""
    marker.write(files, DIRECTORY, base)
    new = Replacement(
        files=files, directory=DIRECTORY, base_offset=base, index_interval_bytes=CONFIG.index_interval_bytes
    )
    new.begin()
    position = 0
    for part in survey.parts:
        if isinstance(part, Run):
            new.copy(part, 0, part.size, position)
            position += part.size
        else:
            for data in fetch(part):
                new.write([data], position)
                position += len(data)
    history = EpochHistory.load(files, DIRECTORY)
    assert history is not None
    new.complete(end_offset=end, gapless=True, epochs=history.entries)
    kept = new.install()
    marker.clear(files, DIRECTORY)
    return kept


def leader(sample: Sample) -> Callable[[Gap], list[bytes]]:
    """Its batches of a range, by an undamaged copy of the log."""
    log = open_log(sample.copy(), CONFIG, recovery_point=sample.end)
    batches = read_batches(log)
    return lambda gap: [
        data for header, data in batches if gap.first_offset <= header.base_offset < gap.end_offset
    ]


def harm(files: MemoryFiles, random: Random, base: int) -> bytes | None:
    """Flips bits, overwrites, cuts or removes a segment; what is left of its file."""
    path = path_of(base)
    data = read_file(files, path)
    kind = random.choice(("bit", "zeros", "noise", "header", "cut", "remove"))
    position = random.randrange(len(data))
    if kind == "cut":
        cut(files, path, position)
        return data[:position]
    if kind == "remove":
        files.unlink(path)
        return None
    if kind == "header":
        batches = split_batches(memoryview(data), 0, len(data), max_batch_bytes=None, producer=False)
        position = random.choice(batches)[0] + random.randrange(HEADER_SIZE)
    length = random.randint(1, 700) if kind in ("zeros", "noise") else 1
    harmed = data[position : position + length]
    if kind in ("bit", "header"):
        harmed = bytes((harmed[0] ^ (1 << random.randrange(8)),))
    else:
        harmed = bytes(len(harmed)) if kind == "zeros" else random.randbytes(len(harmed))
    file = files.open(path, "write")
    file.pwritev([harmed], position)
    file.close()
    return data[:position] + harmed + data[position + len(harmed) :]


def test_any_damaged_segment_becomes_what_it_was_and_the_damaged_file_is_kept(sample: Sample) -> None:
    random, fetch = Random(7), leader(sample)
    found = bases(sample.files)
    fetched = 0
    for _ in range(DAMAGES):
        files = sample.copy()
        slot = random.randrange(len(found) - 1)
        base, end = found[slot], found[slot + 1]
        sound = read_file(files, path_of(base))
        harmed = harm(files, random, base)
        survey = surveyed(files, base, end, len(sound))
        if harmed == sound:
            assert not survey.gaps
            continue
        assert survey.confined
        assert survey.gaps, "damage was not found"
        fetched += sum(len(data) for gap in survey.gaps for data in fetch(gap)) < len(sound) // 2
        kept = replace(files, survey, base, end, fetch)
        assert read_file(files, path_of(base)) == sound
        assert (None if kept is None else read_file(files, kept)) == harmed
        log = open_log(files, CONFIG, clean=False, recovery_point=sample.end)
        assert scrub(log.plan_scrub()).faults == ()
        assert [data for _, data in read_batches(log)] == sample.batches
    assert fetched > DAMAGES // 3, "most damage is small, and so is what has to be fetched"


def test_a_batch_inside_a_damaged_record_is_not_taken_for_the_logs_own(sample: Sample) -> None:
    """The header of a batch is damaged, and a client has put whole batches with fitting offsets into it."""
    files, found = sample.copy(), bases(sample.files)
    base, end = found[0], found[1]
    sound = read_file(files, path_of(base))
    batches = split_batches(memoryview(sound), 0, len(sound), max_batch_bytes=None, producer=False)
    start, header = batches[3]
    (following, after), *_ = batches[4:]
    copy = sound[following : following + after.size]
    file = files.open(path_of(base), "write")
    file.pwritev([b"\xff" * 30 + copy], start)  # a sound batch, at a place that no index names
    file.close()
    survey = surveyed(files, base, end, len(sound))
    gap = survey.gaps[0]
    assert gap.first_offset == header.base_offset
    resumed = survey.runs[-1]
    assert resumed.position in {position for position, _ in batches}


@pytest.mark.parametrize("kind", ["flip", "remove"])
def test_after_a_power_cut_the_log_is_the_old_or_the_new_one(sample: Sample, kind: str) -> None:
    """Before every operation on the disk, with several legal losses; the damaged bytes are always there."""
    files, found, fetch = sample.copy(), bases(sample.files), leader(sample)
    base, end = found[1], found[2]
    sound = read_file(files, path_of(base))
    harmed: bytes | None = None
    if kind == "remove":
        files.unlink(path_of(base))
    else:
        file = files.open(path_of(base), "write")
        file.pwritev([b"\0" * 50], 500)
        file.fsync()
        file.close()
        harmed = read_file(files, path_of(base))
    files.sync_directory(DIRECTORY)
    survey = surveyed(files, base, end, len(sound))
    crashes: list[MemoryFiles] = []
    files.on_operation = lambda operation, path: crashes.append(files.clone())
    replace(files, survey, base, end, fetch)
    files.on_operation = None
    crashes.append(files.clone())
    outcomes = {_outcome(crash, seed, sample, base, harmed) for crash in crashes for seed in range(LOSSES)}
    assert outcomes == {"old", "new"}


def _outcome(crash: MemoryFiles, seed: int, sample: Sample, base: int, harmed: bytes | None) -> str:
    disk = crash.clone(Random(seed))
    disk.crash()
    marked = disk.exists(DIRECTORY / marker.FILE_NAME)
    try:
        log = open_log(disk, CONFIG, clean=False, recovery_point=sample.end)
        whole = not scrub(log.plan_scrub()).faults and read_batches(log)[-1][0].next_offset == sample.end
        whole = whole and [data for _, data in read_batches(log)] == sample.batches
    except CorruptLogError:
        whole = False
    files_kept = [
        read_file(disk, DIRECTORY / name)
        for name in disk.listdir(DIRECTORY)
        if name.startswith(file_stem(base) + LOG_SUFFIX)
    ]
    assert harmed is None or harmed in files_kept, disk.listdir(DIRECTORY)
    assert not any(name.endswith((".repaired", ".tmp")) for name in disk.listdir(DIRECTORY))
    # The damage was there before the marker; once there is a replacement, a start knows of it.
    assert whole or marked or not any(".repair" in name for name in crash.listdir(DIRECTORY))
    return "new" if whole else "old"
