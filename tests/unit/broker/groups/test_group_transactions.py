# SPDX-License-Identifier: Apache-2.0
"""Offsets of transactions in the log of `__consumer_offsets`: Kafka's bytes, in the order of the steps."""

from __future__ import annotations

import struct

import pytest

from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.errors import ApiError
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
    OffsetCommit,
    OffsetCommitReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
)
from headrace.machines.machine import ReplyBody
from headrace.wire.batch import crc_ok
from headrace.wire.coordinator.group_records import TransactionMarkerRecord
from headrace.wire.coordinator.record import BatchProducer
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_batch, plain_record
from tests.harness.broker.simulated_node import SimBroker, on_a_node
from tests.harness.groups.driven_groups import DrivenGroups

PRODUCER = BatchProducer(7, 3)


def committed(groups: DrivenGroups, group_id: str = "g", *, stable: bool = False) -> int | None:
    reply = groups.ask(group_id, OffsetFetch, partitions=(("t", 0),), require_stable=stable)
    assert isinstance(reply, OffsetFetchReply)
    (found,) = reply.offsets
    if found.error is not ErrorCode.none:
        raise ApiError(found.error)
    return None if found.committed is None else found.committed.offset


def test_the_batch_of_a_transaction_has_the_bytes_that_kafka_writes() -> None:
    """Transactional bit, producer id and epoch, no sequence: KafkaApis' TxnOffsetCommit in magic 2."""
    batch = plain_batch([plain_record(0, b"k", b"v")], 1, 1_700_000_000_000, producer_id=7, producer_epoch=3)
    crc = struct.unpack_from(">I", batch, 17)[0]
    header = struct.pack(
        ">qiibIhiqqqhii",
        0, 58, -1, 2, crc, 0x10, 0, 1_700_000_000_000, 1_700_000_000_000, 7, 3, -1, 1,
    )  # fmt: skip
    record = bytes((16, 0, 0, 0, 2)) + b"k" + bytes((2,)) + b"v" + b"\0"
    assert bytes(batch) == header + record
    assert crc_ok(memoryview(batch), 0, len(batch))


def test_offsets_and_markers_stand_in_the_log_in_the_order_of_the_steps() -> None:
    groups = DrivenGroups()
    groups.commit("g", OffsetToCommit("t", 0, 1), wait=False)
    groups.commit("g", OffsetToCommit("t", 0, 2), producer=PRODUCER, wait=False)
    groups.commit("h", OffsetToCommit("t", 0, 3), wait=False)
    groups.end_transaction(PRODUCER, committed=True)
    groups.commit("h", OffsetToCommit("t", 0, 4))
    found = [
        (each.header.producer_id, each.header.producer_epoch, each.header.is_control, each.is_transactional)
        for each in groups.log.records()
    ]
    plain = (-1, -1, False, False)
    assert found == [plain, (7, 3, False, True), plain, (7, 3, True, False), plain]
    assert (committed(groups), committed(groups, "h")) == (2, 4)


def test_a_marker_applies_to_all_groups_of_its_transaction_and_after_a_load_too() -> None:
    groups = DrivenGroups()
    for group_id in ("g", "h"):
        groups.commit(group_id, OffsetToCommit("t", 0, 2), producer=PRODUCER)
    groups.reload()
    with pytest.raises(ApiError) as unstable:
        committed(groups, stable=True)
    assert unstable.value.code is ErrorCode.unstable_offset_commit
    groups.end_transaction(PRODUCER, committed=True)
    assert (committed(groups), committed(groups, "h", stable=True)) == (2, 2)
    groups.reload()
    assert (committed(groups), committed(groups, "h")) == (2, 2)


def test_a_group_with_nothing_but_aborted_offsets_is_gone() -> None:
    groups = DrivenGroups()
    groups.commit("g", OffsetToCommit("t", 0, 2), producer=PRODUCER)
    groups.end_transaction(PRODUCER, committed=False)
    assert groups.driver.names() == []
    groups.reload()
    assert groups.driver.names() == []


def test_the_coordinator_passes_markers_and_checks_to_the_driver_of_the_partition() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        groups = node.broker.groups
        answers: list[ReplyBody | ApiError] = []
        marker = TransactionMarkerRecord(producer_id=7, committed=True)
        groups.end_transaction(0, marker, lambda: 0, answers.append)
        await groups.ensure_topic()
        index = groups.partition_of("g")
        partition = node.partition(OFFSETS_TOPIC, index)

        def refuse() -> int:
            raise ApiError(ErrorCode.transaction_coordinator_fenced)

        groups.end_transaction(index, marker, refuse, answers.append)
        groups.submit(
            "g",
            lambda token: OffsetCommit.of((OffsetToCommit("t", 0, 1),), token=token, version=9),
            answers.append,
            check=refuse,
        )
        codes = [answer.code for answer in answers if isinstance(answer, ApiError)]
        fenced = ErrorCode.transaction_coordinator_fenced
        assert codes == [ErrorCode.not_coordinator, fenced, fenced]
        assert partition.log_end_offset == 0
        reply = await groups.ask(
            "g",
            lambda token: OffsetCommit.of(
                (OffsetToCommit("t", 0, 1),), token=token, version=9, member_id=NO_MEMBER_ID
            ),
        )
        assert isinstance(reply, OffsetCommitReply)
        assert reply.errors == (ErrorCode.none,)

    on_a_node(scenario)
