# SPDX-License-Identifier: Apache-2.0
"""Where the tail of a table begins in its topic, and what is said when records between the two are gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.tables.tails import Tail, compare, ranges_of
from pyspark_headrace.options import read_settings
from pyspark_headrace.reading.offset_lookup import PartitionState, TopicState
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions

OPTIONS = {"bootstrap": "127.0.0.1:1", "subscribe": "orders"}


def stored(*ends: int, topic_id: str = "one") -> Offsets:
    partitions = {number: Position(offset=offset, epoch=4) for number, offset in enumerate(ends)}
    return Offsets(query="q", topics={"orders": TopicPositions(topic_id=topic_id, partitions=partitions)})


def now(*held: tuple[int, int], topic_id: str = "one") -> dict[str, TopicState]:
    partitions = {
        number: PartitionState(epoch=4, first=first, end=end) for number, (first, end) in enumerate(held)
    }
    return {"orders": TopicState(topic_id=topic_id, partitions=partitions)}


def tail(end: Offsets, snapshot: dict[str, TopicState], **options: Any) -> Tail:
    settings = read_settings({**OPTIONS, **options}, streaming=False)
    return Tail(ranges=ranges_of(compare(end, snapshot, settings, {}, "/data/orders"), snapshot))


def bounds(found: Tail) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in found.ranges]


def test_the_tail_is_from_the_tables_end_to_the_topics() -> None:
    found = tail(stored(5, 7, 9), now((0, 50), (7, 7), (9, 10)))
    assert bounds(found) == [(0, 5, 50), (2, 9, 10)]
    options = {name: json.loads(text) for name, text in found.options().items()}
    assert options == {
        "assign": {"orders": [0, 2]},
        "startingOffsets": {"orders": {"0": 5, "2": 9}},
        "endingOffsets": {"orders": {"0": 50, "2": 10}},
        "topicIds": {"orders": "one"},
    }


def test_a_topic_may_begin_anywhere_before_the_tables_end() -> None:
    assert bounds(tail(stored(5), now((5, 6)))) == [(0, 5, 6)]
    assert bounds(tail(stored(5), now((5, 5)))) == []


def test_partitions_that_were_added_are_read_from_their_beginning() -> None:
    assert bounds(tail(stored(5), now((0, 5), (0, 3)))) == [(1, 0, 3)]


def test_all_offsets_that_retention_removed_are_named() -> None:
    message = (
        r"retention removed offsets 5 to 7 of partition 0 of topic 'orders'; offsets 0 to 1 of partition 1 "
        r"of topic 'orders' before they were stored"
    )
    with pytest.raises(ClientError, match=message) as raised:
        tail(stored(5), now((8, 9), (2, 3)))
    assert raised.value.code == "DATA_LOSS"
    skipped = tail(stored(5), now((8, 9), (2, 3)), onDataLoss="skip")
    assert bounds(skipped) == [(0, 8, 9), (1, 2, 3)]


def test_another_topic_of_the_same_name_is_refused_by_its_id() -> None:
    with pytest.raises(ClientError, match=r"recreated: its id is two, and the table /data/orders .* id one"):
        tail(stored(5), now((0, 9), topic_id="two"))
    assert bounds(tail(stored(5), now((0, 9), topic_id="two"), onDataLoss="skip")) == [(0, 0, 9)]


def test_a_log_that_ends_before_the_table_was_cut_short() -> None:
    with pytest.raises(ClientError, match=r"truncated to offset 3 after the table /data/orders was stored"):
        tail(stored(5), now((0, 3)))


def test_a_deleted_topic_and_one_that_is_not_named() -> None:
    with pytest.raises(ClientError, match="from which the table /data/orders is stored, was deleted"):
        tail(stored(5), {})
    assert bounds(tail(stored(5), {}, onDataLoss="skip")) == []
    with pytest.raises(ClientError, match="stored from topic 'orders', which is not among"):
        tail(stored(5), now((0, 9)), subscribe="others")
