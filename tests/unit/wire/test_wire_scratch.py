# SPDX-License-Identifier: Apache-2.0
"""Memory into which batches are expanded: bounded, given back after a large one, one for each thread (S2)."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import pytest

from headrace.errors import DecodeError
from headrace.wire.compression import PRODUCER_CAPS, Codec, ExpandsTooFar, compress
from headrace.wire.scratch import KEPT_BYTES, Scratch

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the stream turns the wheel; " * 5_000
LARGE = random.Random(5).randbytes(1000) * 24_000

RESIDENT = """
import os, sys
from headrace.errors import DecodeError
from headrace.wire.scratch import Scratch
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
packed, scratch = memoryview(sys.stdin.buffer.read()), Scratch()
codec, limit = int(sys.argv[1]), int(sys.argv[2])
before = resident()
for _ in range(3):
    try:
        held = scratch.expand(codec, packed, limit)
    except DecodeError:
        held = None
during = resident() - before
del held
print(during, resident() - before)
"""


def resident_growth(codec: Codec, packed: bytes, limit: int) -> tuple[int, int]:
    """Of a fresh process: with the expanded bytes at hand, and when they are not needed any more."""
    command = [sys.executable, "-c", RESIDENT, str(int(codec)), str(limit)]
    done = subprocess.run(command, input=packed, stdout=subprocess.PIPE, check=True)
    during, after = map(int, done.stdout.split())
    return during, after


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_expanded_one_after_the_other(codec: Codec) -> None:
    scratch = Scratch()
    for body in (TEXT, b"short", TEXT[:5000], b"x"):
        packed = memoryview(compress(codec, body))
        assert scratch.expand(codec, packed, PRODUCER_CAPS.max_bytes) == body
        assert scratch.expand(codec, packed, len(body)) == body
        with pytest.raises(ExpandsTooFar):
            scratch.expand(codec, packed, len(body) - 1)
        with pytest.raises(DecodeError):
            scratch.expand(codec, packed[:-1], PRODUCER_CAPS.max_bytes)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("codec", CODECS)
def test_memory_of_a_large_batch_is_given_back(codec: Codec) -> None:
    during, after = resident_growth(codec, compress(codec, LARGE), PRODUCER_CAPS.max_bytes)
    assert during > len(LARGE)
    assert after < KEPT_BYTES + (4 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_memory_once_it_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(128 << 20))
    _, after = resident_growth(codec, packed, PRODUCER_CAPS.max_bytes)
    assert after < 8 << 20


def test_each_thread_has_memory_of_its_own() -> None:
    scratch = Scratch()
    packed = memoryview(compress(Codec.LZ4, TEXT))
    other = memoryview(compress(Codec.LZ4, b"of another thread"))
    here = scratch.expand(Codec.LZ4, packed, 1 << 20)
    thread = threading.Thread(target=lambda: scratch.expand(Codec.LZ4, other, 1 << 20))
    thread.start()
    thread.join()
    assert here == TEXT
