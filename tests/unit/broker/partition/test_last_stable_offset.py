# SPDX-License-Identifier: Apache-2.0
"""The last stable offset: min(high watermark, max(log start, first transaction not decided and replicated)).

Against its definition, which the harness computes from the batches of the log alone.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.broker.metrics import TopicCounters
from headrace.broker.partition.commit_tracker import CommitTracker
from headrace.broker.partition.follower_role import FollowerRole
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.settings.topic_settings import FLUSH_OS, TopicSettings
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.testing.memory_files import MemoryFiles
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.batches.log_tools import StillClock, batch, open_log
from tests.harness.batches.transactions import TransactionalProducer, stable_offset

SMALL = LogConfig(segment_bytes=600)


def tracker(log: PartitionLog, high_watermark: int) -> CommitTracker:
    return CommitTracker(log, high_watermark, lambda call: None, flushed_only=False)


def advance(commits: CommitTracker, offset: int) -> None:
    commits.advance(offset, 0, lambda last_offset: ErrorCode.none)


def follower(log: PartitionLog, high_watermark: int) -> FollowerRole:
    class Unused:
        writable = True

        def request(self, partition: Partition) -> None: ...

    async def persist() -> None: ...

    partition = Partition(
        topic_partition=TopicPartition("t", 0),
        topic_id=UUID(int=1),
        leader_epoch=0,
        log=log,
        settings=TopicSettings(log=SMALL, flush=FLUSH_OS),
        clock=StillClock(),
        flusher=Unused(),  # type: ignore[arg-type]
        counters=TopicCounters(),
        disk=Unused(),
        call_soon=lambda call: None,
        persist_offsets=persist,
        high_watermark=high_watermark,
    )
    return FollowerRole(partition, None, lambda role, offset: None)  # type: ignore[arg-type]


def test_stands_at_an_open_transaction_and_moves_with_its_replicated_marker() -> None:
    log = open_log(MemoryFiles(), SMALL)
    producer = TransactionalProducer(1)
    log.append(*batch(b"plain"), 0)
    producer.send(log)
    log.append(*batch(b"plain"), 0)
    commits = tracker(log, 3)
    assert commits.last_stable_offset == 1
    producer.commit(log)
    assert commits.last_stable_offset == 1, "the marker is not replicated"
    advance(commits, 4)
    assert commits.last_stable_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_ended_transactions_do_not_hold_it_after_a_restart(clean: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, SMALL)
    producer = TransactionalProducer(1)
    producer.send(log)
    producer.commit(log)
    log.append(*batch(b"plain"), 0)
    if clean:
        log.close()
    again = open_log(files, SMALL, clean=clean)
    assert tracker(again, 3).last_stable_offset == 3
    assert tracker(again, 2).last_stable_offset == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_marker_above_the_high_watermark_is_known_after_a_restart(clean: bool, commits: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, SMALL)
    producer = TransactionalProducer(1)
    log.append(*batch(b"plain"), 0)
    for _ in range(9):
        producer.send(log, bytes(80))
    producer.end(log, commits=commits)
    for _ in range(9):
        log.append(*batch(bytes(80)), 0)
    assert log.segment_count > 3
    if clean:
        log.close()
    again = open_log(files, SMALL, clean=clean)
    for high_watermark in range(20):
        found = tracker(again, high_watermark).last_stable_offset
        assert found == stable_offset(again, high_watermark), high_watermark


def test_ended_transactions_do_not_hold_it_after_a_truncation() -> None:
    log = open_log(MemoryFiles(), SMALL)
    producer = TransactionalProducer(1)
    producer.send(log)
    producer.commit(log)
    for _ in range(4):
        log.append(*batch(b"plain"), 0)
    role = follower(log, 4)
    role.truncate_to(5)
    assert role.partition.last_stable_offset == 4


def test_truncated_marker_opens_its_transaction_again() -> None:
    log = open_log(MemoryFiles(), SMALL)
    producer = TransactionalProducer(1)
    log.append(*batch(b"plain"), 0)
    producer.send(log)
    producer.commit(log)
    role = follower(log, 3)
    assert role.partition.last_stable_offset == 3
    role.truncate_to(2)
    assert role.partition.last_stable_offset == 1


def test_high_watermark_that_moves_back_below_a_marker_makes_it_undecided_again() -> None:
    log = open_log(MemoryFiles(), SMALL)
    producer = TransactionalProducer(1)
    log.append(*batch(b"plain"), 0)
    producer.send(log)
    producer.commit(log)
    log.append(*batch(b"plain"), 0)
    role = follower(log, 2)
    commits = role.partition.commits
    advance(commits, 4)
    assert commits.last_stable_offset == 4
    commits.reset(2)
    assert commits.last_stable_offset == stable_offset(log, 2) == 1


def test_never_below_the_log_start() -> None:
    log = open_log(MemoryFiles(), SMALL)
    TransactionalProducer(1).send(log)
    for _ in range(5):
        log.append(*batch(b"plain"), 0)
    commits = tracker(log, 6)
    assert commits.last_stable_offset == 0
    log.delete_records_before(4)
    assert commits.last_stable_offset == 4
