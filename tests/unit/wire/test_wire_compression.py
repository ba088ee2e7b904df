# SPDX-License-Identifier: Apache-2.0
"""The codecs in every framing that clients use, and bombs (S2)."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import pytest
import zstandard

from headrace.errors import DecodeError
from headrace.wire.compression import (
    MOST_SNAPPY_BLOCKS,
    PRODUCER_CAPS,
    STORED_CAPS,
    Caps,
    Codec,
    ExpandsTooFar,
    compress,
    decompress,
    is_choppy,
    likely_size,
)

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the stream turns the wheel; " * 5_000
SAMPLES = [b"", b"x", b"abc" * 10, TEXT, random.Random(5).randbytes(100_000)]


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_compression_round_trips(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed)) == data
    framed = bytearray(b"...") + packed + b"..."
    assert bytes(decompress(codec, memoryview(framed)[3:-3])) == data
    assert compress(codec, memoryview(bytearray(data))) == packed


def test_uncompressed_data_is_not_copied() -> None:
    data = bytearray(b"same")
    assert decompress(Codec.NONE, data) is data


def test_gzip_is_what_the_standard_library_writes_and_reads() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT)) == TEXT
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT


def test_gzip_of_several_members_is_read_whole() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"


def test_snappy_is_read_in_javas_framing_and_bare() -> None:
    bare = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, bare) == TEXT
    chunks = [bytes(cramjam.snappy.compress_raw(TEXT[at : at + 777])) for at in range(0, len(TEXT), 777)]
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(chunk)) + chunk for chunk in chunks)
    assert decompress(Codec.SNAPPY, framed) == TEXT


def test_snappy_is_written_in_javas_framing() -> None:
    assert compress(Codec.SNAPPY, b"x").startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")


def resident_growth(codec: Codec, packed: bytes, *, max_bytes: int) -> int:
    """Bytes by which a fresh process grows while it expands the data, native code included."""
    script = """
import resource, sys
from headrace.errors import DecodeError
from headrace.wire.compression import Caps, decompress
packed = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), packed, Caps(max_bytes=int(sys.argv[2])))
except DecodeError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    command = [sys.executable, "-c", script, str(int(codec)), str(max_bytes)]
    done = subprocess.run(command, input=packed, stdout=subprocess.PIPE, check=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)


# lz4 frames that our own compressor does not write


def xxh32(data: bytes, seed: int = 0) -> int:
    """Enough of the hash for inputs below 16 bytes, as a frame's header is."""
    prime2, prime3, prime4, prime5 = 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    value = (seed + prime5 + len(data)) & mask
    position = 0
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        value = (value + word * prime3) & mask
        value = ((value << 17 | value >> 15) & mask) * prime4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * prime5) & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


def lz4_frame(flags: int, blocks: list[bytes], content_size: int | None = None) -> bytes:
    descriptor = bytes((0x40 | flags, 0x40))  # version 1, blocks of at most 64 KiB
    if content_size is not None:
        descriptor += struct.pack("<Q", content_size)
    out = b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
    for block in blocks:
        out += struct.pack("<I", len(block)) + block
    return out + bytes(4)


LITERALS = b"\xf0\x01" + b"0123456789abcdef"  # sixteen literals, no match
BACK_REFERENCE = b"\x08" + struct.pack("<H", 16) + b"\x50vwxyz"  # twelve from sixteen back, five literals
LINKED, CONTENT_SIZE = 0x00, 0x08
INDEPENDENT = 0x20


def test_lz4_without_content_size_is_read() -> None:
    assert decompress(Codec.LZ4, lz4_frame(INDEPENDENT, [LITERALS])) == b"0123456789abcdef"


def test_lz4_with_linked_blocks_is_read() -> None:
    """The second block copies from the first."""
    frame = lz4_frame(LINKED, [LITERALS, BACK_REFERENCE])
    assert decompress(Codec.LZ4, frame) == b"0123456789abcdef0123456789abvwxyz"


def test_lz4_with_content_size_is_read() -> None:
    frame = lz4_frame(INDEPENDENT | CONTENT_SIZE, [LITERALS], content_size=16)
    assert decompress(Codec.LZ4, frame) == b"0123456789abcdef"


def test_lz4_with_a_lying_content_size_allocates_nothing() -> None:
    frame = lz4_frame(INDEPENDENT | CONTENT_SIZE, [LITERALS], content_size=1 << 50)
    assert resident_growth(Codec.LZ4, frame, max_bytes=1 << 20) < 8 << 20


# What data says of its size


def test_data_that_announces_its_size_is_believed() -> None:
    packed = {
        Codec.GZIP: gzip.compress(TEXT),
        Codec.LZ4: lz4_frame(INDEPENDENT | CONTENT_SIZE, [LITERALS], content_size=len(TEXT)),
        Codec.ZSTD: zstandard.ZstdCompressor().compress(TEXT),
        Codec.SNAPPY: compress(Codec.SNAPPY, TEXT),
    }
    for codec, data in packed.items():
        assert likely_size(codec, memoryview(data)) == len(TEXT), codec
    assert likely_size(Codec.SNAPPY, memoryview(bytes(cramjam.snappy.compress_raw(TEXT)))) == len(TEXT)


