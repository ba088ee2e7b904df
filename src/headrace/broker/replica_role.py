"""This node's part in a partition that several nodes hold: leading it, or following another leader.

Between a machine, which decides, and the partition, which acts. Knows no connection and no view.
Read next: machines/leader.py, machines/follower.py; replication.py (who gives out the roles).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.topic_settings import FLUSH_ACK
from headrace.errors import ApiError
from headrace.machines.follower import Follower
from headrace.machines.leader import Divergence, Leader, divergence
from headrace.types import ClusterView
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partition import Partition


MOST_ENDS = 1024
"""Where little is committed for long, the oldest are forgotten: readers then wait for their time-out."""


class ReplicaFetch(NamedTuple):
    """What a replica says of its log when it asks for more."""

    node: int
    node_epoch: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int


def check_replica(view: ClusterView, node_id: int, node_epoch: int) -> None:
    """R3: only a registered node. Its view may be newer than this node's, so a later epoch passes."""
    node = view.nodes.get(node_id)
    if node is None:
        raise ApiError(ErrorCode.cluster_authorization_failed, f"node {node_id} is not in the cluster")
    if node_epoch < node.epoch:
        raise ApiError(ErrorCode.stale_broker_epoch)


class Leading:
    """`on_news`: the in-sync replicas may have to change."""

    __slots__ = ("_ends", "_now_ms", "_on_news", "_partition", "machine")

    def __init__(
        self,
        partition: Partition,
        machine: Leader,
        now_ms: Callable[[], int],
        on_news: Callable[[Leading], None],
    ) -> None:
        self.machine = machine
        self._partition = partition
        self._now_ms = now_ms
        self._on_news = on_news
        self._ends: deque[tuple[int, int]] = deque(maxlen=MOST_ENDS)
        """Log ends that are not committed, and the bytes appended up to each: what readers count."""

    @property
    def partition(self) -> Partition:
        return self._partition

    @property
    def acknowledgement(self) -> ErrorCode:
        """For what is below the high watermark (R17)."""
        if self.machine.under_min_insync:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    @property
    def is_short(self) -> bool:
        """Some replica is not in sync."""
        return len(self.machine.isr) < self.machine.replica_count

    def check_insync(self) -> None:
        """For acks=all, before anything is written (R17). Raises ApiError."""
        refusal = self.machine.refusal_before_append()
        if refusal is not None:
            machine = self.machine
            raise ApiError(
                refusal,
                f"{self._partition.topic_partition}: {len(machine.isr)} replicas in sync, "
                f"{machine.min_insync} needed (min.insync.replicas)",
            )

    def log_grew(self, appended_bytes: int) -> None:
        self._ends.append((self._partition.log_end_offset, appended_bytes))
        self.log_moved()
        self._partition.wake_replicas()

    def log_moved(self) -> None:
        """An append, a flush or a deletion: the machine is told where the log is now."""
        partition = self._partition
        end = partition.log_end_offset
        durable = partition.flushed_offset if partition.settings.flush == FLUSH_ACK else end
        self.machine.log_ended(end, durable, partition.log_start_offset)
        self.show()

    def diverges(self, asked: ReplicaFetch) -> Divergence | None:
        """Whether the replica's log parts from this one; ApiError for an epoch that is not this leader's.

        The caller reads and calls `fetched` with no `await` in between (R11).
        """
        refusal = self.machine.check_epoch(asked.leader_epoch)
        if refusal is not None:
            raise ApiError(refusal)
        log = self._partition.log
        return divergence(log.epochs, log.log_end_offset, asked.offset, asked.last_fetched_epoch)

    def fetched(self, asked: ReplicaFetch) -> None:
        refusal = self.machine.follower_fetched(
            asked.node, asked.node_epoch, asked.offset, self._now_ms(), asked.log_start
        )
        if refusal is not None:
            raise ApiError(refusal)
        self.show()
        if self.is_short:
            self._on_news(self)

    def show(self) -> None:
        """What the machine lets readers see."""
        partition = self._partition
        high_watermark = self.machine.high_watermark
        if high_watermark <= partition.high_watermark:
            return
        ends, readable = self._ends, partition.readable_bytes
        while ends and ends[0][0] <= high_watermark:
            readable = ends.popleft()[1]
        partition.advance_high_watermark(high_watermark, readable)


class Following:
    """`on_loss`: committed records, from an offset on, are about to be cut."""

    __slots__ = ("_on_loss", "busy_until", "machine", "partition", "waits_for_disk")

    def __init__(
        self, partition: Partition, machine: Follower, on_loss: Callable[[Following, int], None]
    ) -> None:
        self._on_loss = on_loss
        self.partition = partition
        self.machine = machine
        self.busy_until = 0.0
        """On the steady clock: it had records a short while ago."""
        self.waits_for_disk = False
        """What its log holds from before is not safe yet, so that it must not be reported (R23)."""

    @property
    def is_current(self) -> bool:
        """False once the partition got another role while something was under way."""
        return self.partition.following is self

    def cut_at(self, offset: int) -> None:
        """R12. Below the high watermark only after an unclean election (R19)."""
        if offset < self.partition.high_watermark:
            self._on_loss(self, offset)
        self.partition.truncate_to(offset)

    def show(self) -> None:
        self.partition.follow_high_watermark(self.machine.high_watermark)
