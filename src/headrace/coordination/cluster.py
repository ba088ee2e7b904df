"""What the store's entries mean, written once: cluster id, nodes, controller, topics, configs, producer ids.

Works on any Store; knows no request and no partition log. Decisions (placement, validation, elections)
are the controller's: broker/controller.py.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.coordination import documents, refusals
from headrace.coordination.membership import DiskWord, Membership, Registration
from headrace.coordination.outcomes import commit_and_know
from headrace.coordination.producer_ids import ProducerIds
from headrace.coordination.projection import Projection
from headrace.coordination.store import (
    Applied,
    Changes,
    Check,
    Conflict,
    Create,
    Delete,
    Operation,
    Set,
    Store,
)
from headrace.coordination.version_waits import VersionWaits
from headrace.coordination.wishes import MAX_CHUNK_BYTES, Wish, chunks
from headrace.errors import ApiError, CoordinationError
from headrace.types import ClusterView, Endpoint, Node, Topic
from headrace.world import World, new_uuid

_CHANGES_TIMEOUT_MS = 30_000
_RETRY_S = 0.2

_log = logging.getLogger(__name__)

Subscriber = Callable[[ClusterView, ClusterView], None]


class Changed(CoordinationError):
    """The entry changed since it was read; nothing was written. Look at the new view and decide again."""


class _Controllership(NamedTuple):
    epoch: int
    epoch_key_version: int


class _Step(NamedTuple):
    old: ClusterView
    new: ClusterView
    topics: tuple[str, ...]


class Cluster:
    """This process's picture of the cluster, and its only way to change it."""

    def __init__(self, store: Store, world: World, projection: Projection) -> None:
        self._store = store
        self._world = world
        self._projection = projection
        self._subscribers: list[Subscriber] = []
        self._last_step: _Step | None = None
        self._version_waits = VersionWaits()
        self._newest_commit = projection.view.version
        self._membership: Membership | None = None
        self.disk_word = DiskWord()
        self._controllership: _Controllership | None = None
        self.wants_control = False
        """Whether to become controller again after a lost session."""
        self._producer_ids = ProducerIds(self, projection)
        self._follower: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: Store, world: World) -> Cluster:
        """A store that holds no cluster yet gets one, with a new id."""
        view = await store.view()
        if documents.CLUSTER not in view.entries:
            cluster_id = base64.urlsafe_b64encode(new_uuid(world.random).bytes).decode().rstrip("=")
            await commit_and_know(store, [Create(documents.CLUSTER, documents.encode(id=cluster_id))])
            view = await store.view()  # with the id of whoever was first
        cluster = cls(store, world, Projection(view))
        cluster._follower = world.tasks.spawn(cluster._follow(), name="cluster view")
        return cluster

    @property
    def view(self) -> ClusterView:
        return self._projection.view

    @property
    def session_in_doubt(self) -> bool:
        """True when the store may already have given this node up: stop acting as leader first (R7)."""
        return self._membership is not None and self._membership.in_doubt

    @property
    def is_controller(self) -> bool:
        return self._controllership is not None

    def subscribe(self, callback: Subscriber) -> None:
        """`callback(old, new)` runs on the loop after each change and must not raise."""
        self._subscribers.append(callback)

    def changed_topics(self, old: ClusterView, new: ClusterView) -> Iterable[str]:
        """Names of topics that differ between two views; quick for the step a subscriber is told of."""
        if self._last_step is not None and self._last_step.old is old and self._last_step.new is new:
            return self._last_step.topics
        names = dict.fromkeys((*old.topics, *new.topics))
        return tuple(name for name in names if old.topics.get(name) is not new.topics.get(name))

    async def settle(self) -> None:
        """Returns when the view holds this process's own last commit and its subscribers have seen it."""
        await self._reach(self._newest_commit)

    async def close(self) -> None:
        """Ends the session (its entries go at once) and closes the store."""
        if self._membership is not None:
            await self._membership.close()
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
        self._controllership = None
        await self._store.close()
        self._version_waits.end()

    # Membership

    async def register_node(
        self,
        *,
        node_id: int,
        host_id: str,
        hostname: str,
        endpoints: Iterable[Endpoint],
        rack: str | None = None,
        session_ttl_ms: int,
        directory_id: str = "",
        replaces_dead_predecessor: bool = False,
        waits_for_admission: bool = False,
        lossless: bool = True,
    ) -> int:
        """Makes the node known and keeps it so; returns its epoch (R3).

        A live node of the same id is refused. `replaces_dead_predecessor`: the caller holds the lock of the
        node's data directory, so whoever registered this id from it is dead and need not be waited for.
        `waits_for_admission`: it counts as live when the controller has seen to what it may have lost (R20).
        """
        registration = Registration(
            node_id=node_id,
            host_id=host_id,
            hostname=hostname,
            endpoints=tuple(endpoints),
            rack=rack,
            session_ttl_ms=session_ttl_ms,
            directory_id=directory_id,
            waits_for_admission=waits_for_admission,
            lossless=lossless,
        )
        self._membership = Membership(self._store, self._world, registration, self._projection, self)
        return await self._membership.join(replaces_dead_predecessor=replaces_dead_predecessor)

    @property
    def node_epoch(self) -> int | None:
        """Of this node's present registration."""
        return None if self._membership is None else self._membership.epoch

    async def announce(self, *, leaving: bool = False, disk: DiskWord | None = None) -> None:
        """The controller moves away what this node leads (R22), or what its disk cannot lead (R24, R27)."""
        self.disk_word = disk or self.disk_word
        if self._membership is not None:
            await self._membership.announce(leaving=leaving)

    async def become_controller(self, node_id: int, *, instead_of: int | None = None) -> int | None:
        """The new controller epoch, or None when another node is the controller (R2).

        `instead_of`: the epoch of a controller that is known to be dead, whose session has not ended yet.
        Entry and epoch are written together, so nobody else can be pushed out; should it live, it is fenced.
        """
        if self._membership is None:
            raise CoordinationError("a node registers before it becomes controller")
        self.wants_control = True
        while documents.CONTROLLER not in self._projection.versions or (
            instead_of is not None and self.view.controller_epoch == instead_of
        ):
            outcome = await self.commit(self._claim(node_id))
            await (self.settle() if isinstance(outcome, Applied) else self.catch_up())
        self._controllership = self._held_controllership()
        return None if self._controllership is None else self._controllership.epoch

    def _claim(self, node_id: int) -> list[Operation]:
        assert self._membership is not None
        epoch = self.view.controller_epoch + 1
        claim = documents.encode(node=node_id, epoch=epoch)
        present = self._projection.versions.get(documents.CONTROLLER)
        return [
            *([] if present is None else [Delete(documents.CONTROLLER, present)]),
            Create(documents.CONTROLLER, claim, owner=self._membership.session_id),
            self.write(documents.CONTROLLER_EPOCH, documents.encode(epoch=epoch)),
        ]

    def _held_controllership(self) -> _Controllership | None:
        """Claim and epoch are written together, so that the epoch is ours while the claim is."""
        owner = self._projection.owners.get(documents.CONTROLLER)
        if owner is None or self._membership is None or owner != self._membership.session_id:
            return None
        return _Controllership(
            self.view.controller_epoch, self._projection.versions[documents.CONTROLLER_EPOCH]
        )

    # Topics and settings: written by the controller alone

    async def create_topic(self, topic: Topic) -> None:
        for refusal in filter(None, await self.create_topics([topic])):
            raise refusal

    async def create_topics(self, topics: Sequence[Topic]) -> list[ApiError | None]:
        """An answer for each; the others are made whatever becomes of one."""
        results: list[ApiError | None] = [None] * len(topics)
        wishes = []
        for index, topic in enumerate(topics):
            operation = Create(documents.topic_key(topic.name), documents.encode_topic(topic))
            if len(operation.value) > MAX_CHUNK_BYTES - len(operation.key):
                results[index] = refusals.too_many_partitions(topic)
            else:
                wishes.append(Wish(index, operation, refusals.already_exists(topic.name)))
        await self._commit_in_chunks(wishes, results)
        return results

    async def delete_topics(self, names: Sequence[str]) -> list[ApiError | None]:
        gone = [refusals.unknown_topic(name) for name in names]
        results: list[ApiError | None] = list(gone)
        pending = {index: name for index, name in enumerate(names) if name in self.view.topics}
        while pending:
            wishes = []
            for index, name in pending.items():
                results[index] = None
                key = documents.topic_key(name)
                wishes.append(Wish(index, Delete(key, self._projection.versions[key]), gone[index]))
            await self._commit_in_chunks(wishes, results)
            # A conflict means "gone" only when it is gone: otherwise it was changed meanwhile, and goes now.
            pending = {i: n for i, n in pending.items() if results[i] is gone[i] and n in self.view.topics}
        return results

    async def write_topics(self, topics: Sequence[Topic]) -> list[ApiError | None]:
        """The topics as they shall be; those that are no longer as the view of this moment has them are left.

        For states of partitions (R4): what was decided must have been decided on the present view.
        """
        results: list[ApiError | None] = [None] * len(topics)
        wishes = []
        for index, topic in enumerate(topics):
            key = documents.topic_key(topic.name)
            operation = Set(key, documents.encode_topic(topic), self._projection.versions[key])
            wishes.append(Wish(index, operation, refusals.changed_meanwhile(topic.name)))
        await self._commit_in_chunks(wishes, results)
        return results

    async def judge_node(self, node: Node, *, fenced: bool) -> None:
        """The controller's word on this incarnation: let in (R20), or given up. Raises Changed."""
        admission = documents.Admission(node.epoch, fenced)
        await self._set(documents.admission_key(node.node_id), documents.encode_admission(admission))

    async def forget_node(self, node_id: int) -> None:
        """Its entry, where that outlived it, and its settings; not the word on it (`Admission`)."""
        keys = documents.node_key(node_id), documents.node_configs_key(str(node_id))
        versions = self._projection.versions
        await self._carry_out([Delete(key, versions[key]) for key in keys if key in versions])

    async def alter_topic(self, name: str, **fields: Any) -> None:
        """Other partitions or configs. Raises Changed when the topic is not as the current view has it."""
        topic = replace(self._topic(name), **fields)
        value = documents.encode_topic(topic)
        if len(value) > MAX_CHUNK_BYTES - len(name) - 50:
            raise refusals.too_many_partitions(topic)
        await self._set(documents.topic_key(name), value)

    async def alter_node_configs(self, node: str, configs: Mapping[str, str]) -> None:
        """The whole new mapping for a node id as text, or "" for all nodes. Raises Changed as above."""
        await self._set(documents.node_configs_key(node), documents.encode_configs(configs))

    async def alter_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        await self._set(documents.group_configs_key(group_id), documents.encode_configs(configs))

    async def allocate_producer_ids(self, count: int) -> range:
        """Ids that no process was or will be given; taken from a block of this process's own."""
        return await self._producer_ids.take(count)

    # Writing

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        outcome = await commit_and_know(self._store, operations)
        if isinstance(outcome, Applied):
            self._newest_commit = max(self._newest_commit, outcome.version)
        return outcome

    async def catch_up(self) -> None:
        """Waits for the newest version that any process has committed so far."""
        newest = await self.commit([])
        assert isinstance(newest, Applied)
        await self._reach(newest.version)

    async def _commit_as_controller(self, operations: Sequence[Operation]) -> Applied | Conflict:
        """Fenced: refused when another controller has taken over since (R2)."""
        held = self._controllership
        if held is None:
            raise refusals.not_controller("This node is not the controller.")
        fence = Check(documents.CONTROLLER_EPOCH, held.epoch_key_version)
        outcome = await self.commit([fence, *operations])
        if outcome == Conflict(documents.CONTROLLER_EPOCH):
            self._controllership = None
            raise refusals.not_controller("Another node has become the controller.")
        return outcome

    async def _commit_in_chunks(self, wishes: Sequence[Wish], results: list[ApiError | None]) -> None:
        """A chunk that fails leaves the answers of those before it as they are."""
        failure: ApiError | None = None
        for chunk in chunks(wishes):
            if failure is None:
                failure = await self._commit_chunk(chunk, results)
            if failure is not None:
                for wish in chunk:
                    results[wish.index] = failure
        await self.settle()

    async def _commit_chunk(self, chunk: Sequence[Wish], results: list[ApiError | None]) -> ApiError | None:
        """All wishes but those in conflict; what kept the whole chunk from being committed is returned."""
        pending = {wish.operation.key: wish for wish in chunk}
        try:
            while pending:
                outcome = await self._commit_as_controller([wish.operation for wish in pending.values()])
                if isinstance(outcome, Applied):
                    break
                refused = pending.pop(outcome.key)
                results[refused.index] = refused.refusal
            if len(pending) < len(chunk):
                await self.catch_up()  # so that whoever was first is seen
        except ApiError as error:
            return error
        except CoordinationError as error:
            return refusals.store_failed(error)
        return None

    async def _set(self, key: str, value: bytes) -> None:
        await self._carry_out([self.write(key, value)])

    async def _carry_out(self, operations: Sequence[Operation]) -> None:
        outcome = await self._commit_as_controller(operations)
        if isinstance(outcome, Conflict):
            await self.catch_up()
            raise Changed(f"{outcome.key} was changed by another request at the same time")
        await self.settle()

    def write(self, key: str, value: bytes) -> Create | Set:
        """Conditional on the entry as the view has it."""
        version = self._projection.versions.get(key)
        return Create(key, value) if version is None else Set(key, value, version)

    def _topic(self, name: str) -> Topic:
        topic = self.view.topics.get(name)
        if topic is None:
            raise refusals.unknown_topic(name)
        return topic

    # Reading

    async def _follow(self) -> None:
        while True:
            try:
                changes = await self._store.changes(self.view.version, _CHANGES_TIMEOUT_MS)
                if changes.version > self.view.version:
                    self._take(changes)
            except Exception as error:  # noqa: BLE001 - a node that follows no more would act on an old view
                unforeseen = None if isinstance(error, CoordinationError) else error
                _log.warning("the cluster view stands still, will try again: %s", error, exc_info=unforeseen)
                await self._world.tasks.sleep(_RETRY_S)

    def _take(self, changes: Changes) -> None:
        before = self.view
        view = self._projection.apply(changes)
        if not changes.complete:
            names = (documents.topic_of_key(key) for key in changes.changed)
            self._last_step = _Step(before, view, tuple(name for name in names if name is not None))
        self._controllership = self._held_controllership()
        for subscriber in self._subscribers:
            try:
                subscriber(before, view)
            except Exception:  # noqa: BLE001  one subscriber's fault must not stop the view for all
                _log.exception("a subscriber of the cluster view failed")
        self._version_waits.reached(view.version)

    async def _reach(self, version: int) -> None:
        if self.view.version < version:
            await self._version_waits.until(version)
