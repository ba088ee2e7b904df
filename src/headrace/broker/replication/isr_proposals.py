# SPDX-License-Identifier: Apache-2.0
"""Sends ISR changes proposed by this node's leaders to the controller: AlterPartition, many at a time.

An answer is a state, a refusal, or nothing; then the same is proposed again (R6, R15). Decides nothing.
Read next: machines/replication/leader.py (proposals), machines/replication/isr.py (how the controller
judges them).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from headrace.broker.partition.leader_role import LeaderRole
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.machines.replication.leader import IsrProposal
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

ALTER_PARTITION_VERSION = 3
ANSWER_TIMEOUT_MS = 5_000
RETRY_S = 0.1
MOST_PER_REQUEST = 1_000
_OUTCOME_OPEN = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
        ErrorCode.coordinator_not_available,
        ErrorCode.operation_not_attempted,
    }
)

Proposed = dict[tuple[UUID, int], tuple[LeaderRole, IsrProposal]]
OnAnswer = Callable[[LeaderRole, IsrProposal, Any], None]


class IsrProposals:
    """`on_stored`: called when a proposal was written, with the reply that has the new state."""

    def __init__(
        self, world: World, peers: Peers, cluster: ClusterMetadata, node_id: int, on_stored: OnAnswer
    ) -> None:
        self._world = world
        self._peers = peers
        self._cluster = cluster
        self._node_id = node_id
        self._on_stored = on_stored
        self._due: dict[LeaderRole, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def consider(self, leading: LeaderRole) -> None:
        """The ISR of this leader may have to change."""
        self._due[leading] = None
        self._wake.set()
        if self._task is None:
            self._task = self._world.tasks.spawn(self._run(), name="in-sync replicas")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._propose()
            except Exception:
                logger.exception("proposing ISR changes failed, will be retried")
                await self._world.tasks.sleep(RETRY_S)

    async def _propose(self) -> None:
        now_ms = int(self._world.clock.monotonic() * 1000)
        due, self._due = self._due, {}
        proposed: Proposed = {}
        for leading in due:
            if len(proposed) == MOST_PER_REQUEST:
                self.consider(leading)
                continue
            partition = leading.partition
            proposal = leading.machine.propose(now_ms) if leading.is_current else None
            if proposal is not None:
                proposed[partition.topic_id, partition.topic_partition.partition] = leading, proposal
        if not proposed:
            return
        try:
            await self._send(dict(proposed))
        except Exception:
            self._retry(proposed)  # a proposal without a reply would block the next one
            raise

    async def _send(self, proposed: Proposed) -> None:
        controller, epoch = self._cluster.view.controller_id, self._cluster.node_epoch
        try:
            if controller == NO_NODE or epoch is None:
                raise PeerLost("there is no controller now", sent=False)
            reply = await self._peers.request(
                controller,
                ApiKey.ALTER_PARTITION,
                ALTER_PARTITION_VERSION,
                _request(self._node_id, epoch, proposed),
                ANSWER_TIMEOUT_MS,
            )
        except PeerLost as error:
            logger.info("ISR changes will be proposed again: %s", error)
            self._retry(proposed)
            return
        if ErrorCode(reply.error_code) is not ErrorCode.none:
            logger.info("ISR changes will be proposed again: %s", ErrorCode(reply.error_code).name)
            self._retry(proposed)
            return
        for topic in reply.topics:
            for answer in topic.partitions:
                self._answered(proposed.pop((topic.topic_id, answer.partition_index), None), answer)
        self._retry(proposed)

    def _answered(self, asked: tuple[LeaderRole, IsrProposal] | None, answer: Any) -> None:
        if asked is None:
            return
        leading, proposal = asked
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.none:
            self._on_stored(leading, proposal, answer)
        elif code in _OUTCOME_OPEN:
            self._retry({(leading.partition.topic_id, answer.partition_index): asked})
        else:
            logger.info("%s: %s", leading.partition.topic_partition, code.name)
            leading.machine.refused(proposal, code)
            leading.update_high_watermark()

    def _retry(self, proposed: Proposed) -> None:
        if not proposed:
            return
        for leading, proposal in proposed.values():
            leading.machine.unknown(proposal)
            self._due[leading] = None
        self._world.tasks.call_later(RETRY_S, self._wake.set)


def _request(node_id: int, node_epoch: int, proposed: Proposed) -> dict[str, Any]:
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for (topic_id, index), (_, proposal) in proposed.items():
        members = [{"broker_id": node, "broker_epoch": epoch} for node, epoch in proposal.isr]
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "leader_epoch": proposal.leader_epoch,
                "new_isr_with_epochs": members,
                "leader_recovery_state": 0,
                "partition_epoch": proposal.partition_epoch,
            }
        )
    listed = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
    return {"broker_id": node_id, "broker_epoch": node_epoch, "topics": listed}
