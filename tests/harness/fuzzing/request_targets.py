# SPDX-License-Identifier: Apache-2.0
"""Targets: what reads the bytes of a client's request, and the readers that must agree with each other.

Only DecodeError may come out. Read next: catalog.py, headrace/wire/messages.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, RequestHeader, read_request_header
from headrace.wire.framing import FrameReceiver, FrameSplitter
from headrace.wire.messages import decode_reply, decode_request, encode_reply
from headrace.wire.requests.fetch import read_fetch
from headrace.wire.requests.offset_commit_codec import OffsetCommitCodec
from headrace.wire.requests.produce import read_produce
from headrace.wire.requests.produce_run import ProduceShape
from headrace.wire.requests.read_request import READERS, Reader
from headrace.wire.requests.repeated_codec import RepeatedCodec
from headrace.wire.requests.replica_fetch import read_replica_fetch_reply
from tests.harness.fuzzing.frames import sound_request
from tests.harness.fuzzing.hostile import EVERY_VERSION, hostile_request
from tests.harness.fuzzing.target import Target

_LENGTH_BYTES = 4


def _whole(read: Reader) -> Callable[[memoryview, RequestHeader], object]:
    return lambda view, header: read(header.api_version, view, header.body_position, len(view))


_OWN_READERS: dict[int, Callable[[memoryview, RequestHeader], object]] = {
    ApiKey.PRODUCE: lambda view, header: read_produce(
        view, header.body_position, len(view), header.api_version
    ),
    ApiKey.FETCH: lambda view, header: read_fetch(view, header.body_position, len(view), header.api_version),
    **{key: _whole(read) for key, read in READERS.items()},
}
_REPEATED = (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
_MAX_FRAME = 1 << 20
_LARGE = 64


def read_request(data: bytes) -> None:
    """A frame without its length, read by every reader of its API."""
    view = memoryview(data)
    with suppress(DecodeError):
        header = read_request_header(view, 0, len(view))
        if header.api_key in _OWN_READERS and header.api_version in APIS[header.api_key].accepted:
            with suppress(DecodeError):
                _OWN_READERS[header.api_key](view, header)
        decode_request(header.api_key, header.api_version, view, header.body_position, len(view))


def sound_requests() -> Sequence[bytes]:
    """Of every API and version one plain request and two with hostile values."""
    chance = Random(1)
    plain = [sound_request(*case)[_LENGTH_BYTES:] for case in EVERY_VERSION]
    hostile = [hostile_request(*case, chance)[_LENGTH_BYTES:] for case in EVERY_VERSION for _ in range(2)]
    return plain + hostile


def read_reply(data: bytes) -> None:
    """Two bytes choose API and version; a reply to a client of ours follows."""
    if len(data) < 2:
        return
    key, version = EVERY_VERSION[int.from_bytes(data[:2], "big") % len(EVERY_VERSION)]
    with suppress(DecodeError):
        decode_reply(key, version, memoryview(data)[2:])
    if key == ApiKey.FETCH:
        with suppress(DecodeError):
            read_replica_fetch_reply(memoryview(data)[2:])


def sound_replies() -> Sequence[bytes]:
    return [
        place.to_bytes(2, "big") + encode_reply(key, version, 1, {})[_LENGTH_BYTES:]
        for place, (key, version) in enumerate(EVERY_VERSION)
    ]


def split_frames(data: bytes) -> None:
    """Any bytes as a stream: in one piece, byte by byte and into a socket's buffer give the same frames."""
    whole = _frames(data, FrameSplitter(max_frame=_MAX_FRAME).feed)
    splitter = FrameSplitter(max_frame=_MAX_FRAME)
    assert _frames_of_bytes(data, splitter.feed) == whole
    receiver = FrameReceiver(max_frame=_MAX_FRAME, scratch=128, large=_LARGE)
    assert _frames_of_bytes(data, lambda piece: _receive(receiver, piece)) == whole


def _frames(data: bytes, feed: Callable[[bytes], Sequence[bytes]]) -> list[bytes] | None:
    """None when the stream is refused somewhere."""
    try:
        return [bytes(frame) for frame in feed(data)]
    except DecodeError:
        return None


