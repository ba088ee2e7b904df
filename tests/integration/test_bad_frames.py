# SPDX-License-Identifier: Apache-2.0
"""Bad input, frames: an error code or a closed connection; the node lives and others do not notice.

Each test runs against a live node with a well-behaved client measured beside it.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Iterator

import pytest

from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import Canary, RawClient, simple_batch
from tests.harness.waiting import wait_until

CLOSED_WITHIN_S = 5
MEMORY_ROOM = 64 << 20
API_VERSIONS, METADATA, CREATE_TOPICS = 18, 3, 19


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("frames")) as node:
        yield node


@pytest.fixture(scope="module")
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.bootstrap) as canary:
        yield canary
        canary.check()


@pytest.fixture(autouse=True)
def _nobody_else_notices(node: NodeProcess, canary: Canary) -> Iterator[None]:
    before, memory = canary.begin(), node.rss_bytes()
    yield
    canary.wait_for_rounds(20)
    canary.check(before)
    assert node.alive
    assert node.rss_bytes() - memory < MEMORY_ROOM


def header(api_key: int, version: int, correlation_id: int = 7) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1, 0x47455420], ids=str)
def test_frames_of_impossible_sizes_close_the_connection(node: NodeProcess, size: int) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(struct.pack(">i", size) + b"x" * 100)
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


@pytest.mark.parametrize("size", [1, 2, 7, 9])
def test_frames_too_short_for_a_header_close_the_connection(node: NodeProcess, size: int) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(framed(header(METADATA, 1)[:size]))
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_a_client_that_leaves_in_the_middle_of_a_frame_leaves_nothing_behind(node: NodeProcess) -> None:
    descriptors = node.descriptors()
    for _ in range(50):
        with RawClient(node.bootstrap) as client:
            client.send(struct.pack(">i", 1_000_000) + b"x" * 1000)
    wait_until(lambda: node.descriptors() <= descriptors, "all connections closed", timeout_s=CLOSED_WITHIN_S)


@pytest.mark.parametrize("api_key", [4, 5, 56, 999, -1, 2**15 - 1])
def test_unknown_apis_close_the_connection(node: NodeProcess, api_key: int) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(framed(header(api_key, 0) + b"\0" * 10))
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


@pytest.mark.parametrize("api_key", sorted(set(APIS) - {API_VERSIONS}))
def test_unknown_versions_close_the_connection(node: NodeProcess, api_key: int) -> None:
    for version in (APIS[api_key].max_version + 1, 2**15 - 1, -1):
        with RawClient(node.bootstrap) as client:
            client.send(framed(header(api_key, version) + b"\0" * 10))
            assert client.is_closed_by_node(CLOSED_WITHIN_S)


@pytest.mark.parametrize("version", [5, 99, 2**15 - 1])
def test_unknown_versions_of_api_versions_are_answered_in_version_0(node: NodeProcess, version: int) -> None:
    """Clients newer than the node find a version they share: error 35 with the range, and go on."""
    with RawClient(node.bootstrap) as client:
        client.send(framed(header(API_VERSIONS, version, 77) + b"\0\x05name\0"))
        frame = client.receive()
        assert frame is not None
        correlation_id, reply = decode_reply(API_VERSIONS, 0, memoryview(frame))
        assert correlation_id == 77
        assert reply.error_code is ErrorCode.unsupported_version
        (own,) = [api for api in reply.api_keys if api.api_key == API_VERSIONS]
        assert (own.min_version, own.max_version) == (0, APIS[API_VERSIONS].max_version)
        software = {"client_software_name": "test", "client_software_version": "1"}
        assert client.call(API_VERSIONS, 4, software).error_code is ErrorCode.none


def test_garbage_closes_the_connection(node: NodeProcess) -> None:
    source = random.Random(1)
    for _ in range(100):
        with RawClient(node.bootstrap) as client:
            body = source.randbytes(source.randint(1, 2000))
            client.send(framed(body))
            client.socket.shutdown(1)
            assert client.is_closed_by_node(CLOSED_WITHIN_S)


@pytest.mark.parametrize(
    "text", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" + b"\0" * 100]
)
def test_other_protocols_are_closed(node: NodeProcess, text: bytes) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(text)
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


@pytest.mark.parametrize("count", [2**31 - 1, 10_000_000, -2, -(2**31)])
def test_huge_array_counts_close_the_connection(node: NodeProcess, count: int) -> None:
    """S1: a count is held against the bytes that are left before anything is allocated."""
    bodies = [
        header(METADATA, 0 if count < 0 else 1) + struct.pack(">i", count),  # from 1 on negative is null
        header(CREATE_TOPICS, 2) + struct.pack(">i", count),
        header(0, 8) + struct.pack(">hhii", -1, 1, 1000, count),
        header(1, 11) + struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, -1) + struct.pack(">i", count),
        header(2, 1) + struct.pack(">ii", -1, count),
    ]
    for body in bodies:
        with RawClient(node.bootstrap) as client:
            client.send(framed(body))
            assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_huge_compact_counts_and_tagged_fields_close_the_connection(node: NodeProcess) -> None:
    flexible = struct.pack(">hhih", METADATA, 12, 7, -1) + b"\0"
    bodies = [
        flexible + b"\xff\xff\xff\xff\x0f",  # 4 billion topics
        flexible + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a varint that does not end in time
        flexible + b"\x01\x01\x01\xff\xff\xff\x0f",  # a tagged section of 30 million fields
        struct.pack(">hhih", METADATA, 12, 7, -1) + b"\xff\xff\xff\xff\x0f",  # the same in the header
    ]
    for body in bodies:
        with RawClient(node.bootstrap) as client:
            client.send(framed(body))
            assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_strings_longer_than_their_frame_close_the_connection(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(framed(header(METADATA, 1) + struct.pack(">ih", 1, 32767) + b"short"))
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_a_request_cut_at_every_byte_closes_the_connection(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as maker:
        whole = maker.produce_frame("canary", simple_batch(b"never"))[4:]
        end = maker.end_offset("canary")
    for size in range(10, len(whole)):
        with RawClient(node.bootstrap) as client:
            client.send(framed(whole[:size]))
            client.socket.shutdown(1)
            assert client.is_closed_by_node(CLOSED_WITHIN_S)
    with RawClient(node.bootstrap) as reader:
        assert b"never" not in reader.fetch("canary", end, max_bytes=10 << 20)


def test_requests_before_a_bad_one_are_answered(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        good = client.frame(METADATA, 1, {"topics": []})
        client.send(good + good + framed(header(999, 0)))
        assert client.receive() is not None
        assert client.receive() is not None
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_unfinished_large_frames_are_bounded_in_memory(node: NodeProcess) -> None:
    """Buffers grow as bytes arrive, not as lengths promise."""
    clients = [RawClient(node.bootstrap) for _ in range(50)]
    for client in clients:
        client.send(struct.pack(">i", 100 * 1024 * 1024) + os.urandom(10_000))
    time.sleep(0.5)  # memory is looked at after the time in which it could have grown
    for client in clients:
        client.socket.close()
