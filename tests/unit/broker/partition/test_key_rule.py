# SPDX-License-Identifier: Apache-2.0
"""headrace.partitioner=enforce on a whole node: records in the wrong partition are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.broker.partition.validation import record_validation
from headrace.wire import record_layout
from headrace.wire.compression import Codec
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.broker.simulated_node import PRODUCE, SimBroker, on_a_node

ENFORCED = {"headrace_partitioner": "enforce", "headrace_partitioner_ranges": "A..M,N..Z"}
FEW = record_validation.ONE_BY_ONE.records


def batch_of(keys: Sequence[bytes | None], codec: int = Codec.NONE) -> bytes:
    return bytes(build_batch([Record(n, 1000, key, b"v") for n, key in enumerate(keys)], codec=codec))


async def send(node: SimBroker, *parts: tuple[int, bytes], acks: int = -1, version: int = 8) -> list[Any]:
    """The results of one request, by partition."""
    data = [{"index": index, "records": batch} for index, batch in parts]
    fields = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 30_000,
        "topic_data": [{"name": "t", "partition_data": data}],
    }
    connection = await node.connect()
    return list((await connection.send(PRODUCE, fields, version=version)).responses[0].partition_responses)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kernels", [True, False])
def test_a_record_in_the_wrong_partition_is_refused_and_named(
    codec: Codec, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr(record_layout, "WALK", None)

    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, **ENFORCED)
        wrong = batch_of([b"ANNA", b"OTTO", None, b"-", b"MIA"], codec)
        refused, taken = await send(node, (0, wrong), (1, batch_of([b"OTTO"], codec)))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.invalid_record, -1)
        assert refused.error_message == (
            "record 1: key 'OTTO' belongs to partition 1, not 0; "
            "3 of 5 records are refused (headrace.partitioner=enforce)"
        )
        assert {each.batch_index: each.batch_index_error_message for each in refused.record_errors} == {
            1: "record 1: key 'OTTO' belongs to partition 1, not 0",
            2: "record 2 has no key, which key ranges need",
            3: "record 3: key '-' is outside every key range",
        }
        assert (taken.error_code, taken.base_offset) == (0, 0)
        assert [node.partition("t", index).log_end_offset for index in (0, 1)] == [0, 1]

    on_a_node(scenario)


def test_a_large_batch_is_checked_by_the_worker_and_every_record_listed() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, **ENFORCED)
        keys = [b"ANNA", *[b"OTTO"] * (FEW + 100)]
        (refused,) = await send(node, (0, batch_of(keys, Codec.GZIP)))
        assert [each.batch_index for each in refused.record_errors] == list(range(1, len(keys)))
        assert "record 1: key 'OTTO' belongs to partition 1" in refused.error_message
        assert refused.record_errors[-1].batch_index_error_message == refused.error_message
        (taken,) = await send(node, (1, batch_of(keys[1:], Codec.GZIP)))
        assert taken.error_code == 0

    on_a_node(scenario)


def test_ranges_altered_while_a_thread_checks_are_the_ones_that_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_once = record_validation.check_by_kernels

    def check_by_kernels(check: Any, batch: bytearray, header: Any) -> Any:
        checks.append(check.keys)
        checked = check_once(check, batch, header)
        if len(checks) == 1:
            partition.reconfigure(other)
        return checked

    async def scenario(node: SimBroker) -> None:
        nonlocal partition, other
        await node.create("t", partitions=2, **ENFORCED)
        partition = node.partition("t")
        before = partition.settings
        await node.alter("headrace.partitioner.ranges", "N..Z,A..M", "t")
        other = partition.settings
        partition.reconfigure(before)
        (result,) = await send(node, (0, batch_of([b"ANNA"] * (FEW + 1), Codec.GZIP)))
        assert result.error_code == (ErrorCode.invalid_record if checks else 0)
        assert len(checks) in (0, 2)

    checks: list[Any] = []
    partition: Any = None
    other: Any = None
    monkeypatch.setattr(record_validation, "check_by_kernels", check_by_kernels)
    monkeypatch.setattr(record_validation, "AT_ONCE", record_validation.ONE_BY_ONE)
    on_a_node(scenario)
    assert len(checks) == 2


def test_a_run_of_requests_is_checked_too() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, headrace_flush="os", **ENFORCED)
        connection = await node.connect()
        keys = [b"ANNA", b"ANNA", b"ANNA", b"OTTO", b"ANNA"]
        replies = []
        for key in keys:
            data = [{"index": 0, "records": batch_of([key])}]
            topic = [{"name": "t", "partition_data": data}]
            fields = {"transactional_id": None, "acks": 1, "timeout": 30_000, "topic_data": topic}
            replies.append(connection.send(PRODUCE, fields, version=8))
        results = [(await reply).responses[0].partition_responses[0] for reply in replies]
        assert [each.error_code for each in results] == [0, 0, 0, ErrorCode.invalid_record, 0]

    on_a_node(scenario)


def test_without_enforce_any_record_may_be_anywhere() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, headrace_partitioner_ranges="A..M,N..Z")
        assert not node.partition("t").settings.checks_records
        assert node.partition("t").settings.is_plain
        (taken,) = await send(node, (0, batch_of([b"OTTO", None])))
        assert taken.error_code == 0

    on_a_node(scenario)


def test_keys_outside_may_belong_to_the_nearest_range() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, headrace_partitioner_outside="nearest", **ENFORCED)
        (taken,) = await send(node, (1, batch_of([b"zoe", b"NILS"])))
        assert taken.error_code == 0
        (refused,) = await send(node, (0, batch_of([b"zoe"])))
        assert "key 'zoe' belongs to partition 1, not 0" in refused.error_message

    on_a_node(scenario)


def test_altered_ranges_count_at_once_and_a_new_partition_needs_one() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, **ENFORCED)
        assert await node.alter("headrace.partitioner.ranges", "N..Z,A..M", "t") == 0
        (taken,) = await send(node, (0, batch_of([b"OTTO"])))
        assert taken.error_code == 0
        assert await node.add_partitions(3, "t") == 0
        (refused,) = await send(node, (2, batch_of([b"OTTO"])))
        assert "key 'OTTO' belongs to partition 0, not 2" in refused.error_message
        assert await node.alter("retention.ms", "5000000", "t") == 0
        assert await node.alter("headrace.partitioner.ranges", "N..P,A..M,Q..Z", "t") == 0
        (taken,) = await send(node, (2, batch_of([b"YOLO"])))
        assert taken.error_code == 0

    on_a_node(scenario)


@pytest.mark.parametrize(
    "configs",
    [
        {"headrace_partitioner": "enforce"},
        {"headrace_partitioner": "sometimes"},
        {"headrace_partitioner_ranges": "A..M"},
        {"headrace_partitioner_ranges": "A..N,M..Z"},
        {"headrace_partitioner_outside": "left"},
    ],
)
def test_configs_that_make_no_sense_are_refused(configs: dict[str, str]) -> None:
    async def scenario(node: SimBroker) -> None:
        assert await node.create("t", partitions=2, **configs) == ErrorCode.invalid_config

    on_a_node(scenario)


def test_ranges_cannot_be_taken_away_while_they_are_enforced() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("t", partitions=2, **ENFORCED)
        assert await node.alter("headrace.partitioner.ranges", "", "t") == ErrorCode.invalid_config
        assert await node.alter("headrace.partitioner.ranges", "A..M", "t") == ErrorCode.invalid_config
        assert await node.alter("headrace.partitioner", "client", "t") == 0
        assert await node.alter("headrace.partitioner.ranges", "", "t") == 0

    on_a_node(scenario)