def _frames_of_bytes(data: bytes, feed: Callable[[bytes], Sequence[bytes]]) -> list[bytes] | None:
    found: list[bytes] = []
    for place in range(len(data)):
        frames = _frames(data[place : place + 1], feed)
        if frames is None:
            return None
        found += frames
    return found


def _receive(receiver: FrameReceiver, piece: bytes) -> list[bytes]:
    room = receiver.room()
    room[: len(piece)] = piece
    return [bytes(frame) for frame in receiver.arrived(len(piece))]


def sound_streams() -> Sequence[bytes]:
    frames = [sound_request(*case) for case in EVERY_VERSION[:40]]
    return [b"".join(frames[place : place + 3]) for place in range(len(frames))]


def read_repeated(data: bytes) -> None:
    """A stream of requests: readers that know the last request agree with those that do not."""
    with suppress(DecodeError):
        codecs: dict[int, Any] = {key: RepeatedCodec(key) for key in _REPEATED}
        codecs[ApiKey.OFFSET_COMMIT] = OffsetCommitCodec()
        for frame in FrameSplitter(max_frame=_MAX_FRAME).feed(data):
            header = read_request_header(memoryview(frame), 0, len(frame))
            if header.api_key in codecs and header.api_version in APIS[header.api_key].accepted:
                _check_repeated(codecs[header.api_key], header, memoryview(frame))


def _check_repeated(codec: Any, header: RequestHeader, view: memoryview) -> None:
    known = codec.recognise(header.api_version, view, 0, len(view))
    if known is None:
        codec.decode(header, view, 0, len(view))
        return
    read = _OWN_READERS.get(header.api_key)
    if read is None:
        body = header.body_position
        assert known == decode_request(header.api_key, header.api_version, view, body, len(view))
    else:
        assert known == read(view, header)


def read_produce_run(data: bytes) -> None:
    """A stream of Produce requests: the shape of one finds in the next what the reader finds there."""
    with suppress(DecodeError):
        frames = FrameSplitter(max_frame=_MAX_FRAME).feed(data)
        view, start = memoryview(data), _LENGTH_BYTES
        for frame, following in pairwise(frames):
            end = start + len(frame)
            shape = _shape(view, start, end)
            if shape is not None:
                _check_run(shape, view, end, end + _LENGTH_BYTES + len(following))
            start = end + _LENGTH_BYTES


def _shape(view: memoryview, start: int, end: int) -> ProduceShape | None:
    header = read_request_header(view, start, end)
    if header.api_key != ApiKey.PRODUCE or header.api_version not in APIS[ApiKey.PRODUCE].accepted:
        return None
    request = read_produce(view, header.body_position, end, header.api_version)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    return ProduceShape.of(view, start, end, header.api_version, request.topics[0].partitions[0])


def _check_run(shape: ProduceShape, view: memoryview, position: int, end: int) -> None:
    for found in shape.find(view, position, end) or ():
        header = read_request_header(view, position + _LENGTH_BYTES, end)
        request = read_produce(view, header.body_position, end, header.api_version)
        (part,) = request.topics[0].partitions
        assert (found.correlation_id, found.next_frame) == (header.correlation_id, end)
        assert (found.start, found.end) == (part.start, part.end)


def _repeated_streams(keys: Sequence[int]) -> Sequence[bytes]:
    cases = [case for case in EVERY_VERSION if case[0] in keys]
    chance = Random(2)
    hostile = [hostile_request(*case, chance) * 3 for case in cases for _ in range(3)]
    return [sound_request(*case) * 3 for case in cases] + hostile


REQUEST_TARGETS = (
    Target(name="requests", run=read_request, sound=sound_requests),
    Target(name="replies", run=read_reply, sound=sound_replies),
    Target(name="framing", run=split_frames, sound=sound_streams),
    Target(
        name="repeated-requests",
        run=read_repeated,
        sound=lambda: _repeated_streams([*_REPEATED, ApiKey.OFFSET_COMMIT]),
    ),
    Target(name="produce-runs", run=read_produce_run, sound=lambda: _repeated_streams([ApiKey.PRODUCE])),
)
