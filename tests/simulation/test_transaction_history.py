# SPDX-License-Identifier: Apache-2.0
"""The judge of transactional copies passes what a right broker does, and finds each planted anomaly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from headrace.log.producers.markers import EndTransactionMarker, build_marker
from headrace.types import TopicPartition
from headrace.wire.batch import assign, read_header
from headrace.wire.records import Record, build_batch
from tests.harness.jepsen.checker import analyze
from tests.harness.jepsen.operations import FinalLog, Polled, Sent
from tests.harness.transactions.history import (
    CommittedRead,
    OffsetRead,
    TransactionHistory,
    Value,
    Written,
    check,
    fold_log,
)

IN, OUT, OTHER = TopicPartition("in", 0), TopicPartition("out", 0), TopicPartition("out", 1)


@dataclass
class Right:
    """Of the input a, b, c: a copied by transaction 1 (aborted), a and b by 2, c by 3."""

    history: TransactionHistory = field(default_factory=TransactionHistory)
    inputs: dict[TopicPartition, list[Value]] = field(default_factory=lambda: {IN: [b"a", b"b", b"c"]})
    outputs: dict[TopicPartition, list[Written]] = field(
        default_factory=lambda: {
            OUT: [Written(0, b"a|1", False), Written(2, b"a|2", True), Written(4, b"c|3", True)],
            OTHER: [Written(0, b"b|2", True)],
        }
    )

    def __post_init__(self) -> None:
        history = self.history
        history.begin(IN, 0, 1, {OUT: [b"a"]})
        history.offset_reads.append(OffsetRead(IN, -1, None, history.tick(), history.tick()))
        second = history.begin(IN, 0, 2, {OUT: [b"a"], OTHER: [b"b"]})
        history.commit_asked(second)
        history.reads.append(CommittedRead("r", OUT, 0, 4, [(2, b"a|2")], history.tick()))
        history.committed(second)
        history.offset_reads.append(OffsetRead(IN, 2, 2, history.tick(), history.tick()))
        history.reads.append(CommittedRead("r", OTHER, 0, 2, [(0, b"b|2")], history.tick()))
        third = history.begin(IN, 2, 3, {OUT: [b"c"]})
        history.commit_asked(third)
        history.reads.append(CommittedRead("r", OUT, 4, 6, [(4, b"c|3")], history.tick()))
        history.reads.append(CommittedRead("probe", OUT, 1, 3, [(2, b"a|2")], history.tick(), True))
        history.committed(third)
        history.offset_reads.append(OffsetRead(IN, 3, 3, history.tick(), history.tick()))

    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in check(self.history, self.inputs, self.outputs)}

    def read(self, partition: TopicPartition, start: int, end: int, records: list[tuple[int, Value]]) -> None:
        """One more, which asked for its position."""
        answered = self.history.tick()
        self.history.reads.append(CommittedRead("x", partition, start, end, records, answered, True))

    def read_offset(self, offset: int, number: int | None) -> None:
        asked = self.history.tick()
        self.history.offset_reads.append(OffsetRead(IN, offset, number, asked, self.history.tick()))


def test_a_right_history_passes() -> None:
    assert Right().kinds() == set()


def plant_invented(right: Right) -> None:
    right.outputs[OTHER].append(Written(2, b"z|1", False))


def plant_written_twice(right: Right) -> None:
    right.outputs[OUT].append(Written(6, b"a|1", False))


def plant_hanging(right: Right) -> None:
    right.outputs[OUT][0] = Written(0, b"a|1", None)


def plant_both_markers(right: Right) -> None:
    right.outputs[OTHER][0] = Written(0, b"b|2", False)


def plant_lost_commit(right: Right) -> None:
    right.outputs[OUT][1] = Written(2, b"a|2", False)
    right.outputs[OTHER][0] = Written(0, b"b|2", False)


def plant_lost_commit_without_a_record(right: Right) -> None:
    del right.outputs[OUT][2]


def plant_uncalled_commit(right: Right) -> None:
    right.outputs[OUT][0] = Written(0, b"a|1", True)


def plant_torn_transaction(right: Right) -> None:
    right.outputs[OTHER].clear()


def plant_not_of_the_input(right: Right) -> None:
    right.inputs[IN].remove(b"c")


def plant_reordered_copy(right: Right) -> None:
    right.inputs[IN] = [b"c", b"b", b"a"]


def plant_duplicate_copy(right: Right) -> None:
    right.outputs[OUT][0] = Written(0, b"a|1", True)


def plant_missing_copy(right: Right) -> None:
    right.inputs[IN].append(b"d")


def plant_moved_reader(right: Right) -> None:
    reads = right.history.reads
    reads[2] = reads[2]._replace(start=5, records=[])


def plant_lost_read(right: Right) -> None:
    right.read(OUT, 0, 9, [(2, b"a|2"), (4, b"c|3"), (8, b"d|3")])


def plant_aborted_read(right: Right) -> None:
    right.read(OUT, 0, 2, [(0, b"a|1")])


def plant_read_of_an_open_transaction(right: Right) -> None:
    right.outputs[OUT][0] = Written(0, b"a|1", None)
    right.read(OUT, 0, 2, [(0, b"a|1")])


def plant_precommitted_read(right: Right) -> None:
    reads = right.history.reads
    reads[0] = reads[0]._replace(answered_at=1)


def plant_torn_read(right: Right) -> None:
    right.read(OUT, 0, 6, [(4, b"c|3")])


def plant_invented_offset(right: Right) -> None:
    right.read_offset(9, 3)


def plant_aborted_offset(right: Right) -> None:
    right.read_offset(1, 1)


def plant_precommitted_offset(right: Right) -> None:
    reads = right.history.offset_reads
    reads[1] = reads[1]._replace(asked_at=1, answered_at=2)


def plant_fallen_offset(right: Right) -> None:
    right.read_offset(2, 2)


def plant_forgotten_offset(right: Right) -> None:
    right.read_offset(-1, None)


def plant_stable_read_without_an_acknowledged_commit(right: Right) -> None:
    del right.history.offset_reads[1:]
    asked = right.history.tick()
    right.history.offset_reads.append(OffsetRead(IN, 2, 2, asked, right.history.tick(), stable=True))


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        ("invented", plant_invented),
        ("written-twice", plant_written_twice),
        ("hanging", plant_hanging),
        ("both-markers", plant_both_markers),
        ("lost-commit", plant_lost_commit),
        ("lost-commit", plant_lost_commit_without_a_record),
        ("uncalled-commit", plant_uncalled_commit),
        ("torn-transaction", plant_torn_transaction),
        ("not-of-the-input", plant_not_of_the_input),
        ("reordered-copy", plant_reordered_copy),
        ("duplicate-copy", plant_duplicate_copy),
        ("missing-copy", plant_missing_copy),
        ("moved-reader", plant_moved_reader),
        ("lost-read", plant_lost_read),
        ("aborted-read", plant_aborted_read),
        ("aborted-read", plant_read_of_an_open_transaction),
        ("precommitted-read", plant_precommitted_read),
        ("torn-read", plant_torn_read),
        ("invented-offset", plant_invented_offset),
        ("aborted-offset", plant_aborted_offset),
        ("precommitted-offset", plant_precommitted_offset),
        ("fallen-offset", plant_fallen_offset),
        ("fallen-offset", plant_forgotten_offset),
        ("fallen-offset", plant_stable_read_without_an_acknowledged_commit),
    ],
)
def test_a_planted_anomaly_is_found(kind: str, plant: Callable[[Right], None]) -> None:
    right = Right()
    plant(right)
    assert kind in right.kinds()


def test_a_transaction_with_an_unknown_outcome_may_be_either() -> None:
    right = Right()
    second = right.history.transactions[2]
    right.history.transactions[2] = replace(second, committed_at=None)
    assert right.kinds() == set()


def test_a_commit_that_was_acknowledged_may_be_read_later_where_stability_is_not_asked_for() -> None:
    right = Right()
    del right.history.offset_reads[1:]
    right.read_offset(2, 2)
    assert right.kinds() == set()


def batches(*made: bytearray) -> Sequence[memoryview]:
    offset, found = 0, []
    for batch in made:
        header = read_header(batch)
        assign(memoryview(batch), 0, offset, header.batch_length, 0)
        offset += header.last_offset_delta + 1
        found.append(memoryview(batch))
    return found


def data(producer_id: int, *values: bytes) -> bytearray:
    records = [Record(index, 0, None, value) for index, value in enumerate(values)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=producer_id >= 0
    )


def marker(producer_id: int, *, commits: bool) -> bytearray:
    ending = EndTransactionMarker(commits=commits, coordinator_epoch=0)
    return build_marker(ending, producer_id=producer_id, producer_epoch=0, timestamp=0)


def test_the_fold_of_a_log_knows_what_each_marker_ended() -> None:
    log = batches(
        data(1, b"a", b"b"), data(2, b"c"), marker(1, commits=False), data(1, b"d"), data(-1, b"e"),
        marker(2, commits=True), marker(2, commits=False), data(2, b"f"), marker(1, commits=True),
    )  # fmt: skip
    assert fold_log(log) == [
        Written(0, b"a", False),
        Written(1, b"b", False),
        Written(2, b"c", True),
        Written(4, b"d", True),
        Written(5, b"e", True),
        Written(8, b"f", None),
    ]


def final_logs(right: Right) -> dict[TopicPartition, FinalLog]:
    inputs = {each: FinalLog(records=list(enumerate(log))) for each, log in right.inputs.items()}
    outputs = {
        each: FinalLog(records=[(w.offset, w.value) for w in log if w.committed], gaps_allowed=True)
        for each, log in right.outputs.items()
    }
    return {**inputs, **outputs}


def analyzed(right: Right) -> set[str]:
    return {each.kind for each in analyze(right.history.operations(), final_logs(right))}


def test_a_right_history_passes_the_checker_of_operations_too() -> None:
    assert analyzed(Right()) == set()


def plant_read_of_another_life(right: Right) -> None:
    """The third transaction goes on behind a record that its own client has not read."""
    second, third = right.history.transactions[2], right.history.transactions[3]
    second.client = third.client = "copier, life 1"
    second.polled, third.polled = [(0, b"a")], [(2, b"c")]


def plant_reader_that_goes_back(right: Right) -> None:
    right.history.reads[2] = right.history.reads[0]._replace(answered_at=right.history.tick())


@pytest.mark.parametrize(
    ("kinds", "plant"),
    [
        ({"G1a"}, plant_aborted_read),
        ({"lost-write"}, plant_lost_commit_without_a_record),
        ({"poll-skip"}, plant_read_of_another_life),
        ({"nonmonotonic-poll"}, plant_reader_that_goes_back),
    ],
)
def test_the_checker_of_operations_finds_a_planted_anomaly(
    kinds: set[str], plant: Callable[[Right], None]
) -> None:
    right = Right()
    plant(right)
    assert analyzed(right) == kinds


def test_a_transaction_is_an_operation_that_polls_and_sends() -> None:
    right = Right()
    right.history.transactions[2].polled = [(0, b"a"), (1, b"b")]
    aborted, committed, *_ = (each for each in right.history.operations() if each.f == "txn")
    assert (aborted.type, aborted.completed_at) == ("fail", None)
    assert (committed.type, committed.completed_at is not None) == ("ok", True)
    assert committed.value == (
        Polled({IN: [(0, b"a"), (1, b"b")]}), Sent(OUT, b"a|2"), Sent(OTHER, b"b|2"),
    )  # fmt: skip
