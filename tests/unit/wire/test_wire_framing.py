# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest

from headrace.errors import DecodeError
from headrace.wire.framing import FrameReceiver, FrameSplitter

FRAMES = [b"", b"a", b"hello", bytes(1000), b"\xff" * 70_000]


def stream() -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in FRAMES)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 1024, 100_000])
def test_frames_come_out_whole_whatever_the_chunks(chunk: int) -> None:
    splitter = FrameSplitter()
    data = stream()
    found = []
    for start in range(0, len(data), chunk):
        found += splitter.feed(data[start : start + chunk])
    assert found == FRAMES
    assert splitter.buffered == 0


def test_an_incomplete_frame_waits() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(stream()[:-1]) == FRAMES[:-1]
    assert splitter.buffered == 70_003
    assert splitter.feed(stream()[-1:]) == FRAMES[-1:]


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_negative_and_oversize_frames_are_refused_at_their_length(size: int) -> None:
    splitter = FrameSplitter(max_frame=100)
    with pytest.raises(DecodeError, match=str(size)):
        splitter.feed(struct.pack(">i", size))


def test_the_largest_frame_allowed_passes() -> None:
    assert FrameSplitter(max_frame=100).feed(struct.pack(">i", 100) + bytes(100)) == [bytes(100)]


@pytest.mark.parametrize("large", [1, 5, 900, 1000, 1001, 70_000, 1 << 20])
@pytest.mark.parametrize("chunk", [1, 3, 5, 64, 1024, 100_000])
def test_a_receiver_gives_the_same_frames_whatever_counts_as_large(chunk: int, large: int) -> None:
    receiver = FrameReceiver(scratch=128, large=large)
    data = stream() * 2
    found = []
    while data:
        room = receiver.room()
        size = min(len(room), chunk, len(data))
        room[:size] = data[:size]
        data = data[size:]
        found += receiver.arrived(size)
    assert found == FRAMES * 2


def test_a_receiver_refuses_oversize_frames_before_it_makes_room_for_them() -> None:
    receiver = FrameReceiver(max_frame=100, large=10)
    receiver.room()[:4] = struct.pack(">i", 101)
    with pytest.raises(DecodeError, match="101"):
        receiver.arrived(4)


def received(receiver: FrameReceiver, frame: bytes) -> list[bytes | memoryview]:
    data = struct.pack(">i", len(frame)) + frame
    found: list[bytes | memoryview] = []
    while data:
        room = receiver.room()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        found += receiver.arrived(size)
    return found


def test_the_memory_of_a_large_frame_is_reused_only_without_views_of_it() -> None:
    receiver = FrameReceiver(scratch=64, large=100)
    (first,) = received(receiver, b"a" * 1000)
    part = first[10:20]
    (second,) = received(receiver, b"b" * 1000)
    assert part == b"a" * 10
    memory = first.obj
    del first, part
    (third,) = received(receiver, b"c" * 990)
    assert third.obj is memory
    assert (second, third) == (b"b" * 1000, b"c" * 990)


def test_so_many_large_frames_may_be_looked_at_as_anyone_likes() -> None:
    receiver = FrameReceiver(scratch=64, large=100)
    frames = [received(receiver, b"%03d" % number * 100)[0] for number in range(50)]
    assert frames == [b"%03d" % number * 100 for number in range(50)]
