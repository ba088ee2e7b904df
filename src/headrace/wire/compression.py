# SPDX-License-Identifier: Apache-2.0
"""The codecs of record batches: gzip, snappy (Java's chunked framing and bare), lz4 frames, zstd.

Output is written into a buffer that grows only as it is filled and never past a cap, so a bomb costs no more
than the cap (S2). Read next: records.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
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
PRODUCER_CAPS = Caps(max_bytes=64 << 20, max_ratio=1000)
"""For batches from producers: real data does not shrink to a thousandth."""


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
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), caps.limit(len(data)))
    expand = _DECOMPRESSORS.get(codec)
    if expand is None:
        raise DecodeError(f"unknown compression codec {codec}")
    return _expand(expand, data, caps.limit(len(data)))


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
_DECOMPRESSORS: dict[int, Callable[[Any, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}

_BUFFER_FULL = "failed to write whole buffer"  # Rust's words for an output slice that is too short
_FIRST_GUESS = 4  # times the input
_GROWTH = 4
_SMALLEST_BUFFER = 1024


def _expand(expand: Callable[[Any, bytearray], int], data: Any, limit: int) -> bytearray:
    """Tries with a buffer of a likely size, then larger ones up to `limit`."""
    room = min(limit, max(_SMALLEST_BUFFER, _FIRST_GUESS * len(data)))
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


def _decompress_snappy(data: memoryview, limit: int) -> bytearray:
    out = bytearray()
    if data[: len(_JAVA_MAGIC)] != _JAVA_MAGIC:
        _expand_snappy_block(data, out, limit)
        return out
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
        _expand_snappy_block(data[position : position + length], out, limit)
        position += length
    return out


def _expand_snappy_block(block: memoryview, out: bytearray, limit: int) -> None:
    """Appends the block's bytes to `out`; the block says first how many they are."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_MOST * len(block):
            raise DecodeError(f"snappy block of {len(block)} bytes claims to hold {size}")
        if size > limit - len(out):
            raise ExpandsTooFar(f"snappy data expands to more than {limit} bytes")
        expanded = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, expanded)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"compressed data is damaged: {error}") from None
    if written != size:
        raise DecodeError(f"snappy block holds {written} bytes, not {size}")
    out += expanded
