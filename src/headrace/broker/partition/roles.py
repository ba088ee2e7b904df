# SPDX-License-Identifier: Apache-2.0
"""What a replica does by its role: none, sole replica, leader or follower of its partition.

A partition asks its role after every change of its log, and before and after every acks=all append.
Read next: leader_role.py and follower_role.py (partitions with several replicas), partition.py.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.partition.commit_tracker import CommitTracker
from headrace.errors import ApiError
from headrace.log.partition_log import PartitionLog
from headrace.machines.replication.leader import Divergence
from headrace.wire.error_codes import ErrorCode


class ReplicaFetch(NamedTuple):
    """The fields of a follower's Fetch for one partition."""

    node: int
    node_epoch: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int


class Role:
    """The interface of all roles. By itself: no role, in which a replica commits and serves nothing."""

    __slots__ = ()
    needs_insync = False
    """Whether `refusal_before_append` has to be asked: min.insync.replicas applies."""

    def refusal_before_append(self) -> ApiError | None:
        """Of an acks=all append, when too few replicas are in sync (R17)."""
        return None

    def answer_for(self, last_offset: int) -> ErrorCode | None:
        """The answer to an acks=all produce that was appended; None while it has to wait (R17)."""
        return ErrorCode.not_leader_or_follower

    def on_append(self, last_offset: int) -> ErrorCode | None:
        """Called when records of producers were appended, the last at `last_offset`; `answer_for` it."""
        return ErrorCode.not_leader_or_follower

    def on_log_change(self, readable_bytes: int) -> None:
        """Called when the flushed offset, the log start or the flush policy changed.

        `readable_bytes`: appended up to the flushed offset.
        """

    def diverges(self, asked: ReplicaFetch) -> Divergence | None:
        """Where the log of a follower that fetches diverges from this one (R12). Raises ApiError."""
        raise ApiError(ErrorCode.unknown_topic_or_partition, "the partition has no followers")

    def fetched(self, asked: ReplicaFetch) -> None:
        """A follower fetched: it holds all records below its fetch offset. Raises ApiError."""

    @property
    def latest_is_known(self) -> bool:
        """Whether the high watermark covers all that earlier leaders committed (R13)."""
        return True

    @property
    def lag(self) -> int:
        """Committed records that the leader has and this replica lacks."""
        return 0

    @property
    def is_replaceable(self) -> bool:
        """Whether another replica holds all that is committed, so that this one can go offline (R27)."""
        return False


class SoleReplica(Role):
    """The only replica: what is stored in its own log, as safe as the flush policy asks, is committed."""

    __slots__ = ("_commits", "_log")

    def __init__(self, log: PartitionLog, commits: CommitTracker) -> None:
        self._log = log
        self._commits = commits

    def answer_for(self, last_offset: int) -> ErrorCode | None:
        return ErrorCode.none if self._commits.high_watermark > last_offset else None

    def on_append(self, last_offset: int) -> ErrorCode | None:
        commits = self._commits
        if commits.flushed_only:
            return None
        commits.advance(self._log.log_end_offset, commits.appended_bytes, self.answer_for)
        return ErrorCode.none

    def on_log_change(self, readable_bytes: int) -> None:
        commits = self._commits
        commits.advance(commits.durable_end, readable_bytes, self.answer_for)
