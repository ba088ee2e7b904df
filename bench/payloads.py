# SPDX-License-Identifier: Apache-2.0
"""Record batches that the raw client sends: built once through headrace.wire.records, then only repeated."""

from __future__ import annotations

import json
import random
import time
from functools import lru_cache

from headrace.wire.records import Record, build_batch

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@lru_cache(maxsize=32)
def plain_batch(record_count: int, value_bytes: int, *, producer_id: int = -1) -> bytes:
    """Records of random bytes without a key; an idempotent producer's first batch when an id is given."""
    source = random.Random(record_count * 31 + value_bytes)
    values = [source.randbytes(value_bytes) for _ in range(record_count)]
    return batch_of(values, producer_id=producer_id)


def batch_of(
    values: list[bytes],
    *,
    keys: list[bytes] | None = None,
    producer_id: int = -1,
    base_sequence: int = 0,
) -> bytes:
    """`base_sequence`: of an idempotent producer."""
    idempotent = producer_id >= 0
    return bytes(
        build_batch(
            _records(values, keys),
            producer_id=producer_id,
            producer_epoch=0 if idempotent else -1,
            base_sequence=base_sequence if idempotent else -1,
        )
    )


@lru_cache(maxsize=8)
def compressed_batch(codec: str, record_count: int) -> tuple[bytes, int]:
    """JSON documents of about 1 KB as an application writes them; (batch, bytes of the values)."""
    source = random.Random(codec)
    values = [_document(source) for _ in range(record_count)]
    batch = build_batch(_records(values, None), codec=CODECS[codec])
    return bytes(batch), sum(map(len, values))


def _records(values: list[bytes], keys: list[bytes] | None) -> list[Record]:
    now_ms = time.time_ns() // 1_000_000
    return [
        Record(offset=index, timestamp=now_ms, key=keys[index] if keys else None, value=value, headers=())
        for index, value in enumerate(values)
    ]


def _document(source: random.Random) -> bytes:
    words = ("stream", "wheel", "channel", "water", "gate", "mill", "race", "head", "flow", "power")
    document = {
        "order_id": source.getrandbits(48),
        "customer": f"customer-{source.randrange(100_000)}",
        "amount_cents": source.randrange(1_000_000),
        "items": [
            {"sku": f"{source.getrandbits(32):08x}", "quantity": source.randrange(1, 9), "note": note}
            for note in (" ".join(source.choices(words, k=9)) for _ in range(9))
        ],
    }
    return json.dumps(document).encode()
