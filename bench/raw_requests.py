# SPDX-License-Identifier: Apache-2.0
"""Hand-packed requests of the raw client (Produce v9, Fetch v12, …) and how to read their replies.

One fixed version each, so that both brokers decode exactly the same bytes. Sockets: raw_client.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from headrace.wire.api_key import ApiKey

_CLIENT_ID = b"bench"
_NO_TAGS = b"\0"
_NULL_UUID = bytes(16)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _compact_string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


def _array(items: Sequence[bytes]) -> bytes:
    return _varint(len(items) + 1) + b"".join(items)


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 0) -> bytes:
    """A request with header version 2 (flexible)."""
    head = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID + _NO_TAGS
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_request(topic: str, batches: Mapping[int, bytes | bytearray], *, acks: int) -> bytes:
    """Produce v9 of one batch for each of the given partitions of one topic."""
    partitions = [
        struct.pack(">i", index) + _varint(len(batch) + 1) + bytes(batch) + _NO_TAGS
        for index, batch in batches.items()
    ]
    body = b"\0" + struct.pack(">hi", acks, 30_000)  # no transactional id
    body += _array([_compact_string(topic) + _array(partitions) + _NO_TAGS]) + _NO_TAGS
    return frame(ApiKey.PRODUCE, 9, body)


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    committed_only: bool = False,
) -> bytes:
    """Fetch v12 from one partition, without a session."""
    return fetch_partitions_request(
        topic,
        {partition: offset},
        max_bytes=max_bytes,
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
        committed_only=committed_only,
    )


def fetch_partitions_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_bytes: int = 1 << 20,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    committed_only: bool = False,
) -> bytes:
    """The same from several partitions, each at its offset."""
    wanted = [
        struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + _NO_TAGS
        for partition, offset in offsets.items()
    ]
    body = struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, committed_only, 0, -1)
    body += _array([_compact_string(topic) + _array(wanted) + _NO_TAGS])
    body += _array([]) + _compact_string("") + _NO_TAGS  # nothing forgotten, no rack
    return frame(ApiKey.FETCH, 12, body)


def metadata_request(topic: str) -> bytes:
    """Metadata v12 for one topic, which is not created when it is missing."""
    wanted = _NULL_UUID + _compact_string(topic) + _NO_TAGS
    return frame(ApiKey.METADATA, 12, _array([wanted]) + b"\0\0" + _NO_TAGS)


def all_metadata_request() -> bytes:
    """Metadata v12 for all topics."""
    return frame(ApiKey.METADATA, 12, b"\0" + b"\0\0" + _NO_TAGS)


def init_producer_id_request(transactional_id: str | None, *, timeout_ms: int = 60_000) -> bytes:
    """InitProducerId v4; without a transactional id for an idempotent producer."""
    name = b"\0" if transactional_id is None else _compact_string(transactional_id)
    return frame(ApiKey.INIT_PRODUCER_ID, 4, name + struct.pack(">iqh", timeout_ms, -1, -1) + _NO_TAGS)


_INDEX_AND_ERROR = struct.Struct(">ih")


class RawReplyError(Exception):
    """A broker refused what the benchmark sent: its figures would mean nothing."""


class ProduceReply:
    """Where a Produce v9 reply for one partition of `topic` keeps its error code and base offset."""

    def __init__(self, topic: str) -> None:
        # correlation id, tags, one topic, its name, one partition
        self._at = 4 + 1 + 1 + len(_compact_string(topic)) + 1
        self._topic = topic

    def check(self, reply: memoryview | bytes) -> None:
        _, error = _INDEX_AND_ERROR.unpack_from(reply, self._at)
        if error:
            raise RawReplyError(f"produce to {self._topic} was refused with error code {error}")

    def base_offset(self, reply: memoryview | bytes) -> int:
        (offset,) = struct.unpack_from(">q", reply, self._at + 6)
        return int(offset)


class FetchReply:
    """Where a Fetch v12 reply for one partition of `topic` keeps its error code."""

    def __init__(self, topic: str) -> None:
        # correlation id, tags, throttle, error, session, one topic, its name, one partition
        self._at = 4 + 1 + 4 + 2 + 4 + 1 + len(_compact_string(topic)) + 1
        self._topic = topic
        self.overhead = self._at + 64
        """More than the reply holds besides records."""

    def check(self, reply: memoryview | bytes) -> None:
        (top_level,) = struct.unpack_from(">h", reply, 9)
        if top_level:
            raise RawReplyError(f"fetch of {self._topic} was refused with error code {top_level}")
        _, error = _INDEX_AND_ERROR.unpack_from(reply, self._at)
        if error:
            raise RawReplyError(f"fetch of {self._topic} was refused with error code {error}")

    def has_records(self, reply: memoryview | bytes) -> bool:
        """A batch alone is 61 bytes of header; an empty reply holds none."""
        return len(reply) > self.overhead


class InitProducerIdReply:
    """Where an InitProducerId v4 reply keeps its error code and producer id."""

    _AT = 4 + 1 + 4  # correlation id, tags, throttle

    def error_code(self, reply: memoryview | bytes) -> int:
        (error,) = struct.unpack_from(">h", reply, self._AT)
        return int(error)

    def producer_id(self, reply: memoryview | bytes) -> int:
        (producer_id,) = struct.unpack_from(">q", reply, self._AT + 2)
        return int(producer_id)
