# SPDX-License-Identifier: Apache-2.0
"""Batches encoded elsewhere: signed in the header, otherwise untouched; bad ones are refused by place."""

from __future__ import annotations

import pytest

from headrace.client.arrow.write.encode import Producer
from headrace.client.arrow.write.ready_batches import ready_batches
from headrace.client.errors import ClientError
from headrace.wire.batch import CONTROL_BIT, HEADER_SIZE, crc_ok, read_header, write_crc
from headrace.wire.compression import Codec
from headrace.wire.records import Record, build_batch, read_records

PRODUCER = Producer(77, 3, True)


def batch(count: int, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    records = [Record(base_offset + n, 1000 + n, b"k%d" % n, b"v" * n, (("h", b"1"),)) for n in range(count)]
    return bytes(build_batch(records, codec=codec, base_offset=base_offset))


@pytest.mark.parametrize("codec", list(Codec))
def test_only_the_header_changes(codec: Codec) -> None:
    given = [batch(3, codec), batch(2, codec, base_offset=500) + batch(4, codec, base_offset=900)]
    sequences = {5: 2**31 - 2}
    signed = list(ready_batches([(5, run) for run in given], PRODUCER, sequences))
    assert [list(each.rows) for each in signed] == [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
    assert sequences == {5: 7}, "sequences wrap at 2**31"
    for each, sequence, original in zip(signed, (2**31 - 2, 1, 3), (3, 2, 4), strict=True):
        header = read_header(each.batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, sequence)
        assert (header.base_offset, header.leader_epoch, header.codec) == (0, -1, codec)
        assert header.is_transactional
        assert crc_ok(memoryview(each.batch), 0, len(each.batch))
        assert bytes(each.batch[HEADER_SIZE:]) == batch(original, codec)[HEADER_SIZE:]
        assert [record.value for record in read_records(memoryview(each.batch))] == [
            b"v" * n for n in range(original)
        ]


def test_the_given_batches_are_not_modified() -> None:
    given = batch(2)
    list(ready_batches([(0, given)], PRODUCER, {}))
    assert given == batch(2)


def test_every_partition_counts_for_itself_and_other_producers_lose_their_bit() -> None:
    sequences: dict[int, int] = {}
    transactional = ready_batches([(0, batch(2)), (4, batch(3)), (0, batch(1))], PRODUCER, sequences)
    runs = [(each.partition, each.batch) for each in transactional]
    assert sequences == {0: 3, 4: 3}
    plain = list(ready_batches(runs, Producer(8, 0), {}))
    headers = [read_header(each.batch) for each in plain]
    assert [(each.partition, header.base_sequence) for each, header in zip(plain, headers, strict=True)] == [
        (0, 0),
        (4, 0),
        (0, 2),
    ]
    assert not any(header.is_transactional for header in headers)


def damaged() -> bytes:
    return batch(2)[:-1] + b"\xff"


def control() -> bytes:
    out = bytearray(batch(1))
    out[22] |= CONTROL_BIT
    write_crc(memoryview(out), 0, len(out))
    return bytes(out)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (damaged(), "does not match its CRC"),
        (batch(2)[:-4], "is cut off"),
        (b"short", "too few for a record batch"),
        (control(), "may not write control records"),
    ],
    ids=["damaged", "cut", "short", "control"],
)
def test_a_bad_one_is_named(bad: bytes, words: str) -> None:
    with pytest.raises(ClientError, match=f"batch 1 cannot be appended: .*{words}"):
        list(ready_batches([(0, batch(1)), (0, bad)], PRODUCER, {}))
