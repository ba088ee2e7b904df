# SPDX-License-Identifier: Apache-2.0
"""Bytes that are not what they claim raise DecodeError and nothing else, and cost no memory (S1, T15)."""

from __future__ import annotations

import contextlib
import random
import resource
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.wire.api_table import APIS, read_request_header
from headrace.wire.messages import decode_reply, decode_request, encode_reply
from headrace.wire.request_bounds import max_items
from headrace.wire.requests.fetch import read_fetch
from headrace.wire.requests.produce import read_produce
from tests.property.wire.kio_oracle import EVERY_VERSION, QUICK, class_of, encode, filled, name_of

Reader = Callable[[bytes], object]
MEMORY_BOUND = 1 << 20

every_version = pytest.mark.parametrize("case", EVERY_VERSION, ids=name_of)


def request_readers(case: tuple[int, int]) -> list[Reader]:
    """Everything that reads the body of this request."""
    key, version = case
    readers: list[Reader] = [lambda body: decode_request(key, version, memoryview(body), 0, len(body))]
    if key == 0:
        readers.append(lambda body: read_produce(memoryview(body), 0, len(body), version))
    if key == 1:
        readers.append(lambda body: read_fetch(memoryview(body), 0, len(body), version))
    return readers


def may_refuse(read: Reader, body: bytes) -> None:
    with contextlib.suppress(DecodeError):
        read(body)


@every_version
def test_random_bytes(case: tuple[int, int]) -> None:
    readers = request_readers(case)

    @settings(QUICK, max_examples=50)
    @given(st.binary(max_size=80))
    def check(body: bytes) -> None:
        for read in readers:
            may_refuse(read, body)

    check()


@every_version
def test_a_body_cut_off_at_any_byte_is_refused(case: tuple[int, int]) -> None:
    body = encode(filled(class_of(case, "request")))
    for read in request_readers(case):
        for size in range(len(body)):
            with pytest.raises(DecodeError):
                read(body[:size])


@every_version
def test_a_body_is_not_read_past_its_end(case: tuple[int, int]) -> None:
    """The next frame lies right behind in the same buffer."""
    key, version = case
    body = encode(filled(class_of(case, "request")))
    for end in range(len(body)):
        with pytest.raises(DecodeError):
            decode_request(key, version, memoryview(body), 0, end)


def mutations(body: bytes, seed: int) -> Iterator[bytes]:
    """The body with counts and lengths that lie: at each place a giant or a negative number."""
    lies = (
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -2),
        struct.pack(">h", 2**15 - 1),
        b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff",
        b"\xfe\xff\x7f",
    )
    for position in range(len(body)):
        for lie in lies:
            yield body[:position] + lie + body[position + len(lie) :]
    source = random.Random(seed)
    for _ in range(200):
        changed = bytearray(body)
        for _ in range(source.randint(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        yield bytes(changed)


def check_memory(reads: Iterator[tuple[Reader, bytes]]) -> None:
    tracemalloc.start()
    try:
        for read, body in reads:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            may_refuse(read, body)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MEMORY_BOUND, body
    finally:
        tracemalloc.stop()


@every_version
def test_lying_counts_and_lengths_allocate_nothing(case: tuple[int, int]) -> None:
    body = encode(filled(class_of(case, "request")))
    if not body:
        return
    readers = request_readers(case)
    check_memory((read, changed) for changed in mutations(body, case[0]) for read in readers)


@every_version
def test_lying_replies_do_no_harm_to_the_client(case: tuple[int, int]) -> None:
    frame = encode_reply(*case, 7, {})[4:]
    check_memory(
        (lambda body: decode_reply(*case, memoryview(body)), changed) for changed in mutations(frame, case[0])
    )
    for size in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_reply(*case, memoryview(frame[:size]))


def test_a_frame_full_of_tiny_items_is_refused_and_one_at_the_bound_is_not() -> None:
    """Two bytes a topic on the wire, a hundred in memory."""
    for topics in (max_items(3), max_items(3) + 1):
        body = struct.pack(">i", topics) + bytes(2 * topics)
        if topics <= max_items(3):
            assert len(decode_request(3, 1, memoryview(body), 0, len(body)).topics) == topics
            continue
        with pytest.raises(DecodeError, match=f"metadata request.*too many array items: {max_items(3)}"):
            decode_request(3, 1, memoryview(body), 0, len(body))


def test_versions_that_are_not_served_are_refused() -> None:
    for key, version in ((0, 2), (3, 14), (3, -1), (9999, 0)):
        with pytest.raises(DecodeError, match=f"API {key} version {version}"):
            decode_request(key, version, memoryview(bytes(50)), 0, 50)


@settings(QUICK, max_examples=300)
@given(st.binary(max_size=60))
def test_random_request_headers(data: bytes) -> None:
    may_refuse(lambda body: read_request_header(memoryview(body), 0, len(body)), data)


@pytest.mark.parametrize("key", [*APIS, 9999, -1])
def test_request_headers_cut_off_at_any_byte(key: int) -> None:
    version = APIS[key].max_version if key in APIS else 0
    header = struct.pack(">hhih", key, version, 5, 6) + b"client"
    if key in APIS and version >= APIS[key].flexible_from:
        header += b"\1\5\3abc"
    read_request_header(memoryview(header), 0, len(header))
    for size in range(len(header)):
        with pytest.raises(DecodeError):
            read_request_header(memoryview(header), 0, size)


@pytest.mark.soak
def test_a_million_damaged_frames_leave_the_process_as_it_was() -> None:
    """T15, in process: every API and version; resident memory grows by no more than 64 MiB."""
    bodies = [(case, encode(filled(class_of(case, "request")))) for case in EVERY_VERSION]
    readers = {case: request_readers(case) for case, _ in bodies}
    source = random.Random()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(1_000_000):
        case, body = bodies[number % len(bodies)]
        damaged = bytearray(body + source.randbytes(source.randrange(4)))
        for _ in range(source.randint(1, 6)):
            if damaged:
                damaged[source.randrange(len(damaged))] = source.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        del damaged[source.randrange(len(damaged) + 1) + len(damaged) // 2 :]
        for read in readers[case]:
            may_refuse(read, bytes(damaged))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before <= 64 << 10
