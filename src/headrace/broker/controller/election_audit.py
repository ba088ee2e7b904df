# SPDX-License-Identifier: Apache-2.0
"""The controller's audit of an unclean election: a log line and an event that name the lost records (R19).

Read next: controller/loop.py, replication/unclean_audit.py (what the replicas know of the loss).
"""

from __future__ import annotations

import logging
from typing import Any

from headrace.broker.controller.partition_reconciler import StateChange
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Tasks

logger = logging.getLogger(__name__)

_VERSION = 4
_TIMEOUT_MS = 5_000
_ATTEMPTS = 20
_RETRY_S = 0.25


async def audit_election(change: StateChange, *, peers: Peers, tasks: Tasks, events: EventQueue) -> None:
    before, after = change.before, change.after
    had_all = list(before.isr) or list(before.elr) or list(before.last_known_elr)
    logger.error(
        "audit: node %d leads %s by an unclean election, epoch %d after %d: records that only others had are "
        "lost (nodes that had all: %s)",
        after.leader, change.partition, after.leader_epoch, before.leader_epoch, had_all,
    )  # fmt: skip
    first = await _epoch_start(change, peers, tasks)
    if first is not None:
        logger.error("audit: %s: records at offset %d and after it are lost", change.partition, first)
    details: dict[str, Any] = {"leader": after.leader, "epoch": after.leader_epoch}
    details |= {"epoch_before": before.leader_epoch, "had_all": had_all, "from": first}
    events.note_partition(change.partition, "unclean", details)


async def _epoch_start(change: StateChange, peers: Peers, tasks: Tasks) -> int | None:
    """The log end offset of the new leader when its epoch began; None when it does not answer."""
    for _ in range(_ATTEMPTS):
        try:
            found = await _ask_leader(change, peers)
        except PeerLost:
            found = None
        if found is not None:
            return found
        await tasks.sleep(_RETRY_S)  # it may not have become leader yet
    return None


async def _ask_leader(change: StateChange, peers: Peers) -> int | None:
    name, after = change.partition, change.after
    asked = {
        "partition": name.partition,
        "current_leader_epoch": after.leader_epoch,
        "leader_epoch": after.leader_epoch - 1,
    }
    body = {"replica_id": -1, "topics": [{"topic": name.topic, "partitions": [asked]}]}
    reply = await peers.request(after.leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, _VERSION, body, _TIMEOUT_MS)
    answer: Any = reply.topics[0].partitions[0]
    if answer.error_code != ErrorCode.none:
        return None
    return max(int(answer.end_offset), 0)  # -1: its log has nothing older than its own epoch
