# SPDX-License-Identifier: Apache-2.0
"""Batches decoded to Arrow hold the rows of row-wise reading, and damaged ones raise the same one error."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.client.arrow.fetch.sections import Fetched, Section
from headrace.client.arrow.kernels.compiled import load
from headrace.client.arrow.kernels.row_wise import RowWise
from headrace.client.arrow.kernels.types import FIELDS
from headrace.client.arrow.read.decode import Decoder
from headrace.client.errors import ClientError
from headrace.errors import DecodeError
from headrace.wire.batch import read_header
from headrace.wire.compression import Codec
from headrace.wire.records import Record, build_batch, read_records
from tests.harness.batches.damaged import GuardedMemory, damaged_batches

THOROUGH = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
END = 1 << 62
KERNELS = [pytest.param(code, id=code.name) for code in (load(), RowWise()) if code is not None]
BODY_COLUMNS = frozenset(("key", "value", "headers", "offset", "timestamp"))

contents = st.none() | st.binary(max_size=30) | st.binary(min_size=120, max_size=9000)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
times = st.integers(-1, 1 << 45)
rows = st.lists(st.tuples(times, contents, contents, headers), min_size=1, max_size=12)


def rows_of(table: Any) -> list[Record]:
    """Arrow rows in the form of row-wise ones."""
    return [
        Record(
            row["offset"],
            -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


def decoded(code: Any, *fetched: Fetched, columns: list[str] | None = None) -> Any:
    decoder = Decoder("orders", columns, code=code)
    batches = list(decoder.decode(fetched))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, decoder.schema)


def test_the_kernels_are_compiled_here() -> None:
    assert load() is not None, "no C compiler at `make setup`: the row-wise kernels are in use"


def test_a_library_of_another_version_is_not_loaded(tmp_path: Any) -> None:
    assert load(tmp_path / "missing.so") is None
    (tmp_path / "broken.so").write_bytes(b"no library")
    assert load(tmp_path / "broken.so") is None


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("code", KERNELS)
def test_any_batch_decodes_to_the_rows_of_row_wise_reading(code: Any, codec: Codec) -> None:
    @THOROUGH
    @given(rows, st.integers(0, 1 << 40), st.sampled_from((0, 1)))
    def check(drawn: list[Any], base_offset: int, timestamp_type: int) -> None:
        records = [Record(base_offset + 2 * place, *row) for place, row in enumerate(drawn)]
        batch = build_batch(
            records,
            codec=codec,
            base_offset=base_offset,
            timestamp_type=timestamp_type,
            max_timestamp=77 if timestamp_type else None,
        )
        table = decoded(code, Fetched(3, bytes(batch), 0, END))
        assert rows_of(table) == read_records(memoryview(batch))
        assert table["topic"].to_pylist() == ["orders"] * len(records)
        assert table["partition"].to_pylist() == [3] * len(records)
        assert table["timestamp_type"].to_pylist() == [timestamp_type] * len(records)

    check()


@pytest.mark.parametrize("code", KERNELS)
def test_several_batches_of_several_partitions_become_one(code: Any) -> None:
    first = [Record(n, 1000 + n, b"k%d" % n, None) for n in range(5)]
    second = [Record(n, 2000, None, b"v", (("h", None), ("i", b"1"))) for n in range(5, 9)]
    run = bytes(build_batch(first) + build_batch(second, base_offset=5, codec=Codec.ZSTD))
    table = decoded(code, Fetched(0, run, 0, END), Fetched(1, bytes(build_batch(first)), 0, END))
    assert rows_of(table) == [*first, *second, *first]
    assert table["partition"].to_pylist() == [0] * 9 + [1] * 5
    assert table.column("value").num_chunks == 1


@pytest.mark.parametrize("code", KERNELS)
def test_only_records_within_the_offsets_are_kept(code: Any) -> None:
    records = [Record(n, n, b"%d" % n, b"v", (("h", b"%d" % n),)) for n in range(10, 20)]
    run = bytes(build_batch(records[:6], base_offset=10) + build_batch(records[6:], base_offset=16))
    assert rows_of(decoded(code, Fetched(0, run, 13, 18))) == records[3:8]
    assert decoded(code, Fetched(0, run, 20, 30)).num_rows == 0
    assert decoded(code, Fetched(0, run, 0, 10)).num_rows == 0


@pytest.mark.parametrize("code", KERNELS)
@pytest.mark.parametrize("name", list(FIELDS))
def test_one_column_alone(code: Any, name: str) -> None:
    batch = bytes(build_batch([Record(n, n, None, b"v" * n) for n in range(4)]))
    whole = decoded(code, Fetched(0, batch, 0, END))
    alone = decoded(code, Fetched(0, batch, 0, END), columns=[name])
    assert alone.schema.names == [name]
    assert alone[name].equals(whole[name])


@pytest.mark.parametrize("columns", [["keys"], [], "key"])
def test_unknown_columns_are_named(columns: Any) -> None:
    with pytest.raises(ClientError, match="choose a list from key, value"):
        Decoder("orders", columns)


@pytest.mark.parametrize("code", KERNELS)
def test_a_cut_off_last_batch_waits_for_the_next_fetch(code: Any) -> None:
    batch = build_batch([Record(0, 0, None, b"v")])
    for size in range(len(batch)):
        assert decoded(code, Fetched(0, bytes(batch + batch[:size]), 0, END)).num_rows == 1


@pytest.mark.parametrize("code", KERNELS)
def test_header_names_that_are_not_utf8_read_as_in_java(code: Any) -> None:
    batch = build_batch([Record(0, 0, None, None, (("ok", b"1"), ("\udcff", b"2")))])
    (row,) = rows_of(decoded(code, Fetched(0, bytes(batch), 0, END)))
    assert row.headers == (("ok", b"1"), ("�", b"2"))


def test_a_record_without_a_time_has_a_null_time() -> None:
    batch = build_batch([Record(0, -1, None, None), Record(1, 0, None, None)])
    table = decoded(None, Fetched(0, bytes(batch), 0, END))
    assert table["timestamp"].to_pylist() == [None, datetime.fromtimestamp(0, UTC)]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    record = Record(offset, 0, key, b"\0\0\0\0\0\0")
    return build_batch(
        [record], base_offset=offset, producer_id=producer_id, is_transactional=True, is_control=True
    )


def transactional(offset: int, producer_id: int, value: bytes) -> bytearray:
    record = Record(offset, 0, None, value)
    return build_batch([record], base_offset=offset, producer_id=producer_id, is_transactional=True)


def test_control_batches_are_skipped_and_aborted_transactions_left_out() -> None:
    run = bytes(
        transactional(0, 7, b"aborted")
        + transactional(1, 8, b"kept")
        + build_batch([Record(2, 0, None, b"plain")], base_offset=2, producer_id=7)
        + marker(3, 7, commit=False)
        + transactional(4, 7, b"kept too")
        + marker(5, 7, commit=True)
        + marker(6, 8, commit=True)
        + transactional(7, 8, b"aborted")
        + marker(8, 8, commit=False)
    )
    committed = decoded(None, Fetched(0, run, 0, END, ((8, 7), (7, 0))))
    assert committed["value"].to_pylist() == [b"kept", b"plain", b"kept too"]
    everything = decoded(None, Fetched(0, run, 0, END))
    assert everything["offset"].to_pylist() == [0, 1, 2, 4, 7]


def recorded_rows(codec: str, end: str) -> list[Any]:
    return [
        (
            None if n == 3 else b"key %d" % n,
            None if n == 4 else f"{codec} {end} {n} ".encode() * 6,
            [("n", b"%d" % n), ("none", None)] if n % 2 else [],
            1_700_000_000_000 + n,
        )
        for n in range(5)
    ]


@pytest.mark.parametrize("code", KERNELS)
@pytest.mark.parametrize("committed_only", [True, False])
def test_a_log_of_apache_kafka_written_by_librdkafka(code: Any, committed_only: bool) -> None:
    """Recorded: for each codec a transaction of five records committed, one aborted, one committed."""
    log = (Path(__file__).parent / "segments/librdkafka-transactions.log").read_bytes()
    aborted = [(producer_id, 6 + 18 * producer_id) for producer_id in range(5)] if committed_only else []
    table = decoded(code, Fetched(0, log, 0, END, aborted))
    ends = ("commit", "commit") if committed_only else ("commit", "abort", "commit")
    expected = [row for codec in Codec for end in ends for row in recorded_rows(codec.name.lower(), end)]
    assert [(row.key, row.value, list(row.headers), row.timestamp) for row in rows_of(table)] == expected
    assert table["offset"].to_pylist()[-1] == 88


def test_damage_is_found_by_the_crc_and_named() -> None:
    batch = build_batch([Record(5, 0, None, b"value")], base_offset=5)
    batch[-1] ^= 1
    with pytest.raises(DecodeError, match="batch at offset 5 of partition 2 does not match its CRC"):
        decoded(None, Fetched(2, bytes(batch), 0, END))


# -- damaged bodies ----------------------------------------------------------------------------------------


def outcome(code: Any, batch: memoryview) -> list[Record] | None:
    section = Section(0, read_header(batch), batch, -END, END)
    try:
        columns = code.decode([section], BODY_COLUMNS).columns
    except DecodeError:
        return None
    arrays = pa.RecordBatch.from_arrays(
        [columns[name] for name in sorted(BODY_COLUMNS)],
        schema=pa.schema([FIELDS[n] for n in sorted(BODY_COLUMNS)]),
    )
    arrays.validate(full=True)
    return list(
        zip(
            *(
                arrays[name].cast(pa.int64()).to_pylist() if name == "timestamp" else arrays[name].to_pylist()
                for name in sorted(BODY_COLUMNS)
            ),
            strict=True,
        )
    )


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bodies_raise_one_error_and_reads_stay_inside(seed: int) -> None:
    compiled = load()
    assert compiled is not None
    memory = GuardedMemory()
    refused = 0
    for batch in damaged_batches(random.Random(seed), 1200):
        expected = outcome(RowWise(), memoryview(batch))
        assert outcome(compiled, memory.place(batch)) == expected
        refused += expected is None
    assert 240 < refused < 1150
