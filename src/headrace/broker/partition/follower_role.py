# SPDX-License-Identifier: Apache-2.0
"""The follower of a partition: applies the decisions of the follower state machine to its log.

Read next: machines/replication/follower.py, replication/fetch_loop.py (which fetches and appends),
leader_role.py.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.partition.partition import Partition
from headrace.broker.partition.roles import Role
from headrace.machines.replication.follower import Follower


class FollowerRole(Role):
    """`on_loss`: called before committed records, from an offset on, are truncated."""

    __slots__ = ("_on_loss", "busy_until", "machine", "partition", "waits_for_flush")

    def __init__(
        self, partition: Partition, machine: Follower, on_loss: Callable[[FollowerRole, int], None]
    ) -> None:
        self._on_loss = on_loss
        self.partition = partition
        self.machine = machine
        self.busy_until = 0.0
        """On the monotonic clock: until then it counts as busy, since it had records a short while ago."""
        self.waits_for_flush = False
        """Its log holds unflushed records from before, which must not be reported to the leader (R23)."""

    @property
    def is_current(self) -> bool:
        """False once the partition got another role."""
        return self.partition.role is self

    @property
    def lag(self) -> int:
        return self.machine.lag

    @property
    def is_replaceable(self) -> bool:
        return True

    def truncate_to(self, offset: int) -> None:
        """R12. Below the high watermark only after an unclean election (R19).

        Where no record is truncated, an epoch in which this node led and appended nothing may end.
        """
        log, commits = self.partition.log, self.partition.commits
        if offset < commits.high_watermark:
            self._on_loss(self, offset)
        if offset < log.log_end_offset:
            log.truncate_to(offset)
        else:
            log.epochs.truncate_from_end(offset)
            log.epochs.save()
        commits.reset(min(commits.high_watermark, log.log_end_offset))

    def restart_at(self, offset: int) -> None:
        """Drops the whole log: the leader no longer has what comes next."""
        self.partition.log.truncate_fully_and_start_at(offset)
        self.partition.commits.reset(offset)

    def update_high_watermark(self) -> None:
        """Publishes the machine's high watermark; it moves back only where the log was truncated."""
        log, commits = self.partition.log, self.partition.commits
        offset = max(self.machine.high_watermark, log.log_start_offset)
        if offset < commits.high_watermark:
            commits.reset(offset)
        else:
            commits.advance(offset, commits.appended_bytes, self.answer_for)
