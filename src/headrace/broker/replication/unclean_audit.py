# SPDX-License-Identifier: Apache-2.0
"""Audit of committed records that a replica lost through an unclean election (R19).

Three nodes know a part of it: the controller (controller/election_audit.py: which epoch ended, where the new
leader's log ends), the new leader (how far its log is behind the high watermark it last learned), and each
replica that truncates committed records when it comes back (exactly which).
"""

from __future__ import annotations

import logging

from headrace.broker.replication.event_queue import EventQueue
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)


def audit_loss(
    events: EventQueue, node_id: int, name: TopicPartition, *, first: int, end: int, epoch: int, how: str
) -> None:
    """Committed records that this node lacks as the leader, or has to truncate as a follower."""
    logger.error(
        "audit: committed records of %s are lost in epoch %d, offsets %d to %d: %s",
        name, epoch, first, end - 1, how,
    )  # fmt: skip
    details = {"node": node_id, "epoch": epoch, "from": first, "to": end - 1, "how": how}
    events.note_partition(name, "given_up", details)
