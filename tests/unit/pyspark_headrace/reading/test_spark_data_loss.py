# SPDX-License-Identifier: Apache-2.0
"""A checkpoint held against the cluster: each way to lose data has its own word and its own policy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.options import DataLossPolicy, Selection
from pyspark_headrace.reading.data_loss import Detection, detect
from pyspark_headrace.reading.offset_lookup import PartitionState, TopicState
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions

ORDERS = Selection(names=("orders",))
ZERO = TopicPartition("orders", 0)


def at(*offsets: int, topic_id: str = "one", epoch: int = 4) -> Offsets:
    partitions = {number: Position(offset=offset, epoch=epoch) for number, offset in enumerate(offsets)}
    return Offsets(query="q", topics={"orders": TopicPositions(topic_id=topic_id, partitions=partitions)})


def now(*held: tuple[int, int], topic_id: str = "one", epoch: int = 4) -> dict[str, TopicState]:
    partitions = {
        number: PartitionState(epoch=epoch, first=first, end=end) for number, (first, end) in enumerate(held)
    }
    return {"orders": TopicState(topic_id=topic_id, partitions=partitions)}


def detect_losses(
    start: Offsets, snapshot: dict[str, TopicState], policy: DataLossPolicy = "skip", **options: Any
) -> Detection:
    options = {"selection": ORDERS, "ends_of_epochs": {}, **options}
    return detect(start, snapshot, policy=policy, **options)


def offsets_of(detection: Detection) -> dict[int, int]:
    return {place.partition: position.offset for place, position in detection.offsets}


def test_a_log_that_grew_lost_nothing() -> None:
    detection = detect_losses(at(5, 7), now((0, 50), (7, 7)), "fail")
    assert detection.losses == ()
    assert detection.offsets == at(5, 7)


def test_a_new_leader_alone_changes_no_position() -> None:
    detection = detect_losses(at(5), now((0, 50), epoch=9), "fail", ends_of_epochs={ZERO: 5})
    assert detection.offsets == at(5)


def test_a_new_partition_starts_at_its_first_offset() -> None:
    assert offsets_of(detect_losses(at(5), now((0, 50), (3, 9)), "fail")) == {0: 5, 1: 3}


def test_records_deleted_by_retention_are_counted_and_skipped() -> None:
    detection = detect_losses(at(5), now((50, 60)))
    (loss,) = detection.losses
    assert (loss.kind, loss.partition, loss.records) == ("aged out", 0, 45)
    assert offsets_of(detection) == {0: 50}


def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    detection = detect_losses(at(5), now((0, 60), topic_id="two"))
    assert [loss.kind for loss in detection.losses] == ["recreated"]
    assert detection.offsets.topics["orders"].topic_id == "two"
    assert offsets_of(detection) == {0: 0}


def test_a_deleted_topic_is_removed() -> None:
    detection = detect_losses(at(5), {})
    assert [loss.kind for loss in detection.losses] == ["deleted"]
    assert detection.offsets.topics == {}


@pytest.mark.parametrize(("policy", "goes_on_at"), [("skip", 80), ("earliest", 3)])
def test_a_log_that_was_cut_short_goes_on_as_asked(policy: DataLossPolicy, goes_on_at: int) -> None:
    """It has grown past the position since: only the epoch tells that these are other records."""
    detection = detect_losses(at(100), now((3, 500), epoch=6), policy, ends_of_epochs={ZERO: 80})
    assert [loss.kind for loss in detection.losses] == ["cut short"]
    assert offsets_of(detection) == {0: goes_on_at}


def test_without_epochs_a_log_that_ends_before_the_position_was_cut() -> None:
    assert [loss.kind for loss in detect_losses(at(100), now((0, 80))).losses] == ["cut short"]


def test_a_new_leader_without_a_known_end_is_no_truncation() -> None:
    assert detect_losses(at(100), now((0, 80), epoch=5), "fail", ends_of_epochs={ZERO: 100}).losses == ()


def test_a_topic_no_longer_subscribed_is_no_loss() -> None:
    more = Selection(names=("payments", "orders"))
    assert offsets_of(detect_losses(at(5), now((0, 9)), "fail", selection=more)) == {0: 5}
    assigned = Selection(partitions={"orders": (0,)})
    assert offsets_of(detect_losses(at(5, 7), now((0, 9)), "fail", selection=assigned)) == {0: 5}


def test_a_checkpoint_of_other_topics_altogether_is_refused() -> None:
    payments = Selection(names=("payments",))
    with pytest.raises(ClientError, match="query that read 'orders'; this query reads none of these topics"):
        detect_losses(at(5), {}, "fail", selection=payments)
    assert detect_losses(at(5), {}, "skip", selection=payments).offsets.topics == {}


@pytest.mark.parametrize(
    ("snapshot", "ends", "said"),
    [
        ({}, {}, "topic 'orders' was deleted.*onDataLoss=skip to continue without it"),
        (now((0, 9), topic_id="two"), {}, "recreated: its id is two, the checkpoint's is one"),
        (
            now((50, 60)),
            {},
            "no longer holds offset 5: it begins at 50 now; up to 45 records were removed by retention",
        ),
        (now((0, 60), epoch=9), {ZERO: 2}, "truncated to offset 2 after the query had read up to 5"),
    ],
)
def test_each_loss_names_its_cause_and_the_next_step(snapshot: Any, ends: Any, said: str) -> None:
    with pytest.raises(ClientError) as failure:
        detect_losses(at(5), snapshot, "fail", ends_of_epochs=ends)
    assert re.search(said, str(failure.value))
    assert failure.value.next_step is not None
