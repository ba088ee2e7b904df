# SPDX-License-Identifier: Apache-2.0
"""lz4 frames as Kafka's Java reader accepts them."""

from __future__ import annotations

from headrace.wire.compression import Codec, compress, decompress

_VERSION_AND_INDEPENDENT_BLOCKS = 0b0110_0000


def test_blocks_of_an_lz4_frame_do_not_depend_on_each_other() -> None:
    data = bytes(range(256)) * 1024
    frame = compress(Codec.LZ4, data)
    assert frame[4] & 0b1110_0000 == _VERSION_AND_INDEPENDENT_BLOCKS
    assert decompress(Codec.LZ4, frame) == data
