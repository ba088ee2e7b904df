# SPDX-License-Identifier: Apache-2.0
"""How far offsets are behind the latest, with partitions and topics that came, went and came again."""

from __future__ import annotations

from pyspark_headrace.reading.lag import behind_latest
from pyspark_headrace.reading.offset_lookup import PartitionState, TopicState
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions


def offsets(topic_id: str, **positions: int) -> Offsets:
    at = {int(number[1:]): Position(offset=offset) for number, offset in positions.items()}
    return Offsets(query="q", topics={"orders": TopicPositions(topic_id=topic_id, partitions=at)})


LOG = {
    "orders": TopicState(
        topic_id="a",
        partitions={
            0: PartitionState(epoch=0, first=0, end=10),
            1: PartitionState(epoch=0, first=4, end=9),
        },
    )
}


def test_the_end_of_the_log_minus_the_position() -> None:
    assert behind_latest(offsets("a", p0=7, p1=9), LOG) == {"orders": {"0": 3, "1": 0}}


def test_a_partition_without_a_position_is_behind_by_what_its_log_holds() -> None:
    assert behind_latest(offsets("a", p0=10), LOG) == {"orders": {"0": 0, "1": 5}}


def test_removed_records_do_not_count() -> None:
    assert behind_latest(offsets("a", p0=10, p1=1), LOG) == {"orders": {"0": 0, "1": 5}}


def test_positions_of_a_deleted_topic_do_not_count_in_its_successor() -> None:
    assert behind_latest(offsets("former", p0=9, p1=9), LOG) == {"orders": {"0": 10, "1": 5}}
    assert behind_latest(offsets("a", p0=9), {}) == {}


def test_a_truncated_log_is_not_behind() -> None:
    assert behind_latest(offsets("a", p0=12, p1=9), LOG) == {"orders": {"0": 0, "1": 0}}
