# SPDX-License-Identifier: Apache-2.0
"""The offset document: one text for equal positions, and a clear word when it is somebody else's."""

from __future__ import annotations

import json

import pytest

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions, read_document

QUERY = "6f1c"


def offsets(**topics: dict[int, int]) -> Offsets:
    return Offsets(
        query=QUERY,
        topics={
            topic: TopicPositions(
                topic_id=f"id-{topic}",
                partitions={number: Position(offset=offset, epoch=3) for number, offset in held.items()},
            )
            for topic, held in topics.items()
        },
    )


def test_equal_offsets_have_equal_json_in_any_order() -> None:
    one = offsets(b={10: 5, 2: 7}, a={0: 1})
    other = offsets(a={0: 1}, b={2: 7, 10: 5})
    assert json.dumps(one.to_document()) == json.dumps(other.to_document())
    assert list(one.to_document()["topics"]["b"]["partitions"]) == ["2", "10"]


def test_a_document_survives_the_checkpoint_byte_for_byte() -> None:
    text = json.dumps(offsets(orders={0: 1 << 60, 1: 0}).to_document())
    assert json.dumps(read_document(json.loads(text)).to_document()) == text
    assert json.dumps(json.loads(text)) == text


def test_positions_are_gone_through_in_order() -> None:
    assert [place for place, _ in offsets(b={1: 0, 0: 0}, a={3: 0})] == [
        TopicPartition("a", 3),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    ]


@pytest.mark.parametrize("document", [{}, {"orders": {"0": 5}}, {"version": 2, "topics": {}}])
def test_a_checkpoint_of_another_source_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ClientError, match=r"has no offsets of this source.*new checkpointLocation"):
        read_document(document)


@pytest.mark.parametrize("offset", ["5", 5.0, None, True])
def test_damaged_offsets_are_named(offset: object) -> None:
    document = offsets(orders={0: 5}).to_document()
    document["topics"]["orders"]["partitions"]["0"]["offset"] = offset
    with pytest.raises(ClientError, match=r"damaged .*is not a whole number"):
        read_document(document)
