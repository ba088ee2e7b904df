# SPDX-License-Identifier: Apache-2.0
"""The leader of a partition with several replicas: passes events to the leader state machine.

The machine decides (machines/replication/leader.py): in-sync replicas, high watermark, the answers to
acks=all produce requests. Independent of connections and of the cluster view.
Read next: replication/replicas.py (which assigns roles), follower_role.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.broker.partition.partition import Partition
from headrace.broker.partition.roles import ReplicaFetch, Role
from headrace.errors import ApiError
from headrace.machines.replication.ack_times import AckTimes
from headrace.machines.replication.leader import Divergence, Leader, divergence
from headrace.types import ClusterView
from headrace.wire.error_codes import ErrorCode

MAX_UNCOMMITTED_ENDS = 1024
"""While little is committed for long, the oldest are dropped: readers then wait for their timeout."""


def check_replica(view: ClusterView, node_id: int, node_epoch: int) -> None:
    """R3: only a registered node, with the epoch it is registered with.

    A node that has just registered again may be ahead of this node's view: the error lets it retry.
    """
    node = view.nodes.get(node_id)
    if node is None:
        raise ApiError(ErrorCode.cluster_authorization_failed, f"node {node_id} is not in the cluster")
    if node_epoch < node.epoch:
        raise ApiError(ErrorCode.stale_broker_epoch)
    if node_epoch > node.epoch:
        raise ApiError(
            ErrorCode.broker_id_not_registered, f"node {node_id} is not registered with epoch {node_epoch}"
        )


class LeaderRole(Role):
    """`on_isr_change_due`: called when the in-sync replicas may have to change. `on_ack_time`: called with
    how many milliseconds a replica took to acknowledge an append (R16b)."""

    __slots__ = ("_ends", "_now_ms", "_on_isr_change_due", "acks", "machine", "partition")
    needs_insync = True

    def __init__(
        self,
        partition: Partition,
        machine: Leader,
        now_ms: Callable[[], int],
        on_isr_change_due: Callable[[LeaderRole], None],
        on_ack_time: Callable[[int, int], None],
    ) -> None:
        self.partition = partition
        self.machine = machine
        self._now_ms = now_ms
        self._on_isr_change_due = on_isr_change_due
        self.acks = AckTimes(machine.state.replicas, now_ms, on_ack_time)
        self._ends: deque[tuple[int, int]] = deque(maxlen=MAX_UNCOMMITTED_ENDS)
        """Log end offsets above the high watermark, each with the bytes appended up to it."""

    @property
    def is_current(self) -> bool:
        """False once the partition got another role."""
        return self.partition.role is self

    @property
    def latest_is_known(self) -> bool:
        return self.machine.latest_is_known

    @property
    def is_replaceable(self) -> bool:
        return self.machine.can_be_replaced

    def is_deleted_below(self, offset: int) -> bool:
        """Whether no live replica holds a record below `offset` any more."""
        return self.machine.low_watermark >= offset

    # Produce

    def refusal_before_append(self) -> ApiError | None:
        machine = self.machine
        code = machine.refusal_before_append()
        if code is None:
            return None
        return ApiError(
            code,
            f"{self.partition.topic_partition}: {len(machine.state.isr)} replicas in sync, "
            f"{machine.min_insync} needed (min.insync.replicas)",
        )

    def answer_for(self, last_offset: int) -> ErrorCode | None:
        return self.machine.answer_for(last_offset)

    def on_append(self, last_offset: int) -> ErrorCode | None:
        commits = self.partition.commits
        log_end = self.partition.log.log_end_offset
        self._ends.append((log_end, commits.appended_bytes))
        self.acks.appended(log_end)
        self.on_log_change(commits.appended_bytes)
        commits.wake_replicas()
        return self.machine.answer_for(last_offset)

    def on_log_change(self, readable_bytes: int) -> None:
        log, durable_end = self.partition.log, self.partition.commits.durable_end
        self.machine.update_log_end(log.log_end_offset, durable_end, log.log_start_offset)
        self.acks.reached(self.machine.node_id, durable_end)
        self.update_high_watermark()

    # Replica fetch

    def diverges(self, asked: ReplicaFetch) -> Divergence | None:
        """ApiError for an epoch that is not this leader's.

        The caller reads and calls `fetched` with no `await` in between (R11).
        """
        refusal = self.machine.check_epoch(asked.leader_epoch)
        if refusal is not None:
            raise ApiError(refusal)
        log = self.partition.log
        return divergence(log.epochs, log.log_end_offset, asked.offset, asked.last_fetched_epoch)

    def fetched(self, asked: ReplicaFetch) -> None:
        refusal = self.machine.follower_fetched(
            asked.node, asked.node_epoch, asked.offset, self._now_ms(), asked.log_start
        )
        if refusal is not None:
            raise ApiError(refusal)
        if self.machine.keeps_up(asked.node):
            self.acks.reached(asked.node, asked.offset)
        else:
            self.acks.forget(asked.node)
        self.update_high_watermark()
        if asked.node not in self.machine.state.isr:  # it may join
            self._on_isr_change_due(self)

    def update_high_watermark(self) -> None:
        """Publishes the machine's high watermark; called after every event of the machine."""
        commits = self.partition.commits
        high_watermark = self.machine.high_watermark
        if high_watermark <= commits.high_watermark:
            return
        ends, readable = self._ends, commits.readable_bytes
        while ends and ends[0][0] <= high_watermark:
            readable = ends.popleft()[1]
        commits.advance(high_watermark, readable, self.machine.answer_for)
