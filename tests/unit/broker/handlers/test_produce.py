# SPDX-License-Identifier: Apache-2.0
"""Produce on a whole node: acknowledgement, order, the long way through the worker, and disks that fail."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import fields
from typing import Any

import pytest

from headrace.broker.partition.partition import Partition
from headrace.broker.partition.validation import record_validation as deep_check
from headrace.testing.simworld import WorkProfile
from headrace.types import EVENTS_TOPIC
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.broker.simulated_node import PRODUCE, SimBroker, on_a_node
from tests.harness.simulation.clients import SimConnection

COMPACTED = {"cleanup_policy": "compact"}
MANY = [b"v%d" % number for number in range(2000)]
"""More records than are checked on the loop, where they are checked one by one."""


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long way begins as early as it does without kernels."""
    monkeypatch.setattr(deep_check, "AT_ONCE", deep_check.ONE_BY_ONE)


def result_of(reply: Any) -> Any:
    return reply.responses[0].partition_responses[0]


def send(connection: SimConnection, fields: dict[str, Any]) -> asyncio.Future[Any]:
    return connection.send(PRODUCE, fields, version=8)


# Acknowledgement


def test_acks_all_is_answered_when_the_batch_is_on_disk_and_acks_one_before() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"first")
        node.simulation.machine("node").work = WorkProfile(least_ms=500, most_ms=600, slow_probability=0)
        assert await node.produce(b"one", acks=1) == (0, 1)
        assert node.partition().flushed_offset == 1
        assert await node.produce(b"all", acks=-1) == (0, 2)
        assert node.partition().flushed_offset == 3

    on_a_node(scenario)


def test_pipelined_produces_are_answered_in_order_by_one_flush_or_a_few() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        connection = await node.connect()
        replies = [send(connection, node.produce_fields(b"%d" % n)) for n in range(50)]
        assert [result_of(await reply).base_offset for reply in replies] == list(range(50))

    on_a_node(scenario)


def test_a_disk_that_takes_longer_than_the_producer_waits_is_a_time_out() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"first")
        node.simulation.machine("node").work = WorkProfile(least_ms=9000, most_ms=9001, slow_probability=0)
        connection = await node.connect()
        reply = await send(connection, {**node.produce_fields(b"slow"), "timeout": 1000})
        assert result_of(reply).error_code == ErrorCode.request_timed_out

    on_a_node(scenario)


def test_requests_appended_together_time_out_each_with_its_own_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    append_run = Partition.append_run

    def watched(partition: Partition, view: memoryview, frames: Any, on_ack: Any) -> Any:
        appended = append_run(partition, view, frames, on_ack)
        together.extend(appended.base_offsets if appended is not None else ())
        return appended

    async def scenario(node: SimBroker) -> None:
        await node.create()
        connection = await node.connect()
        wanted = {**node.produce_fields(b"first"), "timeout": 1000}
        for _ in range(2):
            assert result_of(await send(connection, wanted)).error_code == ErrorCode.none
        node.simulation.machine("node").work = WorkProfile(least_ms=9000, most_ms=9001, slow_probability=0)
        replies = [send(connection, wanted) for _ in range(20)]
        codes = [result_of(await reply).error_code for reply in replies]
        assert codes == [ErrorCode.request_timed_out] * 20
        assert together
        assert node.partition().log_end_offset == 22

    monkeypatch.setattr(Partition, "append_run", watched)
    on_a_node(scenario)


def test_repeated_requests_to_an_internal_topic_are_all_refused() -> None:
    async def scenario(node: SimBroker) -> None:
        assert await node.create(EVENTS_TOPIC) == ErrorCode.none
        connection = await node.connect()
        wanted = node.produce_fields(b"forged", name=EVENTS_TOPIC)
        for _ in range(5):
            refused = result_of(await send(connection, wanted))
            assert refused.error_code == ErrorCode.invalid_topic_exception
        assert node.partition(EVENTS_TOPIC).log_end_offset == 0

    on_a_node(scenario)


def test_a_waiting_producer_is_answered_when_its_topic_is_deleted() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"first")
        node.simulation.machine("node").work = WorkProfile(least_ms=3000, most_ms=3001, slow_probability=0)
        connection = await node.connect()
        reply = send(connection, node.produce_fields(b"second"))
        await asyncio.sleep(0.5)
        await node.delete()
        assert result_of(await reply).error_code == ErrorCode.not_leader_or_follower
        await asyncio.sleep(20)
        assert node.broker.failure is None

    on_a_node(scenario)


