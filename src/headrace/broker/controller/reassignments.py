# SPDX-License-Identifier: Apache-2.0
"""Requests of operators to the controller: leader elections, reassignments, unregistered nodes.

Each request is decided on the newest view and written conditionally; the controller loop then continues a
reassignment (partition_reconciler.py). Decisions: machines/replication/election.py,
machines/replication/reassignment.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.loop import ControllerLoop
from headrace.broker.controller.partition_reconciler import StateChange, with_changes
from headrace.broker.network.yielding import yielding
from headrace.broker.replication.live_nodes import damaged_logs, live_nodes
from headrace.coordination.api_errors import store_failed
from headrace.coordination.cluster_metadata import Changed, ClusterMetadata
from headrace.errors import ApiError, CoordinationError
from headrace.machines.replication.election import preferred, unclean
from headrace.machines.replication.leader import Nodes
from headrace.machines.replication.reassignment import begun, cancelled
from headrace.types import ClusterView, Move, PartitionState, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode

Outcome = ApiError | None
Replicas = Sequence[int] | None
"""Of a partition; None: its reassignment is cancelled."""
_ATTEMPTS = 10
_AT_ONCE = 200
"""Partitions that are decided and written in one turn of the event loop."""
_NAMED = 8
_WHY_NOT = {
    ErrorCode.election_not_needed: "Leader election not needed for topic partition.",
    ErrorCode.preferred_leader_not_available: "The preferred leader is down or not in sync.",
    ErrorCode.eligible_leaders_not_available: "No replica of the partition is up.",
    ErrorCode.invalid_replica_assignment: "Replicas must be different nodes, and those to add must be up.",
    ErrorCode.no_reassignment_in_progress: "No partition reassignment is in progress.",
}


class _Draft:
    """A topic with changes of single partitions."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.moves: Mapping[int, Move] = topic.moves
        self.changes: dict[int, StateChange] = {}

    def put(self, index: int, after: PartitionState, epoch: int, *, lossy: bool = False) -> None:
        before = self.topic.partitions[index]
        signed = replace(after, controller_epoch=epoch)
        self.changes[index] = StateChange(TopicPartition(self.topic.name, index), before, signed, lossy)

    @property
    def wanted(self) -> Topic:
        return with_changes(self.topic, self.changes.values(), self.moves)


Step = Callable[[ClusterView, _Draft, TopicPartition], Outcome]


