# SPDX-License-Identifier: Apache-2.0
"""Requests that are sent without waiting get the same answers, and write the same log, as one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.wire.records import Record, build_batch
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient

StartNode = Callable[..., NodeProcess]
NOW_MS = 1_700_000_000_000


def batch(number: int, *, records: int = 1, **fields: int) -> bytes:
    values = [b"%d-%d" % (number, place) for place in range(records)]
    return bytes(build_batch([Record(n, NOW_MS + number, None, v) for n, v in enumerate(values)], **fields))


def idempotent(sequence: int, *, records: int = 2, producer_id: int = 7, epoch: int = 0) -> bytes:
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(sequence, records=records, **fields)


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def requests(client: RawClient, topic: str) -> list[bytes]:
    """Long runs, and everything that ends one."""
    plain = [batch(number, records=1 + number % 3) for number in range(300)]
    ordered = [idempotent(sequence) for sequence in range(0, 80, 2)]
    sent = [
        *((data, 0, 1) for data in plain),
        (broken(batch(1)), 0, 1),
        *((data, 0, 1) for data in plain[:20]),
        (b"", 0, 1),
        *((data, 0, -1) for data in plain[:20]),
        (plain[0], 1, 1),
        *((data, 0, 1) for data in ordered),
        (ordered[-1], 0, 1),  # a duplicate
        (idempotent(100), 0, 1),  # a gap
        *((idempotent(sequence, producer_id=8), 0, 1) for sequence in range(0, 10, 2)),
        *((idempotent(sequence, epoch=1), 0, 1) for sequence in range(0, 20, 2)),
        (batch(0, is_control=True), 0, 1),
        (bytes(2_000_000), 0, 1),
        *((data, 0, 1) for data in plain[:50]),
    ]
    return [client.produce_frame(topic, data, partition=index, acks=acks) for data, index, acks in sent]


@pytest.mark.parametrize("flush", ["os", "ack"])
@pytest.mark.parametrize(
    "config", [{}, {"segment_ms": "100"}, {"message_timestamp_type": "LogAppendTime"}], ids=str
)
def test_requests_in_a_row_are_answered_and_written_as_one_by_one(
    flush: str, config: dict[str, str], node: NodeProcess
) -> None:
    logs, answers = [], []
    for topic, in_a_row in (("in-a-row-x", True), ("one-by-one", False)):
        with RawClient(node.bootstrap) as client:
            client.create_topic(topic, 2, headrace_flush=flush, **config)
            frames = requests(client, topic)
            if in_a_row:
                client.send(b"".join(frames))
            replies = []
            for frame in frames:
                if not in_a_row:
                    client.send(frame)
                replies.append((client.receive() or b"").replace(topic.encode(), b"TOPIC"))
            answers.append(replies)
            end = client.end_offset(topic)
            logs.append((end, _contents(client, topic, end)))
    if "message_timestamp_type" not in config:
        assert answers[0] == answers[1]
        assert logs[0] == logs[1]
    else:
        assert [len(reply) for reply in answers[0]] == [len(reply) for reply in answers[1]]
        assert logs[0][0] == logs[1][0]


def _contents(client: RawClient, topic: str, end: int) -> bytes:
    data, offset = bytearray(), 0
    while offset < end:
        piece = client.fetch(topic, offset)
        assert piece, f"nothing at {offset} of {end}"
        data += piece
        offset = _next_offset(piece)
    return bytes(data)


def _next_offset(piece: bytes) -> int:
    position, following = 0, 0
    while position < len(piece):
        length = int.from_bytes(piece[position + 8 : position + 12], "big")
        base = int.from_bytes(piece[position : position + 8], "big")
        following = base + int.from_bytes(piece[position + 23 : position + 27], "big") + 1
        position += 12 + length
    return following
