"""A checkpoint held against the cluster: each way to lose data has its own word and its own policy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.options import DataLossPolicy, Selection
from pyspark_headrace.survey import PartitionNow, TopicNow
from pyspark_headrace.truth import Standing, hold_against

ORDERS = Selection(names=("orders",))
ZERO = TopicPartition("orders", 0)


def at(*offsets: int, topic_id: str = "one", epoch: int = 4) -> Offsets:
    partitions = {number: Position(offset=offset, epoch=epoch) for number, offset in enumerate(offsets)}
    return Offsets(query="q", topics={"orders": TopicPositions(topic_id=topic_id, partitions=partitions)})


def now(*held: tuple[int, int], topic_id: str = "one", epoch: int = 4) -> dict[str, TopicNow]:
    partitions = {
        number: PartitionNow(epoch=epoch, first=first, end=end) for number, (first, end) in enumerate(held)
    }
    return {"orders": TopicNow(topic_id=topic_id, partitions=partitions)}


def stand(
    start: Offsets, picture: dict[str, TopicNow], policy: DataLossPolicy = "skip", **options: Any
) -> Standing:
    options = {"selection": ORDERS, "ends_of_epochs": {}, **options}
    return hold_against(start, picture, policy=policy, **options)


def offsets_of(standing: Standing) -> dict[int, int]:
    return {place.partition: position.offset for place, position in standing.offsets}


def test_a_log_that_grew_lost_nothing() -> None:
    standing = stand(at(5, 7), now((0, 50), (7, 7)), "fail")
    assert standing.losses == ()
    assert standing.offsets == at(5, 7)


def test_a_new_leader_alone_changes_no_position() -> None:
    standing = stand(at(5), now((0, 50), epoch=9), "fail", ends_of_epochs={ZERO: 5})
    assert standing.offsets == at(5)


def test_a_new_partition_stands_at_its_first_offset() -> None:
    assert offsets_of(stand(at(5), now((0, 50), (3, 9)), "fail")) == {0: 5, 1: 3}


def test_what_aged_out_is_counted_and_left_behind() -> None:
    standing = stand(at(5), now((50, 60)))
    (loss,) = standing.losses
    assert (loss.kind, loss.partition, loss.records) == ("aged out", 0, 45)
    assert offsets_of(standing) == {0: 50}


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    standing = stand(at(5), now((0, 60), topic_id="two"))
    assert [loss.kind for loss in standing.losses] == ["recreated"]
    assert standing.offsets.topics["orders"].topic_id == "two"
    assert offsets_of(standing) == {0: 0}


def test_a_deleted_topic_is_forgotten() -> None:
    standing = stand(at(5), {})
    assert [loss.kind for loss in standing.losses] == ["deleted"]
    assert standing.offsets.topics == {}


@pytest.mark.parametrize(("policy", "goes_on_at"), [("skip", 80), ("earliest", 3)])
def test_a_log_that_was_cut_short_goes_on_as_asked(policy: DataLossPolicy, goes_on_at: int) -> None:
    """It has grown past the position since: only the epoch tells that these are other records."""
    standing = stand(at(100), now((3, 500), epoch=6), policy, ends_of_epochs={ZERO: 80})
    assert [loss.kind for loss in standing.losses] == ["cut short"]
    assert offsets_of(standing) == {0: goes_on_at}


def test_without_epochs_a_log_that_ends_before_the_position_was_cut() -> None:
    assert [loss.kind for loss in stand(at(100), now((0, 80))).losses] == ["cut short"]


def test_a_new_leader_that_has_not_told_its_end_yet_was_not_cut() -> None:
    assert stand(at(100), now((0, 80), epoch=5), "fail", ends_of_epochs={ZERO: 100}).losses == ()


def test_what_is_no_longer_asked_for_is_no_loss() -> None:
    more = Selection(names=("payments", "orders"))
    assert offsets_of(stand(at(5), now((0, 9)), "fail", selection=more)) == {0: 5}
    assigned = Selection(partitions={"orders": (0,)})
    assert offsets_of(stand(at(5, 7), now((0, 9)), "fail", selection=assigned)) == {0: 5}


def test_a_checkpoint_of_other_topics_altogether_is_refused() -> None:
    payments = Selection(names=("payments",))
    with pytest.raises(ClientError, match="query that read 'orders', and this one reads none of it; give"):
        stand(at(5), {}, "fail", selection=payments)
    assert stand(at(5), {}, "skip", selection=payments).offsets.topics == {}


@pytest.mark.parametrize(
    ("picture", "ends", "said"),
    [
        ({}, {}, "topic 'orders' was deleted.*onDataLoss=skip to go on without it"),
        (now((0, 9), topic_id="two"), {}, "created anew: its id is two, the checkpoint's is one"),
        (
            now((50, 60)),
            {},
            "no longer holds offset 5: it begins at 50 now, so that up to 45 records aged out",
        ),
        (now((0, 60), epoch=9), {ZERO: 2}, "cut back to offset 2 after the query had read up to 5"),
    ],
)
def test_each_loss_says_what_happened_and_what_to_do(picture: Any, ends: Any, said: str) -> None:
    with pytest.raises(ClientError) as failure:
        stand(at(5), picture, "fail", ends_of_epochs=ends)
    assert re.search(said, str(failure.value))
    assert failure.value.next_step is not None
