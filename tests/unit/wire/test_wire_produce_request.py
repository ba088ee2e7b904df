# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from uuid import UUID

import pytest

from headrace.wire.messages import encode_request
from headrace.wire.requests.produce_request import produce_request

TOPIC_ID = UUID(int=77 << 64 | 5)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "t-ü"])
def test_the_parts_are_what_the_general_encoder_writes(
    version: int, size: int, transactional_id: str | None
) -> None:
    batch = bytes(range(256)) * (size // 256 + 1)
    batch = batch[:size]
    topic = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders-ü"}
    fields = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{**topic, "partition_data": [{"index": 3, "records": batch}]}],
    }
    parts = produce_request(
        version,
        9,
        "me",
        TOPIC_ID if version >= 13 else "orders-ü",
        3,
        batch,
        acks=-1,
        timeout_ms=30_000,
        transactional_id=transactional_id,
    )
    assert parts[1] is batch
    assert b"".join(parts) == encode_request(0, version, 9, "me", fields)
