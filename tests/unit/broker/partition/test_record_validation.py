# SPDX-License-Identifier: Apache-2.0
"""`record.validation` on a whole node: which batches each value refuses, alone and in a run of requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace.broker.partition import record_validation, topic_settings
from headrace.wire.batch import HEADER_SIZE, write_crc
from headrace.wire.compression import Codec, compress, decompress
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
