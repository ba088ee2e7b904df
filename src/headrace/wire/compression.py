# SPDX-License-Identifier: Apache-2.0
"""The codecs of record batches: gzip, snappy (Java's chunked framing and bare), lz4 frames, zstd.

Output is written into a buffer that grows only as it is filled, or into one that the caller keeps
(scratch.py), and never past a cap, so a bomb costs no more than the cap (S2). The GIL is released while a
codec works. Read next: records.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any

import cramjam

from headrace.errors import DecodeError


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_name(codec: int | None) -> str:
    """As Kafka's settings name it."""
    return _NAMES.get(codec, "unknown codec")


_NAMES: dict[int | None, str] = {codec: codec.name.lower() for codec in Codec}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How far a batch may expand. Output up to `free_bytes` is allowed whatever the ratio."""

    max_bytes: int = 64 << 20
    max_ratio: int | None = None
    free_bytes: int = 1 << 20

    def limit(self, compressed_size: int) -> int:
        if self.max_ratio is None:
            return self.max_bytes
        return min(self.max_bytes, max(self.free_bytes, self.max_ratio * compressed_size))


STORED_CAPS = Caps(max_bytes=256 << 20)
"""For batches in a log: whatever was accepted must stay readable."""
PRODUCER_CAPS = Caps(max_bytes=64 << 20, max_ratio=1000, free_bytes=8 << 20)
"""For batches from producers: real data does not shrink to a thousandth, but a trial with zeros does."""


class ExpandsTooFar(DecodeError):
    """The data would expand beyond its cap."""


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """As Kafka's Java client writes it; snappy in Java's chunked framing."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _compress_snappy(memoryview(data))
    return bytes(_COMPRESSORS[codec](data))


def decompress(
    codec: int, data: bytes | bytearray | memoryview, caps: Caps = STORED_CAPS
) -> bytes | bytearray | memoryview:
    """The expanded bytes; uncompressed data is handed back as it is, without a copy."""
    if codec == Codec.NONE:
        return data
    limit = caps.limit(len(data))
    if codec == Codec.SNAPPY:
        view = memoryview(data)
        out = bytearray(_snappy_size(view, limit))
        _expand_snappy(view, memoryview(out))
        return out
    return _expand(_decompressor(codec), data, limit)


def decompress_into(codec: int, data: memoryview, room: memoryview) -> int:
    """Writes the expanded bytes to the start of `room`, and no further; how many there are."""
    if codec == Codec.SNAPPY:
        return _expand_snappy(data, room)
    try:
        size: int = _decompressor(codec)(data, room)
    except cramjam.DecompressionError as error:
        if _BUFFER_FULL not in str(error):
            raise DecodeError(f"compressed data is damaged: {error}") from None
        raise ExpandsTooFar(f"{len(data)} bytes expand to more than {len(room)}") from None
    return size


def likely_size(codec: int, data: memoryview) -> int:
    """To how many bytes the data expands as it says itself, which may be false, or else as is usual."""
    announced = None
    if codec == Codec.GZIP and len(data) >= _SMALLEST_GZIP:
        (announced,) = _GZIP_SIZE.unpack_from(data, len(data) - _GZIP_SIZE.size)
    elif codec == Codec.SNAPPY:
        announced = _announced_by_snappy(data)
    elif codec == Codec.LZ4 and len(data) >= _LZ4_SIZE_AT + 8 and data[_LZ4_FLAGS_AT] & _LZ4_HAS_SIZE:
        announced = int.from_bytes(data[_LZ4_SIZE_AT : _LZ4_SIZE_AT + 8], "little")
    elif codec == Codec.ZSTD:
        announced = _announced_by_zstd(data)
    return _USUAL_RATIO * len(data) if announced is None else announced


def is_choppy(codec: int, data: memoryview) -> bool:
    """Whether the data is of more pieces than any client makes, each of which costs time in Python."""
    if codec != Codec.SNAPPY:
        return False
    try:
        blocks = islice(_snappy_blocks(data), MOST_SNAPPY_BLOCKS + 1)
        return sum(1 for _ in blocks) > MOST_SNAPPY_BLOCKS
    except DecodeError:
        return False


def _decompressor(codec: int) -> Callable[[Any, Any], int]:
    expand = _DECOMPRESSORS.get(codec)
    if expand is None:
        raise DecodeError(f"unknown compression codec {codec}")
    return expand


def _compress_lz4(data: bytes | bytearray | memoryview) -> Any:
    # Java's reader refuses frames whose blocks depend on each other, which are the library's default.
    compressor = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
    compressor.compress(bytes(data))
    return compressor.finish()