def test_a_weaker_flush_policy_ends_the_wait_for_the_disk() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"first")
        node.simulation.machine("node").work = WorkProfile(least_ms=9000, most_ms=9001, slow_probability=0)
        connection = await node.connect()
        reply = send(connection, node.produce_fields(b"second"))
        await asyncio.sleep(0.5)
        node.partition().reconfigure(_with_flush(node, "os"))
        assert result_of(await reply).error_code == 0
        assert node.partition().high_watermark == 2

    on_a_node(scenario)


def _with_flush(node: SimBroker, flush: str) -> Any:
    settings = node.partition().settings
    values = {field.name: getattr(settings, field.name) for field in fields(settings) if field.init}
    return type(settings)(**{**values, "flush": flush})


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_senseless_acks_are_refused_and_nothing_is_written(acks: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        assert await node.produce(b"x", acks=acks) == (ErrorCode.invalid_required_acks, -1)
        assert node.partition().log_end_offset == 0

    on_a_node(scenario)


def test_an_error_with_acks_0_closes_the_connection() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        connection = await node.connect()
        connection.send_without_reply(PRODUCE, node.produce_fields(b"x", acks=0, name="none"), version=8)
        await asyncio.sleep(1)
        assert not connection.is_open

    on_a_node(scenario)


# The long way


def test_a_batch_of_many_records_is_checked_in_the_worker_and_written() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        assert await node.produce(*MANY) == (0, 0)
        assert await node.produce(*MANY, codec=4) == (0, 2000)
        assert (await node.values())[:2] == [b"v0", b"v1"]
        await asyncio.sleep(1)  # for the last connection to end
        assert node.broker.metrics.frames_bytes == 0

    on_a_node(scenario)


def test_requests_behind_a_batch_in_the_worker_keep_their_order() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        connection = await node.connect()
        replies = [
            send(connection, node.produce_fields(*values)) for values in ([b"a"], MANY, [b"b"], MANY, [b"c"])
        ]
        offsets = [result_of(await reply).base_offset for reply in replies]
        assert offsets == [0, 1, 2001, 2002, 4002]

    on_a_node(scenario)


@pytest.mark.parametrize("values", [MANY, [b"few"]])
def test_a_record_without_a_key_is_refused_by_a_compacted_topic_on_both_ways(values: list[bytes]) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        assert await node.produce(*values, key=None) == (ErrorCode.invalid_record, -1)
        assert node.partition().log_end_offset == 0

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("count", "codec", "at_once"),
    [(20, 0, deep_check.ONE_BY_ONE), (2000, 4, deep_check.ONE_BY_ONE), (2000, 0, deep_check.BY_KERNELS)],
)
def test_a_compacted_topic_names_the_records_without_a_key_on_both_ways(
    count: int, codec: int, at_once: deep_check.AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their senders are told apart from those whose records were only in the same batch."""
    monkeypatch.setattr(deep_check, "AT_ONCE", at_once)

    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        fields = node.produce_fields(b"v")
        records = [Record(place, 0, None if place % 10 == 3 else b"k", b"v") for place in range(count)]
        batch = bytes(build_batch(records, codec=codec))
        fields["topic_data"][0]["partition_data"][0]["records"] = batch
        refused = result_of(await send(await node.connect(), fields))
        assert refused.error_code == ErrorCode.invalid_record
        assert refused.error_message.endswith(f"{count // 10} of {count} have none")
        assert [each.batch_index for each in refused.record_errors] == list(range(3, count, 10))
        assert node.partition().log_end_offset == 0

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("values", "codec", "goes"),
    [
        pytest.param(MANY, 0, True, id="many records"),
        pytest.param([bytes(70_000)], 0, True, id="many bytes"),
        pytest.param([bytes(700_000)], 1, True, id="many bytes once expanded"),
        pytest.param([bytes(1000)] * 10, 3, False, id="a usual batch"),
    ],
)
def test_expensive_validation_runs_in_a_thread(
    values: list[bytes], codec: int, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    check = deep_check.check_by_kernels

    def check_by_kernels(wanted: Any, batch: bytearray, header: Any) -> Any:
        checked.append(len(batch))
        return check(wanted, batch, header)

    monkeypatch.setattr(deep_check, "check_by_kernels", check_by_kernels)

    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        assert await node.produce(*values, codec=codec) == (0, 0)
        assert bool(checked) is goes

    on_a_node(scenario)


def test_a_bomb_is_refused_and_nothing_is_written() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        assert await node.produce(bytes(20 << 20), codec=4) == (ErrorCode.invalid_record, -1)
        assert node.partition().log_end_offset == 0

    on_a_node(scenario)


def test_a_topic_with_a_codec_of_its_own_recompresses_large_batches_too() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(compression_type="zstd")
        assert await node.produce(*MANY, codec=3) == (0, 0)
        assert await node.produce(b"small", codec=3) == (0, 2000)
        assert (await node.values(2000)) == [b"small"]
        assert len(await node.values()) == 2001

    on_a_node(scenario)


def test_a_batch_that_is_too_large_once_recompressed_is_refused() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(compression_type="uncompressed", max_message_bytes="10000")
        code, _ = await node.produce(bytes(50_000), codec=4)
        assert code == ErrorCode.message_too_large

    on_a_node(scenario)


def test_a_topic_deleted_during_validation_is_an_error() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        node.simulation.machine("node").work = WorkProfile(least_ms=500, most_ms=600, slow_probability=0)
        connection = await node.connect()
        reply = send(connection, node.produce_fields(*MANY))
        await asyncio.sleep(0.1)
        await node.delete()
        assert result_of(await reply).error_code == ErrorCode.not_leader_or_follower

    on_a_node(scenario)


def test_acks_zero_through_a_thread_closes_the_connection_when_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(**COMPACTED)
        connection = await node.connect()
        refused = node.produce_fields(*MANY, acks=0, key=None)
        connection.send_without_reply(PRODUCE, refused, version=8)
        await asyncio.sleep(1)
        assert not connection.is_open

    on_a_node(scenario)
    assert not any(record.exc_info for record in caplog.records)


# Disks (R24)


def test_a_failed_write_stops_the_node_and_answers_waiting_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        await node.produce(b"before")
        node.simulation.machine("node").work = WorkProfile(least_ms=900, most_ms=901, slow_probability=0)
        connection = await node.connect()
        waits = send(connection, node.produce_fields(b"waits", index=1))
        await asyncio.sleep(0.1)
        node.files.errors["pwritev:.log"] = OSError(errno.EIO, "Input/output error")
        code, _ = await node.produce(b"fails")
        assert code == ErrorCode.kafka_storage_error
        assert result_of(await waits).error_code == ErrorCode.kafka_storage_error
        assert node.broker.stop_wanted.is_set()
        assert node.broker.failure is not None
        node.files.errors.clear()
        await node.stop()

    on_a_node(scenario)
    critical = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(critical) == 1
    assert "check it, then start again" in critical[0]


def test_a_failed_fsync_takes_the_node_down_and_acknowledges_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"before")
        node.files.errors["fsync:.log"] = OSError(errno.EIO, "Input/output error")
        code, _ = await node.produce(b"lost")
        assert code == ErrorCode.kafka_storage_error
        assert node.broker.failure is not None
        node.files.errors.clear()
        await node.stop()
        await node.kill()
        await node.start()
        assert (await node.values())[0] == b"before"

    on_a_node(scenario)
    assert len([record for record in caplog.records if record.levelname == "CRITICAL"]) == 1


def test_a_full_disk_refuses_and_goes_on_without_a_restart_once_there_is_room() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"before")
        node.files.capacity = node.files.used_bytes() + 50
        code, _ = await node.produce(b"x" * 500)
        assert code == ErrorCode.kafka_storage_error
        assert await node.values() == [b"before"]
        node.files.capacity = 1 << 40
        await asyncio.sleep(3)
        assert await node.produce(b"after") == (0, 1)
        assert node.broker.failure is None

    on_a_node(scenario)


def test_a_disk_with_no_room_for_the_first_epoch_is_full_and_not_broken() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        node.files.errors["create:.tmp"] = OSError(errno.ENOSPC, "No space left on device")
        assert (await node.produce(b"x"))[0] == 0
        node.files.errors.clear()
        assert (await node.produce(b"y"))[0] == 0
        assert node.broker.failure is None

    on_a_node(scenario)