@pytest.mark.parametrize("size", [0, 1, 200, 255, 256, 300, 65_791, 65_792, 100_000])
def test_every_width_of_zstds_announced_size_is_read(size: int) -> None:
    data = zstandard.ZstdCompressor().compress(bytes(size))
    assert likely_size(Codec.ZSTD, memoryview(data)) == size


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_announces_nothing_has_a_usual_size(codec: Codec) -> None:
    unannounced = {
        Codec.LZ4: lz4_frame(INDEPENDENT, [LITERALS]),
        Codec.ZSTD: zstandard.ZstdCompressor(write_content_size=False).compress(TEXT),
    }
    if codec in unannounced:
        data = unannounced[codec]
        assert likely_size(codec, memoryview(data)) == 4 * len(data)
    for size in range(20):
        assert likely_size(codec, memoryview(bytes(size))) >= 0


def test_only_snappy_in_far_more_chunks_than_any_client_makes_is_choppy() -> None:
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    chunk = bytes(cramjam.snappy.compress_raw(b"x"))
    framed = struct.pack(">i", len(chunk)) + chunk
    assert not is_choppy(Codec.SNAPPY, memoryview(header + framed * MOST_SNAPPY_BLOCKS))
    assert is_choppy(Codec.SNAPPY, memoryview(header + framed * (MOST_SNAPPY_BLOCKS + 1)))
    assert likely_size(Codec.SNAPPY, memoryview(header + framed * 17)) > PRODUCER_CAPS.max_bytes
    assert not is_choppy(Codec.SNAPPY, memoryview(compress(Codec.SNAPPY, bytes(64 << 20))))
    assert not is_choppy(Codec.GZIP, memoryview(gzip.compress(b"") * MOST_SNAPPY_BLOCKS))


# Damage and bombs


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_is_cut_off_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"the stream turns the wheel" * 20)
    for size in range(1, len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a framed stream without chunks is a whole one
        with pytest.raises(DecodeError):
            decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_raises_decode_error_only(codec: Codec) -> None:
    source = random.Random(codec)
    packed = compress(codec, TEXT)
    for _ in range(300):
        damaged = bytearray(packed if source.random() < 0.7 else source.randbytes(60))
        for _ in range(source.randint(1, 5)):
            damaged[source.randrange(min(len(damaged), 200))] = source.randrange(256)
        with contextlib.suppress(DecodeError):
            decompress(codec, damaged, PRODUCER_CAPS)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(DecodeError, match="codec 5"):
        decompress(5, b"data")


def bomb(codec: Codec, size: int) -> bytes:
    zeros = bytes(size)
    if codec is Codec.GZIP:
        with io.BytesIO() as buffer:
            with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as packer:
                packer.write(zeros)
            return buffer.getvalue()
    return compress(codec, zeros)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_expands_no_further_than_its_cap(codec: Codec) -> None:
    packed = bomb(codec, 128 << 20)
    with pytest.raises(ExpandsTooFar):
        decompress(codec, packed, Caps(max_bytes=4 << 20))
    assert resident_growth(codec, packed, max_bytes=4 << 20) < 24 << 20


def test_a_ratio_that_no_data_has_is_refused_early() -> None:
    packed = bomb(Codec.ZSTD, 16 << 20)
    assert (16 << 20) / len(packed) > 10_000
    with pytest.raises(ExpandsTooFar, match=str(8 << 20)):
        decompress(Codec.ZSTD, packed, PRODUCER_CAPS)
    assert len(decompress(Codec.ZSTD, packed, STORED_CAPS)) == 16 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_small_data_may_have_any_ratio(codec: Codec) -> None:
    assert len(decompress(codec, bomb(codec, 8 << 20), PRODUCER_CAPS)) == 8 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_output_of_exactly_the_cap_passes_and_one_byte_more_does_not(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, Caps(max_bytes=len(TEXT))) == TEXT
    with pytest.raises(ExpandsTooFar):
        decompress(codec, packed, Caps(max_bytes=len(TEXT) - 1))


@pytest.mark.parametrize("framed", [True, False])
def test_snappy_that_claims_more_than_it_can_hold_allocates_nothing(framed: bool) -> None:
    """CVE-2023-34455: the claim alone must not be believed."""
    block = b"\xff\xff\xff\xff\x0f" + b"\0a"
    packed = block
    if framed:
        packed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 3])
def test_snappy_chunks_of_a_wrong_length_are_refused(length: int) -> None:
    packed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, length) + b"ab"
    with pytest.raises(DecodeError, match="chunk of"):
        decompress(Codec.SNAPPY, packed)
