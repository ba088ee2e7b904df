# SPDX-License-Identifier: Apache-2.0
"""Batches that aiokafka and kafka-python build are read by us, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import (
    _DefaultRecordBatchBuilderCython,
    _DefaultRecordBatchBuilderPy,
    _DefaultRecordBatchCython,
    _DefaultRecordBatchPy,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from headrace.wire.batch import crc_ok, split_batches
from headrace.wire.compression import Codec
from headrace.wire.records import Record, build_batch, read_records, recompress, validate_records

NO_CODEC_LIBRARY = (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
"""kafka-python needs a package for each of these that nothing else here does."""

BUILDERS = {
    "aiokafka": (_DefaultRecordBatchBuilderCython, list(Codec)),
    "aiokafka-python": (_DefaultRecordBatchBuilderPy, list(Codec)),
    "kafka-python": (KafkaPythonBuilder, [codec for codec in Codec if codec not in NO_CODEC_LIBRARY]),
}
READERS = {
    "aiokafka": (_DefaultRecordBatchCython, list(Codec)),
    "aiokafka-python": (_DefaultRecordBatchPy, list(Codec)),
    "kafka-python": (KafkaPythonBatch, [codec for codec in Codec if codec not in NO_CODEC_LIBRARY]),
}
THOROUGH = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])

contents = st.none() | st.binary(max_size=30) | st.binary(min_size=60, max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
rows = st.tuples(st.integers(0, 1 << 45), contents, contents, headers)
unnumbered = st.lists(rows, min_size=1, max_size=12)
batches_of_records = unnumbered.map(lambda drawn: [Record(number, *row) for number, row in enumerate(drawn)])


def cases(table: dict[str, tuple[Any, list[Codec]]]) -> list[Any]:
    return [
        pytest.param(cls, codec, id=f"{name}-{codec.name.lower()}")
        for name, (cls, supported) in table.items()
        for codec in supported
    ]


@pytest.mark.parametrize(("builder_class", "codec"), cases(BUILDERS))
def test_their_batches_are_read_by_us(builder_class: Any, codec: Codec) -> None:
    @THOROUGH
    @given(batches_of_records, st.booleans())
    def check(records: list[Record], transactional: bool) -> None:
        builder = builder_class(
            magic=2,
            compression_type=int(codec),
            is_transactional=transactional,
            producer_id=4,
            producer_epoch=1,
            base_sequence=9,
            batch_size=1 << 20,
        )
        for record in records:
            assert builder.append(*record[:4], headers=list(record.headers)) is not None
        batch = memoryview(bytearray(builder.build()))
        ((position, header),) = split_batches(batch, 0, len(batch), max_batch_bytes=None, single=True)
        assert (position, header.is_transactional, header.record_count) == (0, transactional, len(records))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 9)
        assert header.last_sequence == 9 + len(records) - 1
        assert header.max_timestamp == max(record.timestamp for record in records)
        validate_records(batch, require_key=False)
        assert read_records(batch) == records

    check()


@pytest.mark.parametrize(("reader_class", "codec"), cases(READERS))
def test_our_batches_are_read_by_them(reader_class: Any, codec: Codec) -> None:
    @THOROUGH
    @given(batches_of_records, st.integers(0, 1 << 60), st.sampled_from(list(Codec)))
    def check(records: list[Record], base_offset: int, other: Codec) -> None:
        records = [record._replace(offset=base_offset + record.offset) for record in records]
        built = build_batch(records, codec=codec, base_offset=base_offset)
        rebuilt = recompress(memoryview(build_batch(records, codec=other, base_offset=base_offset)), codec)
        for batch in (built, rebuilt):
            reader = reader_class(bytes(batch))
            assert reader.validate_crc()
            assert crc_ok(memoryview(batch), 0, len(batch))
            read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]
            assert read == records

    check()
