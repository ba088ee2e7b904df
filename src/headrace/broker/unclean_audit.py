"""What an unclean election gave up, as far as nodes know it: audit lines, and events for whoever reads later.

Told in three places, since nobody knows all: the controller (which epoch ended, where the new leader's log
ends), the new leader (how much was committed when it last heard), and each replica that comes back and cuts
committed records (exactly which). R19. Read next: controller_office.py, replication.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.broker.partition_care import StateChange
from headrace.broker.peers import PeerLost
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

_OFFSET_FOR_LEADER_EPOCH, _VERSION = 23, 4
_WITHIN_MS = 5_000
_ATTEMPTS = 20
_AGAIN_S = 0.25


async def audit_election(broker: Broker, change: StateChange) -> None:
    """The controller's part."""
    before, after = change.before, change.after
    had_all = list(before.isr) or list(before.elr) or list(before.last_known_elr)
    logger.error(
        "audit: node %d leads %s by an unclean election, epoch %d after %d: records that only others had are "
        "given up (nodes that had all: %s)",
        after.leader, change.partition, after.leader_epoch, before.leader_epoch, had_all,
    )  # fmt: skip
    first = await _epoch_start(broker, change)
    if first is not None:
        logger.error("audit: %s: given up is what lay at offset %d and after it", change.partition, first)
    details: dict[str, Any] = {"leader": after.leader, "epoch": after.leader_epoch}
    details |= {"epoch_before": before.leader_epoch, "had_all": had_all, "from": first}
    broker.timeline.note_partition(change.partition, "unclean", details)


async def _epoch_start(broker: Broker, change: StateChange) -> int | None:
    """Where the new leader's log ended when it took over; None when it does not say."""
    for _ in range(_ATTEMPTS):
        try:
            found = await _ask_leader(broker, change)
        except PeerLost:
            found = None
        if found is not None:
            return found
        await broker.world.tasks.sleep(_AGAIN_S)  # it takes over first
    return None


async def _ask_leader(broker: Broker, change: StateChange) -> int | None:
    name, after = change.partition, change.after
    asked = {
        "partition": name.partition,
        "current_leader_epoch": after.leader_epoch,
        "leader_epoch": after.leader_epoch - 1,
    }
    body = {"replica_id": -1, "topics": [{"topic": name.topic, "partitions": [asked]}]}
    reply = await broker.peers.request(after.leader, _OFFSET_FOR_LEADER_EPOCH, _VERSION, body, _WITHIN_MS)
    answer: Any = reply.topics[0].partitions[0]
    if answer.error_code != ErrorCode.none:
        return None
    return max(int(answer.end_offset), 0)  # -1: it has nothing older than its own epoch


def audit_loss(broker: Broker, name: TopicPartition, *, first: int, end: int, epoch: int, how: str) -> None:
    """A replica's part: committed records that this node lacks as the leader, or has to cut as a follower."""
    logger.error(
        "audit: committed records of %s are given up in epoch %d, offsets %d to %d: %s",
        name, epoch, first, end - 1, how,
    )  # fmt: skip
    details = {"node": broker.node_id, "epoch": epoch, "from": first, "to": end - 1, "how": how}
    broker.timeline.note_partition(name, "given_up", details)