class Reassignments:
    """Elections, reassignments and unregistered nodes, as operators request them."""

    def __init__(
        self, *, cluster: ClusterMetadata, controller: Controller, controller_loop: ControllerLoop
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._controller_loop = controller_loop

    async def elect(
        self, asked: Sequence[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, Outcome]:
        """`asked` None: all partitions; the result then omits those that need no election."""
        partitions = asked
        if partitions is None:
            topics = self._cluster.view.topics.values()
            partitions = [TopicPartition(t.name, i) for t in topics for i in range(len(t.partitions))]
        step = self._elect_unclean if unclean else self._elect_preferred
        outcomes = await self._apply(partitions, step)
        if asked is not None:
            return outcomes
        return {
            partition: outcome
            for partition, outcome in outcomes.items()
            if outcome is None or outcome.code is not ErrorCode.election_not_needed
        }

    def _elect_preferred(self, view: ClusterView, draft: _Draft, partition: TopicPartition) -> Outcome:
        elected = preferred(draft.topic.partitions[partition.partition], live_nodes(view))
        if isinstance(elected, ErrorCode):
            return _refusal(elected)
        draft.put(partition.partition, elected, view.controller_epoch)
        return None

    def _elect_unclean(self, view: ClusterView, draft: _Draft, partition: TopicPartition) -> Outcome:
        state = draft.topic.partitions[partition.partition]
        contest = self._controller_loop.rules_of(draft.topic).contest(state)
        damaged = damaged_logs(view).get((draft.topic.topic_id, partition.partition), ())
        elected = unclean(contest, live_nodes(view).without(damaged), self._leading(draft))
        if isinstance(elected, ErrorCode):
            return _refusal(elected)
        draft.put(partition.partition, elected.state, view.controller_epoch, lossy=elected.lossy)
        return None

    async def reassign(
        self, wanted: Mapping[TopicPartition, Replicas], *, same_factor: bool = False
    ) -> dict[TopicPartition, Outcome]:
        def step(view: ClusterView, draft: _Draft, partition: TopicPartition) -> Outcome:
            replicas = wanted[partition]
            if replicas is None:
                return self._cancel(view, draft, partition.partition)
            return _begin(view, draft, partition.partition, tuple(replicas), same_factor)

        return await self._apply(list(wanted), step)

    async def unregister(self, node_id: int) -> None:
        """Removes a node permanently. Raises ApiError unless it is down and holds no replica."""
        for _ in range(_ATTEMPTS):
            _check_gone(self._cluster.view, node_id)
            if not self._cluster.has_known(node_id):
                raise ApiError(ErrorCode.broker_id_not_registered, f"There is no node {node_id}.")
            try:
                await self._cluster.remove_node(node_id)
            except Changed:
                continue
            except CoordinationError as error:
                raise store_failed(error) from error
            return
        raise ApiError(ErrorCode.request_timed_out, f"Node {node_id} keeps changing; try again.")

    def _leading(self, draft: _Draft) -> Counter[int]:
        return self._controller.leading(internal=draft.topic.internal)

    def _cancel(self, view: ClusterView, draft: _Draft, index: int) -> Outcome:
        move = draft.moves.get(index)
        if move is None:
            return _refusal(ErrorCode.no_reassignment_in_progress)
        contest = self._controller_loop.rules_of(draft.topic).contest(draft.topic.partitions[index])
        state = cancelled(contest, move, live_nodes(view), self._leading(draft))
        if state is None:
            return ApiError(
                ErrorCode.invalid_replica_assignment,
                f"Too few of the original replicas {list(move.original)} are in sync to go back to them.",
            )
        draft.moves = {key: each for key, each in draft.moves.items() if key != index}
        draft.put(index, state, view.controller_epoch)
        return None

    async def _apply(self, partitions: Sequence[TopicPartition], step: Step) -> dict[TopicPartition, Outcome]:
        """In pieces, between which other requests are served; each partition stands for itself."""
        outcomes: dict[TopicPartition, Outcome] = {each: None async for each in yielding(partitions, 1000)}
        asked = list(outcomes)
        async for start in yielding(range(0, len(asked), _AT_ONCE), 1):
            left = asked[start : start + _AT_ONCE]
            for _ in range(_ATTEMPTS):
                left = await self._attempt(left, step, outcomes)
                if not left:
                    break
        return outcomes

    async def _attempt(
        self, partitions: Sequence[TopicPartition], step: Step, outcomes: dict[TopicPartition, Outcome]
    ) -> list[TopicPartition]:
        """There is no `await` between reading the view and the commit. Returns the partitions in conflict."""
        view = self._cluster.view
        drafts: dict[str, _Draft] = {}
        of_topic: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            topic = view.topics.get(partition.topic)
            if topic is None or not 0 <= partition.partition < len(topic.partitions):
                outcomes[partition] = ApiError(
                    ErrorCode.unknown_topic_or_partition, f"There is no partition {partition}."
                )
                continue
            draft = drafts.setdefault(topic.name, _Draft(topic))
            outcomes[partition] = step(view, draft, partition)
            of_topic.setdefault(topic.name, []).append(partition)
        changed = [draft for draft in drafts.values() if draft.wanted is not draft.topic]
        written = await self._cluster.write_topics([draft.wanted for draft in changed])
        again = []
        for draft, refusal in zip(changed, written, strict=True):
            mine = [each for each in of_topic[draft.topic.name] if outcomes[each] is None]
            if refusal is None:
                for change in draft.changes.values():
                    self._controller_loop.record_change(change)
            outcomes |= dict.fromkeys(mine, refusal)
            if refusal is not None and refusal.code is ErrorCode.invalid_update_version:
                again += mine
        return again


def _begin(
    view: ClusterView, draft: _Draft, index: int, target: tuple[int, ...], same_factor: bool
) -> Outcome:
    state = draft.topic.partitions[index]
    under_way = draft.moves.get(index)
    present = state.replicas if under_way is None else under_way.original
    if same_factor and len(target) != len(present):
        return ApiError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {len(present)} to {len(target)}",
        )
    if under_way is None and target == state.replicas:
        return None
    outcome = begun(state, target, _staying(live_nodes(view)), under_way)
    if isinstance(outcome, ErrorCode):
        return _refusal(outcome)
    moved, move = outcome
    draft.moves = {**draft.moves, index: move}
    draft.put(index, moved, view.controller_epoch)
    return None


def _staying(nodes: Nodes) -> Nodes:
    return nodes._replace(epochs={node: e for node, e in nodes.epochs.items() if nodes.takes_on(node)})


def _check_gone(view: ClusterView, node_id: int) -> None:
    if node_id in view.nodes or node_id in view.joining:
        raise ApiError(
            ErrorCode.duplicate_broker_registration,
            f"Node {node_id} is up: stop it first, then ask again.",
        )
    held = [
        f"{topic.name}-{index}"
        for topic in view.topics.values()
        for index, state in enumerate(topic.partitions)
        if node_id in state.replicas
    ]
    if held:
        named = ", ".join(held[:_NAMED]) + (f" and {len(held) - _NAMED} more" if len(held) > _NAMED else "")
        raise ApiError(
            ErrorCode.invalid_request,
            f"Node {node_id} holds replicas of {len(held)} partition(s), {named}: "
            "move them to other nodes first (headrace cluster remove, or kafka-reassign-partitions).",
        )


def _refusal(code: ErrorCode) -> ApiError:
    return ApiError(code, _WHY_NOT.get(code, code.name))
