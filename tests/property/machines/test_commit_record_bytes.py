# SPDX-License-Identifier: Apache-2.0
"""The record of a commit is, in bytes and in effect, the single records that it stands for."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.groups.group_log import pack_group_record, read_group_record
from headrace.machines.groups.offsets import Offsets
from headrace.wire.batch import read_header
from headrace.wire.coordinator.commit_records import CommitPartitions, OffsetCommitsRecord
from headrace.wire.coordinator.group_records import TransactionMarkerRecord, encode
from headrace.wire.plain_batch import plain_batch, plain_record
from headrace.wire.records import read_records

int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
topic_ids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
partitions = st.tuples(
    st.sampled_from(["a", "b", "long-topic-name" * 10]), st.integers(0, 3), st.none() | texts, topic_ids
)
numbers = st.integers(0, 200) | st.integers(8100, 8300)


@st.composite
def commits(draw: st.DrawFn) -> OffsetCommitsRecord:
    named = draw(st.lists(partitions, min_size=1, max_size=12))
    size = {"min_size": len(named), "max_size": len(named)}
    return OffsetCommitsRecord(
        "g",
        CommitPartitions(named),
        tuple(draw(st.lists(int64s, **size))),
        tuple(draw(st.lists(int32s, **size))),
        draw(int64s),
        draw(st.just(-1) | st.integers(0, 2**62)),
    )


@given(commits(), numbers)
def test_its_bytes_are_those_of_the_single_records(record: OffsetCommitsRecord, number: int):
    first, parts = list(pack_group_record(record, number)), list(pack_group_record(record, number))
    single = [plain_record(number + at, *encode(each)) for at, each in enumerate(record.each())]
    assert b"".join(packed for packed, _ in first) == b"".join(single)
    assert b"".join(packed for packed, _ in parts) == b"".join(single)
    assert sum(count for _, count in parts) == len(single)


@given(commits())
def test_applying_a_record_equals_loading_its_bytes(record: OffsetCommitsRecord):
    live, loaded = Offsets("g"), Offsets("g")
    live.apply(record)
    parts = list(pack_group_record(record, 0))
    batch = memoryview(plain_batch([packed for packed, _ in parts], len(record.offsets), 7))
    for each in read_records(batch):
        found = read_group_record(read_header(batch), each.key, each.value)
        assert found is not None
        loaded.apply(found[1])
    assert live.snapshot() == loaded.snapshot()


@given(commits(), commits())
def test_a_bulk_record_supersedes_a_transaction_as_single_records_do(
    open_one: OffsetCommitsRecord, record: OffsetCommitsRecord
):
    together, singly = Offsets("g"), Offsets("g")
    for offsets in (together, singly):
        for each in open_one.each():
            offsets.apply(_in_transaction(each))
    together.apply(record)
    for each in record.each():
        singly.apply(each)
    assert together.snapshot() == singly.snapshot()
    for offsets in (together, singly):
        offsets.apply(TransactionMarkerRecord(producer_id=7, committed=True))
    assert together.snapshot() == singly.snapshot()


def _in_transaction(record):
    return type(record)(record.group_id, record.topic, record.partition, record.value, 7)
