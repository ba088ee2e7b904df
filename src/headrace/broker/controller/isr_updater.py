# SPDX-License-Identifier: Apache-2.0
"""Validates and writes the ISR changes that leaders propose (AlterPartition), many in one commit (R4, R15).

A proposal that conflicts with another change of its topic is validated again on the newer state. Decisions:
machines/replication/isr.py. Read next: controller/loop.py, handlers/replicas.py (AlterPartition).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headrace.broker.controller.partition_reconciler import StateChange, TopicRules, with_changes
from headrace.broker.replication.live_nodes import damaged_logs, live_nodes
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, CoordinationError
from headrace.machines.replication.isr import judged
from headrace.machines.replication.leader import IsrProposal, Nodes
from headrace.types import PartitionState, Topic, TopicId, TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

IsrOutcome = PartitionState | ErrorCode
_ATTEMPTS = 10


@dataclass(slots=True, eq=False)
class _Asked:
    topic_id: TopicId
    partition: int
    proposal: IsrProposal
    answer: asyncio.Future[IsrOutcome]
    attempts: int = 0


@dataclass(slots=True)
class _Draft:
    """A topic with the ISR changes of one round."""

    topic: Topic
    changes: dict[int, StateChange] = field(default_factory=dict)
    asked: list[tuple[_Asked, IsrOutcome]] = field(default_factory=list)

    def state(self, index: int) -> PartitionState:
        change = self.changes.get(index)
        return self.topic.partitions[index] if change is None else change.after


class IsrUpdater:
    def __init__(
        self,
        cluster: ClusterMetadata,
        world: World,
        rules_of: Callable[[Topic], TopicRules],
        on_change: Callable[[StateChange], None],
    ) -> None:
        self._cluster = cluster
        self._spawn = world.tasks.spawn
        self._rules_of = rules_of
        self._on_change = on_change
        self._queue: list[_Asked] = []
        self._working: asyncio.Task[None] | None = None

    def submit(self, topic_id: TopicId, partition: int, proposal: IsrProposal) -> asyncio.Future[IsrOutcome]:
        """The state as written, or the error code. The future fails with ApiError when the outcome is unknown
        (R6)."""
        answer: asyncio.Future[IsrOutcome] = asyncio.get_running_loop().create_future()
        self._queue.append(_Asked(topic_id, partition, proposal, answer))
        if self._working is None:
            self._working = self._spawn(self._work(), name="in-sync replicas")
        return answer

    async def _work(self) -> None:
        try:
            while self._queue:
                asked, self._queue = self._queue, []
                try:
                    await self._round(asked)
                except (ApiError, CoordinationError) as error:
                    _fail(asked, error)
                except Exception:
                    logger.exception("ISR changes could not be validated")
                    _fail(asked, ApiError(ErrorCode.unknown_server_error))
        finally:
            self._working = None
            left, self._queue = self._queue, []
            _fail(left, ApiError(ErrorCode.not_controller, "The node is stopping."))

    async def _round(self, asked: list[_Asked]) -> None:
        """There is no `await` between reading the view, with all own commits in it, and the next commit."""
        await self._cluster.wait_for_own_commits()
        drafts: dict[TopicId, _Draft] = {}
        nodes = live_nodes(self._cluster.view)
        for each in asked:
            self._validate(each, drafts, nodes)
        changed = [draft for draft in drafts.values() if draft.changes]
        outcomes = await self._cluster.write_topics(
            [with_changes(draft.topic, draft.changes.values()) for draft in changed]
        )
        refused = {id(d): outcome for d, outcome in zip(changed, outcomes, strict=True) if outcome}
        for draft in drafts.values():
            self._answer(draft, refused.get(id(draft)))

    def _validate(self, asked: _Asked, drafts: dict[TopicId, _Draft], nodes: Nodes) -> None:
        view = self._cluster.view
        topic = view.topic_by_id(asked.topic_id)
        if topic is None or not 0 <= asked.partition < len(topic.partitions):
            code = ErrorCode.unknown_topic_id if topic is None else ErrorCode.unknown_topic_or_partition
            _resolve(asked, code)
            return
        draft = drafts.setdefault(asked.topic_id, _Draft(topic))
        state = draft.state(asked.partition)
        if _is_ahead(asked.proposal, state):
            _resolve(asked, ErrorCode.not_controller)  # the leader has a newer state: it proposes again
            return
        needed = self._rules_of(topic).contest(state).needed
        damaged = damaged_logs(view).get((asked.topic_id, asked.partition), ())
        outcome = judged(state, asked.proposal, nodes.without(damaged), needed)
        if isinstance(outcome, PartitionState):
            outcome = replace(outcome, controller_epoch=view.controller_epoch)
            name = TopicPartition(topic.name, asked.partition)
            draft.changes[asked.partition] = StateChange(name, state, outcome)
        draft.asked.append((asked, outcome))

    def _answer(self, draft: _Draft, refusal: ApiError | None) -> None:
        if refusal is None:
            for change in draft.changes.values():
                self._on_change(change)
        for asked, outcome in draft.asked:
            if refusal is None or not isinstance(outcome, PartitionState):
                _resolve(asked, outcome)
            elif refusal.code is ErrorCode.invalid_update_version and asked.attempts < _ATTEMPTS:
                asked.attempts += 1
                self._queue.append(asked)
            else:
                _fail([asked], refusal)


def _is_ahead(proposal: IsrProposal, state: PartitionState) -> bool:
    """Whether it is based on a newer state than this node's view; a final refusal would never be retried."""
    return proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch


def _resolve(asked: _Asked, outcome: IsrOutcome) -> None:
    if not asked.answer.done():
        asked.answer.set_result(outcome)


def _fail(asked: list[_Asked], error: ApiError | CoordinationError) -> None:
    for each in asked:
        if not each.answer.done():
            each.answer.set_exception(error)
