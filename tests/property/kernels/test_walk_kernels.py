# SPDX-License-Identifier: Apache-2.0
"""The kernels that walk a batch answer as reading record by record does, and never read outside the batch."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.kernels.walk import Fault, Walk, load_walk
from headrace.log.time_lookup import BatchQuestion, search_by_kernel, search_in_turn
from headrace.wire import record_layout
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.compression import STORED_CAPS, Codec
from headrace.wire.record_layout import check_in_turn, layouts
from headrace.wire.records import Record, build_batch, iter_records, read_records
from tests.harness.batches.damaged import GuardedMemory, damaged_batches

THOROUGH = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
contents = st.none() | st.binary(max_size=30) | st.binary(min_size=120, max_size=9000)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
times = st.integers(-1, 1 << 45) | st.integers(1000, 1004)
rows = st.lists(st.tuples(times, contents, contents, headers), min_size=1, max_size=12)


@pytest.fixture(name="walk")
def compiled_walk() -> Walk:
    walk = load_walk()
    assert walk is not None, "no C compiler at `make setup`: the broker reads record by record"
    return walk


def or_refused(function: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except DecodeError:
        return "refused"


def in_turn(monkeypatch: pytest.MonkeyPatch, function: Any, *arguments: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(record_layout, "WALK", None)
        return or_refused(function, *arguments)


@THOROUGH
@given(rows, st.integers(0, 1 << 40), st.sampled_from((0, 1)), st.sampled_from(Codec), times | st.none())
def test_a_time_is_found_in_the_same_record(
    walk: Walk, drawn: list[Any], base_offset: int, timestamp_type: int, codec: Codec, wanted: int | None
) -> None:
    records = [Record(base_offset + 2 * place, *row) for place, row in enumerate(drawn)]
    batch = bytes(
        build_batch(
            records,
            codec=codec,
            base_offset=base_offset,
            timestamp_type=timestamp_type,
            max_timestamp=1002 if timestamp_type else None,
        )
    )
    for start in (0, base_offset + 1, base_offset + 2 * len(records)):
        question = BatchQuestion(batch, wanted, start)
        found = search_by_kernel(walk, question, STORED_CAPS.max_bytes)
        assert found == search_in_turn(question, STORED_CAPS.max_bytes)


@THOROUGH
@given(rows, st.booleans())
def test_a_sound_batch_is_found_sound(walk: Walk, drawn: list[Any], needs_key: bool) -> None:
    records = [Record(place, *row) for place, row in enumerate(drawn)]
    batch = memoryview(build_batch(records))
    body, count = batch[HEADER_SIZE:], len(records)
    base = read_header(batch).base_timestamp
    fault = walk.check(body, count, base, needs_key=needs_key)
    first_without = next((r.offset for r in records if r.key is None), None) if needs_key else None
    assert fault == (None if first_without is None else Fault(first_without, -12))
    assert walk.check(body, count + 1, base, needs_key=False) is not None
    assert walk.check(body, count - 1, base, needs_key=False) is not None


spans = st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3))
short_keys = st.lists(st.none() | st.binary(max_size=4), min_size=1, max_size=20)


@THOROUGH
@given(short_keys, spans)
def test_keys_outside_a_span_are_counted_alike(
    walk: Walk, keys: list[bytes | None], span: tuple[bytes, bytes | None]
) -> None:
    body = build_batch([Record(place, 0, key, b"v") for place, key in enumerate(keys)])[HEADER_SIZE:]
    expected = sum(not record_layout.in_span(key, span) for key in keys)
    assert walk.count_outside(body, len(keys), *span) == expected


@pytest.mark.parametrize("count", [1, 2, 3, 511, 512, 513, 1300])
def test_batches_of_any_number_of_records_are_read_whole(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(n, 5 * n, b"%d" % n, b"v" * (n % 300), (("h", b"x"),) * (n % 3)) for n in range(count)]
    batch = memoryview(build_batch(records))
    assert read_records(batch) == records
    assert read_records(memoryview(bytes(batch))) == records  # read-only
    assert in_turn(monkeypatch, read_records, batch) == records


def test_records_before_a_damaged_one_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(n, 0, None, b"value") for n in range(1000)]
    batch = build_batch(records)
    batch[-1] = 2  # announces a header
    for way in (record_layout.WALK, None):
        monkeypatch.setattr(record_layout, "WALK", way)
        reading = iter_records(memoryview(batch))
        assert list(islice(reading, 999)) == records[:-1]
        with pytest.raises(DecodeError):
            next(reading)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bodies_are_judged_alike_and_reads_stay_inside(
    walk: Walk, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = GuardedMemory()
    refused = 0
    for batch in damaged_batches(random.Random(seed), 1500):
        header = read_header(batch)
        body = memory.place(batch[HEADER_SIZE:])
        count, base = header.record_count, header.base_timestamp
        expected = in_turn(monkeypatch, lambda: check_in_turn(body, count, base, needs_key=True))  # noqa: B023
        assert (walk.check(body, count, base, needs_key=True) is not None) == (expected == "refused")
        assert walk.check_batch(memory.place(batch), 0, len(batch)) == walk.check(
            batch[HEADER_SIZE:], count, base, needs_key=False
        )
        if expected != "refused":
            outside = in_turn(monkeypatch, record_layout.count_outside, body, count, (b"k", b"l"))
            assert walk.count_outside(body, count, b"k", b"l") == outside
        expected = in_turn(monkeypatch, lambda: list(layouts(body, count)))  # noqa: B023
        assert or_refused(lambda: list(layouts(body, count))) == expected  # noqa: B023
        for wanted in (None, 1 << 41):
            question = BatchQuestion(memory.place(batch), wanted, 1)  # type: ignore[arg-type]
            found = or_refused(search_by_kernel, walk, question, STORED_CAPS.max_bytes)
            assert found == in_turn(monkeypatch, search_in_turn, question, STORED_CAPS.max_bytes)
        refused += expected == "refused"
    assert 300 < refused < 1450


def test_a_check_that_fails_names_the_record_and_the_fault(walk: Walk) -> None:
    records = [Record(0, 0, b"k", b"v"), Record(1, 0, None, b"v")]
    body = build_batch(records)[HEADER_SIZE:]
    assert str(walk.check(body, 2, 0, needs_key=True)) == (
        "record 1: it has no key, which a compacted topic needs"
    )
    assert str(walk.check(body, 1, 0, needs_key=False)) == "record 1: bytes are left over"
    assert str(walk.check(b"", 1, 0, needs_key=False)) == (
        "record 0: more records are announced than bytes are there"
    )
    assert walk.check(b"", 0, 0, needs_key=False) is None


@THOROUGH
@given(st.lists(st.sampled_from((0, 1, 2)), max_size=6))
def test_sound_batches_are_counted_up_to_the_first_that_is_not(walk: Walk, kinds: list[int]) -> None:
    """0 is sound, 1 damaged, 2 said to be larger than the buffer."""
    sound = build_batch([Record(0, 0, b"k", b"v")])
    broken = sound[:-1] + b"\x02"
    run, places = bytearray(b"before"), []
    for kind in kinds:
        places += [len(run), len(sound) + (kind == 2) * 1000]
        run += broken if kind == 1 else sound
    assert walk.count_sound(memoryview(run), places) == [*kinds, 1].index(next(filter(None, kinds), 1))


@pytest.mark.parametrize(("start", "size"), [(-1, 10), (0, 0), (0, 101), (95, 6), (101, 1)])
def test_a_batch_outside_its_buffer_is_not_looked_at(walk: Walk, start: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"no batch of {size} bytes at {start} of 100"):
        walk.check_batch(bytearray(100), start, size)
