# SPDX-License-Identifier: Apache-2.0
"""Arrow columns encoded to batches read back as the same rows; hashes and groups are as row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.client.arrow.kernels.compiled import load
from headrace.client.arrow.kernels.row_wise import RowWise
from headrace.client.arrow.kernels.types import HEADERS
from headrace.client.arrow.write.columns import WriteColumns
from headrace.client.arrow.write.encode import Producer, encode_batch
from headrace.client.errors import ClientError
from headrace.client.partitioning.partitioners import murmur2
from headrace.wire.batch import read_header, split_batches
from headrace.wire.compression import Codec
from headrace.wire.records import Record, build_batch, read_records, validate_records

THOROUGH = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
KERNELS = [pytest.param(code, id=code.name) for code in (load(), RowWise()) if code is not None]
NOW = 1_700_000_000_000
ALL = WriteColumns(key="k", value="v", headers="h", timestamp="t")

contents = st.none() | st.binary(max_size=30) | st.binary(min_size=120, max_size=9000)
headers = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=9), "value": st.none() | st.binary(max_size=9)}),
    max_size=3,
)
rows = st.lists(st.tuples(st.integers(-1, 1 << 45), contents, contents, headers), min_size=1, max_size=12)


def picked(columns: WriteColumns, batch: Any) -> Any:
    return columns.bound(batch.schema, "orders").pick(batch, NOW)


def arrow_rows(drawn: list[Any]) -> Any:
    """As a slice of something longer, so that buffers do not begin where the rows do."""
    padded = [(0, b"before", b"before", []), *drawn, (0, b"after", None, [])]
    times, keys, values, all_headers = zip(*padded, strict=True)
    batch = pa.record_batch(
        {
            "k": pa.array(keys, pa.binary()),
            "v": pa.array(values, pa.binary()),
            "h": pa.array(all_headers, HEADERS),
            "t": pa.array(times, pa.int64()),
        }
    )
    return batch.slice(1, len(drawn))


def as_records(drawn: list[Any]) -> list[Record]:
    return [
        Record(place, time, key, value, tuple((header["key"], header["value"]) for header in row_headers))
        for place, (time, key, value, row_headers) in enumerate(drawn)
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("code", KERNELS)
def test_rows_are_encoded_as_row_wise_building_does(code: Any, codec: Codec) -> None:
    @THOROUGH
    @given(rows, st.booleans())
    def check(drawn: list[Any], transactional: bool) -> None:
        columns = picked(ALL, arrow_rows(drawn))
        producer = Producer(9, 2, transactional)
        whole = np.arange(len(drawn), dtype=np.int64)
        batch, count = encode_batch(
            columns, whole, codec=codec, producer=producer, base_sequence=5, code=code
        )
        assert count == len(drawn)
        expected = build_batch(
            as_records(drawn),
            codec=codec,
            producer_id=9,
            producer_epoch=2,
            base_sequence=5,
            is_transactional=transactional,
        )
        assert batch == expected
        split_batches(memoryview(batch), 0, len(batch), max_batch_bytes=None, single=True)
        validate_records(memoryview(batch), require_key=False)

    check()


@pytest.mark.parametrize("code", KERNELS)
def test_batches_stay_below_the_limit_and_hold_every_row_in_order(code: Any) -> None:
    @THOROUGH
    @given(rows, st.integers(70, 3000), st.randoms(use_true_random=False))
    def check(drawn: list[Any], limit: int, random: Any) -> None:
        columns = picked(ALL, arrow_rows(drawn))
        order = list(range(len(drawn)))
        random.shuffle(order)
        left = np.array(order, np.int64)
        seen: list[Any] = []
        while len(left):
            batch, count = encode_batch(columns, left, max_bytes=limit, code=code)
            assert len(batch) <= limit or count == 1
            seen += [record[1:] for record in read_records(memoryview(batch))]
            left = left[count:]
        records = as_records(drawn)
        assert seen == [records[row][1:] for row in order]

    check()


@pytest.mark.parametrize("code", KERNELS)
@given(keys=st.lists(st.none() | st.binary(max_size=40)), start=st.integers(0, 3))
@THOROUGH
def test_murmur2_of_a_column_is_that_of_every_key(code: Any, keys: list[bytes | None], start: int) -> None:
    column = pa.array([None, b"x", b"yy", *keys], pa.binary()).slice(start)
    expected = [0 if key is None else murmur2(key) for key in column.to_pylist()]
    assert code.murmur2(column).tolist() == expected


@pytest.mark.parametrize("code", KERNELS)
@given(chosen=st.lists(st.integers(0, 6)))
@THOROUGH
def test_rows_are_grouped_by_partition_in_order(code: Any, chosen: list[int]) -> None:
    grouped, ends = code.group(np.array(chosen, np.int32), 7)
    assert grouped.tolist() == sorted(range(len(chosen)), key=chosen.__getitem__)
    assert np.diff(ends).tolist() == [chosen.count(partition) for partition in range(7)]


@pytest.mark.parametrize("code", KERNELS)
@pytest.mark.parametrize("wrong", [-1, 7])
def test_a_partition_that_does_not_exist_is_refused(code: Any, wrong: int) -> None:
    with pytest.raises(ClientError, match="partition does not exist"):
        code.group(np.array([0, wrong], np.int32), 7)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_other_types_of_text_and_bytes_are_written_too(kind: Any) -> None:
    column = pa.array(["a", None, "ü"], pa.string()).cast(kind)
    batch = pa.record_batch({"value": column})
    encoded = encode_batch(picked(WriteColumns(), batch), np.arange(3, dtype=np.int64)).batch
    records = read_records(memoryview(encoded))
    assert [record.value for record in records] == [b"a", None, "ü".encode()]
    assert {(record.key, record.timestamp) for record in records} == {(None, NOW)}


def test_times_of_any_unit_are_written_in_milliseconds_and_missing_ones_are_now() -> None:
    times = pa.array([1_000_001, None], pa.timestamp("us"))
    batch = pa.record_batch({"value": pa.array([b"1", b"2"]), "at": times})
    encoded = encode_batch(picked(WriteColumns(timestamp="at"), batch), np.arange(2, dtype=np.int64)).batch
    assert [record.timestamp for record in read_records(memoryview(encoded))] == [1000, NOW]
    assert read_header(encoded).max_timestamp == NOW


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (WriteColumns(key="nope"), "has no column 'nope'; it has value, number"),
        (WriteColumns(key="number", key_format="raw"), "column 'number' is int64, but must be binary or"),
        (WriteColumns(headers="value"), "must be list<struct"),
        (WriteColumns(timestamp="value"), "must be timestamp or int64"),
        (WriteColumns(partition="value"), "must be an integer"),
    ],
)
def test_a_column_that_cannot_be_written_is_named(columns: WriteColumns, message: str) -> None:
    schema = pa.schema({"value": pa.binary(), "number": pa.int64()})
    with pytest.raises(ClientError, match=message):
        columns.bound(schema, "orders")


def test_a_header_without_a_key_is_refused() -> None:
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    batch = pa.record_batch({"value": pa.array([b"v"]), "h": pa.array([[{"key": None, "value": b""}]], kind)})
    with pytest.raises(ClientError, match="has no key"):
        picked(WriteColumns(headers="h"), batch)


def test_rows_without_headers_may_be_null() -> None:
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.string()}))
    table = {"value": pa.array([b"v", b"w"]), "h": pa.array([None, [{"key": "a", "value": "b"}]], kind)}
    columns = picked(WriteColumns(headers="h"), pa.record_batch(table))
    encoded = encode_batch(columns, np.arange(2, dtype=np.int64)).batch
    assert [record.headers for record in read_records(memoryview(encoded))] == [(), (("a", b"b"),)]
