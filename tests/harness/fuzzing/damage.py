# SPDX-License-Identifier: Apache-2.0
"""Damage to sound bytes: flips, cuts, insertions, repetitions, and lengths that lie.

Knows nothing of what the bytes mean. Read next: hostile.py (well-formed messages with bad values).
"""

from __future__ import annotations

import struct
from random import Random

LIES = (
    struct.pack(">i", -1),
    struct.pack(">i", -2),
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -(2**31)),
    struct.pack(">h", 2**15 - 1),
    struct.pack(">h", -2),
    struct.pack(">q", 2**63 - 1),
    struct.pack(">q", -(2**63)),
    b"\0",
    b"\xff\xff\xff\xff\x07",  # the largest varint that is a length
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 12,
    b"\xfe\xff\x7f",
)


def damaged(sound: bytes, chance: Random, *, keep: int = 0) -> bytes:
    """A damaged copy; the first `keep` bytes stay."""
    data = bytearray(sound)
    for _ in range(chance.randint(1, 6)):
        _damage_once(data, chance, min(keep, len(data)))
    return bytes(data)


def _damage_once(data: bytearray, chance: Random, keep: int) -> None:
    place = chance.randint(keep, len(data))
    kind = chance.random()
    if kind < 0.35 and place < len(data):
        data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)))
    elif kind < 0.65:
        lie = chance.choice(LIES)
        data[place : place + len(lie)] = lie
    elif kind < 0.75:
        data[place:place] = chance.randbytes(chance.randint(1, 30))
    elif kind < 0.85:
        data[place:place] = data[keep : keep + chance.randint(1, 60)]
    elif kind < 0.93:
        del data[place : place + chance.randint(1, 8)]
    else:
        del data[place:]