_COMPRESSORS: dict[int, Callable[[Any], Any]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: lambda data: cramjam.zstd.compress(data, level=3),
}
_DECOMPRESSORS: dict[int, Callable[[Any, Any], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}

_BUFFER_FULL = "failed to write whole buffer"  # Rust's words for an output slice that is too short
_USUAL_RATIO = 4
_GROWTH = 4
_SMALLEST_BUFFER = 1024


def _expand(expand: Callable[[Any, Any], int], data: Any, limit: int) -> bytearray:
    """Tries with a buffer of a likely size, then larger ones up to `limit`."""
    room = min(limit, max(_SMALLEST_BUFFER, _USUAL_RATIO * len(data)))
    while True:
        out = bytearray(room)
        try:
            size = expand(data, out)
        except cramjam.DecompressionError as error:
            del out  # an error that is raised holds the variables of this frame
            if _BUFFER_FULL not in str(error):
                raise DecodeError(f"compressed data is damaged: {error}") from None
            if room >= limit:
                raise ExpandsTooFar(f"{len(data)} bytes expand to more than {limit}") from None
            room = min(limit, room * _GROWTH)
            continue
        del out[size:]
        return out


_JAVA_MAGIC = b"\x82SNAPPY\0"
_JAVA_HEADER = _JAVA_MAGIC + struct.pack(">ii", 1, 1)
_CHUNK_SIZE = 32 << 10  # the block of Java's SnappyOutputStream
_CHUNK_LENGTH = struct.Struct(">i")
_SNAPPY_MOST = 64  # a copy of three bytes yields 64 at best; a larger claim is false


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_JAVA_HEADER]
    for start in range(0, len(data), _CHUNK_SIZE):
        chunk = bytes(cramjam.snappy.compress_raw(data[start : start + _CHUNK_SIZE]))
        parts += (_CHUNK_LENGTH.pack(len(chunk)), chunk)
    return b"".join(parts)


MOST_SNAPPY_BLOCKS = 4096
"""Twice as many of Java's as there are in 64 MiB."""


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """One after the other: there may be very many. The data itself, where there is no framing."""
    if data[: len(_JAVA_MAGIC)] != _JAVA_MAGIC:
        yield data
        return
    position, end = len(_JAVA_HEADER), len(data)
    if end < position:
        raise DecodeError("snappy header is cut off")
    while position < end:
        if end - position < _CHUNK_LENGTH.size:
            raise DecodeError("snappy chunk length is cut off")
        (length,) = _CHUNK_LENGTH.unpack_from(data, position)
        position += _CHUNK_LENGTH.size
        if not 0 <= length <= end - position:
            raise DecodeError(f"snappy chunk of {length} bytes, {end - position} left")
        yield data[position : position + length]
        position += length


def _block_size(block: memoryview) -> int:
    """Once expanded, as the block says."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"compressed data is damaged: {error}") from None
    if size > _SNAPPY_MOST * len(block):
        raise DecodeError(f"snappy block of {len(block)} bytes claims to hold {size}")
    return size


def _snappy_size(data: memoryview, limit: int) -> int:
    total = 0
    for block in _snappy_blocks(data):
        total += _block_size(block)
        if total > limit:
            raise ExpandsTooFar(f"snappy data expands to more than {limit} bytes")
    return total


def _expand_snappy(data: memoryview, room: memoryview) -> int:
    position = 0
    for block in _snappy_blocks(data):
        size = _block_size(block)
        if size > len(room) - position:
            raise ExpandsTooFar(f"snappy data expands to more than {len(room)} bytes")
        try:
            written = cramjam.snappy.decompress_raw_into(block, room[position : position + size])
        except cramjam.DecompressionError as error:
            raise DecodeError(f"compressed data is damaged: {error}") from None
        if written != size:
            raise DecodeError(f"snappy block holds {written} bytes, not {size}")
        position += size
    return position


# What data says of its size

_SMALLEST_GZIP = 18
_GZIP_SIZE = struct.Struct("<I")
_LZ4_FLAGS_AT, _LZ4_SIZE_AT, _LZ4_HAS_SIZE = 4, 6, 0x08
_ZSTD_DESCRIPTOR_AT = 4
_FEW_BLOCKS = 16
_UNKNOWN_AND_MANY = 1 << 62


def _announced_by_snappy(data: memoryview) -> int:
    try:
        sizes = [_block_size(block) for block in islice(_snappy_blocks(data), _FEW_BLOCKS + 1)]
    except DecodeError:
        return 0  # it is refused as soon as it is looked at
    return sum(sizes) if len(sizes) <= _FEW_BLOCKS else _UNKNOWN_AND_MANY


def _announced_by_zstd(data: memoryview) -> int | None:
    """Of its first frame (RFC 8878, 3.1.1.1)."""
    if len(data) <= _ZSTD_DESCRIPTOR_AT:
        return None
    descriptor = data[_ZSTD_DESCRIPTOR_AT]
    size_flag, single_segment, dictionary_flag = descriptor >> 6, descriptor & 0x20, descriptor & 3
    if not (size_flag or single_segment):
        return None
    width = 1 << size_flag
    start = _ZSTD_DESCRIPTOR_AT + 1 + (0 if single_segment else 1) + (0, 1, 2, 4)[dictionary_flag]
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size
