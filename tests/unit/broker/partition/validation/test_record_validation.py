# SPDX-License-Identifier: Apache-2.0
"""`record.validation` on a whole node: which batches each value refuses, alone and in a run of requests."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import cramjam
import pytest

from headrace.broker.partition.settings import topic_settings
from headrace.broker.partition.validation import record_validation
from headrace.broker.partition.validation.refused_batches import LINES_PER_PERIOD, PERIOD_S
from headrace.testing.simworld import WorkProfile
from headrace.wire.batch import HEADER_SIZE, write_crc
from headrace.wire.compression import MOST_SNAPPY_BLOCKS, Codec, compress, decompress
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import PRODUCE, SimBroker, on_a_node

REFUSED = (ErrorCode.invalid_record, -1)
WRITTEN = (0, 0)


def with_body(fields: dict[str, Any], change: Callable[[bytes], bytes]) -> dict[str, Any]:
    """The same request, the records of its batch changed and the header made to fit."""
    part = fields["topic_data"][0]["partition_data"][0]
    batch = bytearray(part["records"][:HEADER_SIZE] + change(part["records"][HEADER_SIZE:]))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(memoryview(batch), 0, len(batch))
    part["records"] = bytes(batch)
    return fields


def damaged(body: bytes, codec: int = 0) -> bytes:
    """The last record announces a header that is not there."""
    return compress(codec, bytes(decompress(codec, body))[:-1] + b"\x02")


async def send(node: SimBroker, fields: dict[str, Any]) -> tuple[int, int]:
    connection = await node.connect()
    result = (await connection.send(PRODUCE, fields, version=8)).responses[0].partition_responses[0]
    return int(result.error_code), result.base_offset


@pytest.mark.parametrize(
    ("configs", "plain", "packed"),
    [
        pytest.param({}, REFUSED, REFUSED, id="default"),
        pytest.param({"record_validation": "auto"}, REFUSED, REFUSED, id="auto"),
        pytest.param({"record_validation": "header"}, WRITTEN, WRITTEN, id="header"),
        pytest.param({"record_validation": "full"}, REFUSED, REFUSED, id="full"),
        pytest.param({"cleanup_policy": "compact"}, REFUSED, REFUSED, id="compacted"),
        pytest.param({"compression_type": "lz4"}, REFUSED, REFUSED, id="compressed by the broker"),
    ],
)
def test_a_malformed_record_is_refused_as_the_topic_says(
    configs: dict[str, str], plain: tuple[int, int], packed: tuple[int, int]
) -> None:
    async def scenario(node: SimBroker) -> None:
        for name, codec, expected in (("plain", Codec.NONE, plain), ("packed", Codec.LZ4, packed)):
            await node.create(name, **configs)
            fields = node.produce_fields(b"one", b"two", name=name, codec=codec)
            assert await send(node, with_body(fields, partial(damaged, codec=codec))) == expected
            assert node.partition(name).log_end_offset == (2 if expected == WRITTEN else 0)

    on_a_node(scenario)


def test_without_kernels_auto_looks_at_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_settings, "WALK", None)

    async def scenario(node: SimBroker) -> None:
        await node.create()
        assert await send(node, with_body(node.produce_fields(b"one"), damaged)) == WRITTEN

    on_a_node(scenario)


def test_in_a_run_of_requests_only_the_malformed_one_is_refused() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(headrace_flush="os")
        connection = await node.connect()
        requests = [node.produce_fields(b"value", acks=1) for _ in range(8)]
        requests[3] = node.produce_fields(b"value", acks=1, codec=Codec.LZ4)
        with_body(requests[5], damaged)
        replies = [connection.send(PRODUCE, fields, version=8) for fields in requests]
        results = [(await reply).responses[0].partition_responses[0] for reply in replies]
        refused = ErrorCode.invalid_record
        assert [result.error_code for result in results] == [0, 0, 0, 0, 0, refused, 0, 0]
        assert [result.base_offset for result in results] == [0, 1, 2, 3, 4, -1, 5, 6]

    on_a_node(scenario)


@pytest.mark.parametrize("sound", [True, False])
def test_large_batches_are_checked_in_a_thread(sound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    check = record_validation.check_by_kernels

    def check_by_kernels(wanted: Any, batch: bytearray, header: Any) -> Any:
        checked.append(len(batch))
        return check(wanted, batch, header)

    monkeypatch.setattr(record_validation, "check_by_kernels", check_by_kernels)

    async def scenario(node: SimBroker) -> None:
        await node.create(max_message_bytes="3000000")
        at_once = node.produce_fields(bytes(record_validation.AT_ONCE.bytes - 200))
        assert await send(node, at_once) == (0, 0)
        assert checked == []
        large = node.produce_fields(bytes(record_validation.AT_ONCE.bytes))
        expected = (0, 1) if sound else REFUSED
        assert await send(node, large if sound else with_body(large, damaged)) == expected
        assert len(checked) == 1

    on_a_node(scenario)


# Where compressed batches are checked


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that went to a thread."""
    sizes: list[int] = []
    check = record_validation.check_by_kernels

    def check_by_kernels(wanted: Any, batch: bytearray, header: Any) -> Any:
        sizes.append(len(batch))
        return check(wanted, batch, header)

    monkeypatch.setattr(record_validation, "check_by_kernels", check_by_kernels)
    return sizes


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_only_small_compressed_batches_are_checked_on_the_event_loop(
    codec: Codec, in_threads: list[int]
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        words = b"the stream turns the wheel; " * 500
        assert await send(node, node.produce_fields(words, codec=codec)) == (0, 0)
        assert in_threads == []
        large = node.produce_fields(words * 30, codec=codec)
        assert await send(node, large) == (0, 1)
        assert await send(node, with_body(large, partial(damaged, codec=codec))) == REFUSED
        assert len(in_threads) == 2

    on_a_node(scenario)


def test_one_turn_of_the_event_loop_expands_so_much_and_leaves_the_rest_to_threads(
    in_threads: list[int],
) -> None:
    """A request of some kilobytes for 64 partitions, each batch of which expands to 100 KiB."""

    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=64)
        connection = await node.connect()
        fields = node.produce_fields(bytes(100 << 10), codec=Codec.ZSTD)
        records = fields["topic_data"][0]["partition_data"][0]["records"]
        parts = [{"index": index, "records": records} for index in range(64)]
        fields["topic_data"][0]["partition_data"] = parts
        for _ in range(2):
            reply = await connection.send(PRODUCE, fields, version=8)
            assert {int(part.error_code) for part in reply.responses[0].partition_responses} == {0}
        at_once = 2 * 64 - len(in_threads)
        assert 2 <= at_once <= 2 * (record_validation.EXPANDED_PER_TURN // (100 << 10) + 1)

    on_a_node(scenario)


def test_a_small_batch_does_not_overtake_a_large_one_of_its_connection(in_threads: list[int]) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        connection = await node.connect()
        values = [b"first" * 100_000, b"second", b"third" * 100_000, b"fourth"]
        requests = [node.produce_fields(value, codec=Codec.LZ4, acks=1) for value in values]
        replies = [connection.send(PRODUCE, fields, version=8) for fields in requests]
        results = [(await reply).responses[0].partition_responses[0] for reply in replies]
        assert [result.base_offset for result in results] == [0, 1, 2, 3]
        assert len(in_threads) == 2

    on_a_node(scenario)


def test_a_client_that_is_gone_when_its_batch_is_checked_leaves_nothing_behind(in_threads: list[int]) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        metrics = node.broker.metrics
        node.simulation.machine("node").work = WorkProfile(least_ms=500, most_ms=600, slow_probability=0)
        connection = await node.connect()
        connection.send(PRODUCE, node.produce_fields(bytes(500_000), codec=Codec.LZ4), version=8)
        await asyncio.sleep(0.1)
        assert metrics.frames_bytes > 0
        await connection.close()
        await asyncio.sleep(5)
        assert len(in_threads) == 1
        assert node.partition().log_end_offset == 1
        assert metrics.frames_bytes == 0

    on_a_node(scenario)


def test_a_node_that_stops_answers_the_batch_it_is_checking(in_threads: list[int]) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        node.simulation.machine("node").work = WorkProfile(least_ms=500, most_ms=600, slow_probability=0)
        connection = await node.connect()
        fields = node.produce_fields(bytes(500_000), codec=Codec.LZ4, acks=1)
        reply = connection.send(PRODUCE, fields, version=8)
        await asyncio.sleep(0.1)
        await node.stop()
        answered = not reply.exception()
        await node.start()
        assert node.partition().log_end_offset == int(answered)
        assert len(in_threads) == 1

    on_a_node(scenario)


def test_snappy_in_very_many_chunks_is_checked_in_the_worker_process(in_threads: list[int]) -> None:
    """Each chunk costs time in Python, which a thread would take from the event loop."""

    def chopped(body: bytes) -> bytes:
        header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        chunks = [bytes(cramjam.snappy.compress_raw(body[place : place + 1])) for place in range(len(body))]
        return header + b"".join(struct.pack(">i", len(chunk)) + chunk for chunk in chunks)

    async def scenario(node: SimBroker) -> None:
        await node.create()
        fields = node.produce_fields(bytes(MOST_SNAPPY_BLOCKS), codec=Codec.SNAPPY)
        many = with_body(fields, lambda body: chopped(bytes(decompress(Codec.SNAPPY, body))))
        assert await send(node, many) == WRITTEN
        assert len(in_threads) == 1

    on_a_node(scenario)


# What the operator is told


def test_the_log_and_a_counter_name_what_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for size in (100, 500_000):
            fields = node.produce_fields(bytes(size), codec=Codec.LZ4)
            assert await send(node, with_body(fields, lambda body: body[:-8])) == REFUSED
        assert await send(node, with_body(node.produce_fields(b"one"), damaged)) == REFUSED
        counted = node.broker.metrics.topic("t").refused_batches
        assert counted == {("lz4", ErrorCode.invalid_record): 2, ("none", ErrorCode.invalid_record): 1}

    on_a_node(scenario)
    first, second, third = (line for line in caplog.messages if line.startswith("refused a batch"))
    for line in (first, second):
        assert "for t-0 from client 'test' at " in line
        assert ", lz4, " in line
        assert "INVALID_RECORD: compressed data is damaged: " in line
    assert "INVALID_RECORD: record 0: its headers are malformed" in third


def test_a_client_that_repeats_a_damaged_batch_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        fields = with_body(node.produce_fields(b"one"), damaged)
        for _ in range(50):
            assert await send(node, fields) == REFUSED
        assert len([line for line in caplog.messages if line.startswith("refused")]) == LINES_PER_PERIOD
        await asyncio.sleep(PERIOD_S)
        assert await send(node, fields) == REFUSED
        assert caplog.messages[-2] == f"refused {50 - LINES_PER_PERIOD} more batches since"

    on_a_node(scenario)
