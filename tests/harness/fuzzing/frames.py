# SPDX-License-Identifier: Apache-2.0
"""An endless mix of frames for a node: sound requests, hostile values, damaged requests, noise.

Read next: node_under_fire.py (in process), tests/integration/test_fuzzed_requests.py (on sockets).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from random import Random

from headrace.wire.messages import encode_request
from headrace.wire.records import Record, build_batch
from tests.harness.fuzzing.damage import damaged
from tests.harness.fuzzing.hostile import EVERY_VERSION, hostile_request, plain_fields

TOPIC = "t"
_PRODUCE, _BY_ID = 0, 13
_LENGTH_BYTES, _KEY_AND_VERSION = 4, 4
_TIMESTAMP = 1_700_000_000_000


def frames(chance: Random) -> Iterator[bytes]:
    """Whole frames, for ever."""
    while True:
        yield one_frame(chance)


def one_frame(chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.02:
        return chance.randbytes(chance.randrange(1, 120))
    if kind < 0.05:
        return framed(chance.randbytes(chance.randrange(1, 120)))
    key, version = chance.choice(EVERY_VERSION)
    if kind < 0.20:
        return sound_request(key, version)
    if kind < 0.55:
        return hostile_request(key, version, chance)
    body = sound_request(key, version) if kind < 0.8 else hostile_request(key, version, chance)
    return framed(damaged(body[_LENGTH_BYTES:], chance, keep=_KEY_AND_VERSION))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@cache
def sound_request(key: int, version: int) -> bytes:
    fields = produce_fields() if key == _PRODUCE and version < _BY_ID else plain_fields(key)
    return encode_request(key, version, 1, "fuzz", fields)


def produce_fields(*values: bytes, acks: int = 1, index: int = 0) -> dict[str, object]:
    records = [Record(place, _TIMESTAMP, b"k", value) for place, value in enumerate(values or (b"v",))]
    data = [{"index": index, "records": bytes(build_batch(records))}]
    return {"acks": acks, "timeout": 100, "topic_data": [{"name": TOPIC, "partition_data": data}]}
