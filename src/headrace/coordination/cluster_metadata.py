# SPDX-License-Identifier: Apache-2.0
"""The cluster's metadata in the coordination store: nodes, controller, topics, configs, producer ids.

Works on any Store; independent of requests and logs. Decisions (placement, validation, elections) are made in
broker/controller.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.acls import AclBinding
from headrace.client_quotas import QuotaEntity
from headrace.coordination import api_errors, documents
from headrace.coordination.bulk_operations import MAX_CHUNK_BYTES, BulkOperation, chunks
from headrace.coordination.node_lifecycle import DiskState, NodeLifecycle, Registration
from headrace.coordination.outcomes import commit_resolving_unknown
from headrace.coordination.producer_ids import ProducerIds
from headrace.coordination.projection import Projection
from headrace.coordination.recovery import history
from headrace.coordination.recovery.history import StoreHistory
from headrace.coordination.store import (
    WHOLE_STORE,
    Applied,
    Changes,
    Check,
    Conflict,
    Create,
    Delete,
    Operation,
    Set,
    Store,
    StoreWentBack,
)
from headrace.errors import ApiError, CoordinationError
from headrace.scram_credential import UserCredentials
from headrace.types import ClusterView, Endpoint, FinalizedFeatures, Node, Topic
from headrace.world import World, new_uuid

_CHANGES_TIMEOUT_MS = 30_000
_RETRY_S = 0.2
_EPOCH_ATTEMPTS = 50
_WENT_BACK_S = 30.0
_NODE_SECRET_BYTES = 32
_CLOSED = "the cluster view was closed"

_log = logging.getLogger(__name__)

Subscriber = Callable[[ClusterView, ClusterView], None]


class Changed(CoordinationError):
    """The entry changed since it was read; nothing was written. Decide again on the new view."""


class _Controllership(NamedTuple):
    epoch: int
    epoch_key_version: int


class _Step(NamedTuple):
    old: ClusterView
    new: ClusterView
    topics: tuple[str, ...]


class ClusterMetadata:
    """The view that this process has of the cluster, and the only way to change it."""

    def __init__(self, store: Store, world: World, projection: Projection) -> None:
        self._store = store
        self._world = world
        self._projection = projection
        self._subscribers: list[Subscriber] = []
        self._last_step: _Step | None = None
        self._version_waiters = VersionWaiters()
        self._newest_commit = projection.view.version
        self._lifecycle: NodeLifecycle | None = None
        self.disk_state = DiskState()
        self.slow_nodes: frozenset[int] = frozenset()
        self._controllership: _Controllership | None = None
        self.reclaims_controllership = False
        """Whether to become controller again after a lost session."""
        self._producer_ids = ProducerIds(self, projection)
        self._follower: asyncio.Task[None] | None = None
        self._went_back_at: float | None = None
        self._on_store_went_back: Callable[[StoreWentBack], None] | None = None

    @classmethod
    async def open(cls, store: Store, world: World) -> ClusterMetadata:
        """Writes a new cluster id and a new node secret when the store has none."""
        view = await store.view()
        if documents.CLUSTER not in view.entries:
            cluster_id = base64.urlsafe_b64encode(new_uuid(world.random).bytes).decode().rstrip("=")
            create = Create(documents.CLUSTER, documents.encode(id=cluster_id))
            await commit_resolving_unknown(store, [create])
            view = await store.view()  # another process may have written its id first
        if documents.NODE_SECRET not in view.entries:
            secret = world.random.randbytes(_NODE_SECRET_BYTES)
            create = Create(documents.NODE_SECRET, documents.encode_secret(secret))
            await commit_resolving_unknown(store, [create])
            view = await store.view()
        cluster = cls(store, world, Projection(view))
        cluster._follower = world.tasks.spawn(cluster._watch_changes(), name="cluster view")
        return cluster

    @property
    def view(self) -> ClusterView:
        return self._projection.view

    @property
    def node_secret(self) -> bytes:
        """By which the nodes of this cluster prove their identity to each other (S3)."""
        return self._projection.node_secret

    @property
    def store_history(self) -> StoreHistory:
        return self._projection.store_history

    @property
    def commits(self) -> int:
        """Of the store, as of the view."""
        return self._projection.commits

    @property
    def session_may_have_expired(self) -> bool:
        """True when this node's session may have ended already: stop acting as leader first (R7)."""
        return self._lifecycle is not None and self._lifecycle.session_may_have_expired

    @property
    def is_controller(self) -> bool:
        return self._controllership is not None

    def subscribe(self, callback: Subscriber) -> None:
        """`callback(old, new)` runs on the loop after each change and must not raise."""
        self._subscribers.append(callback)

    def changed_topics(self, old: ClusterView, new: ClusterView) -> Iterable[str]:
        """Names of topics that differ between two views; fast for the views of a subscriber's call."""
        if self._last_step is not None and self._last_step.old is old and self._last_step.new is new:
            return self._last_step.topics
        names = dict.fromkeys((*old.topics, *new.topics))
        return tuple(name for name in names if old.topics.get(name) is not new.topics.get(name))

    async def begin_store_epoch(self) -> None:
        """Called by a node before it writes anything else (coordination/recovery/history.py).

        The number of commits at which an epoch begins must be exact: nothing may be committed in between.
        """
        for _ in range(_EPOCH_ATTEMPTS):
            epoch_id = f"{self._world.random.getrandbits(64):016x}"
            begun = self.store_history.with_epoch(epoch_id, self.commits)
            write = self.write(history.KEY, history.encode(begun))
            if isinstance(await self.commit([Check(WHOLE_STORE, self.commits), write]), Applied):
                await self.wait_for_own_commits()
                return
            await self.catch_up()
        _log.warning("other commits kept coming in between: no new epoch of the coordination store")

    def on_store_went_back(self, callback: Callable[[StoreWentBack], None]) -> None:
        """Called when the store stays older than what was read of it."""
        self._on_store_went_back = callback

    def store_went_back(self, error: StoreWentBack) -> None:
        """Not at once: a server that was cut off from the ensemble answers with old entries for a while."""
        now = self._world.clock.monotonic()
        if self._went_back_at is None:
            self._went_back_at = now
        elif now - self._went_back_at >= _WENT_BACK_S and self._on_store_went_back is not None:
            self._on_store_went_back(error)

    async def wait_for_own_commits(self) -> None:
        """Waits until the view has this process's last commit and its subscribers were called."""
        await self._wait_for_version(self._newest_commit)

    async def refresh(self) -> None:
        """Reads the changes of the store now, sooner than the store would report them."""
        changes = await self._store.changes(self.view.version, 0)
        if changes.version > self.view.version:
            self._apply_changes(changes)

    async def close(self) -> None:
        """End the session, which removes its entries at once, and close the store."""
        if self._lifecycle is not None:
            await self._lifecycle.close()
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
        self._controllership = None
        await self._store.close()
        self._version_waiters.end()

    # This node

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
        new_disk: bool = False,
    ) -> int:
        """Registers this node and renews its session from now on; returns its epoch (R3).

        A live node of the same id is refused. `replaces_dead_predecessor`: the caller holds the lock of the
        data directory, so a process that registered this id from it is dead, and its session is replaced.
        `waits_for_admission`: the node is live once the controller has handled what it may have lost (R20).
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
            new_disk=new_disk,
        )
        self._lifecycle = NodeLifecycle(self._store, self._world, registration, self._projection, self)
        return await self._lifecycle.join(replaces_dead_predecessor=replaces_dead_predecessor)

    @property
    def node_epoch(self) -> int | None:
        """Epoch of this node's current registration."""
        return None if self._lifecycle is None else self._lifecycle.epoch

    async def announce(
        self,
        *,
        leaving: bool = False,
        disk: DiskState | None = None,
        slow: frozenset[int] | None = None,
    ) -> None:
        """Publishes that this node stops (R22), the state of its disk (R24, R27), or which nodes it finds
        slow (R16b): leaders move away."""
        self.disk_state = disk or self.disk_state
        self.slow_nodes = self.slow_nodes if slow is None else slow
        if self._lifecycle is not None:
            await self._lifecycle.announce(leaving=leaving)

    async def become_controller(self, node_id: int, *, instead_of: int | None = None) -> int | None:
        """Claim the controller role: the new controller epoch, or None when another node has it (R2).

        `instead_of`: the epoch of a controller that is known to be dead, whose session has not ended yet.
        Entry and epoch are written together, so no other one is replaced; if it is alive, it is fenced.
        """
        if self._lifecycle is None:
            raise CoordinationError("a node registers before it becomes controller")
        self.reclaims_controllership = True
        while documents.CONTROLLER not in self._projection.versions or (
            instead_of is not None and self.view.controller_epoch == instead_of
        ):
            outcome = await self.commit(self._claim(node_id))
            await (self.wait_for_own_commits() if isinstance(outcome, Applied) else self.catch_up())
        self._controllership = self._held_controllership()
        return None if self._controllership is None else self._controllership.epoch

    def _claim(self, node_id: int) -> list[Operation]:
        assert self._lifecycle is not None
        epoch = self.view.controller_epoch + 1
        claim = documents.encode(node=node_id, epoch=epoch)
        present = self._projection.versions.get(documents.CONTROLLER)
        return [
            *([] if present is None else [Delete(documents.CONTROLLER, present)]),
            Create(documents.CONTROLLER, claim, owner=self._lifecycle.session_id),
            self.write(documents.CONTROLLER_EPOCH, documents.encode(epoch=epoch)),
        ]

    def _held_controllership(self) -> _Controllership | None:
        """Claim and epoch are written together, so the epoch is ours as long as the claim is."""
        owner = self._projection.owners.get(documents.CONTROLLER)
        if owner is None or self._lifecycle is None or owner != self._lifecycle.session_id:
            return None
        return _Controllership(
            self.view.controller_epoch, self._projection.versions[documents.CONTROLLER_EPOCH]
        )

    # Topics and settings: written only by the controller

    async def create_topic(self, topic: Topic) -> None:
        for refusal in filter(None, await self.create_topics([topic])):
            raise refusal

    async def create_topics(self, topics: Sequence[Topic]) -> list[ApiError | None]:
        """A result for each; one that fails does not affect the others."""
        results: list[ApiError | None] = [None] * len(topics)
        operations = []
        for index, topic in enumerate(topics):
            operation = Create(documents.topic_key(topic.name), documents.encode_topic(topic))
            if len(operation.value) > MAX_CHUNK_BYTES - len(operation.key):
                results[index] = api_errors.too_many_partitions(topic)
            else:
                operations.append(BulkOperation(index, operation, api_errors.already_exists(topic.name)))
        await self._commit_in_chunks(operations, results)
        return results

    async def delete_topics(self, names: Sequence[str]) -> list[ApiError | None]:
        gone = [api_errors.unknown_topic(name) for name in names]
        results: list[ApiError | None] = list(gone)
        pending = {index: name for index, name in enumerate(names) if name in self.view.topics}
        while pending:
            operations = []
            for index, name in pending.items():
                results[index] = None
                key = documents.topic_key(name)
                deletion = Delete(key, self._projection.versions[key])
                operations.append(BulkOperation(index, deletion, gone[index]))
            await self._commit_in_chunks(operations, results)
            # A conflict means "unknown" only when it is deleted; otherwise it was changed: try again.
            pending = {i: n for i, n in pending.items() if results[i] is gone[i] and n in self.view.topics}
        return results

    async def write_topics(self, topics: Sequence[Topic]) -> list[ApiError | None]:
        """Writes topics, except those that are not as the present view has them (INVALID_UPDATE_VERSION).

        For partition states (R4): they must have been decided on the present view.
        """
        results: list[ApiError | None] = [None] * len(topics)
        operations = []
        for index, topic in enumerate(topics):
            key = documents.topic_key(topic.name)
            operation = Set(key, documents.encode_topic(topic), self._projection.versions[key])
            operations.append(BulkOperation(index, operation, api_errors.topic_changed_meanwhile(topic.name)))
        await self._commit_in_chunks(operations, results)
        return results

    async def set_admission(self, node: Node, *, fenced: bool) -> None:
        """Writes whether this incarnation of a node is admitted (R20) or fenced. Raises Changed."""
        admission = documents.Admission(node.epoch, fenced)
        await self._set(documents.admission_key(node.node_id), documents.encode_admission(admission))

    async def require_node_login(self) -> None:
        """From now on, and for good, requests between nodes need a login (S3). Raises Changed."""
        await self._set(documents.NODE_LOGIN, documents.encode(required=True))

    async def finalize_feature(self, name: str, level: int) -> None:
        """Writes the level of a feature under the next epoch; other features keep theirs. Raises Changed."""
        present = self.view.finalized_features
        features = FinalizedFeatures(epoch=present.epoch + 1, levels={**present.levels, name: level})
        await self._set(documents.FEATURES, documents.encode_features(features))

    def has_known(self, node_id: int) -> bool:
        """Whether a node with this id was ever registered or configured."""
        keys = documents.node_key(node_id), documents.node_configs_key(str(node_id))
        return any(key in self._projection.versions for key in (*keys, documents.admission_key(node_id)))

    async def remove_node(self, node_id: int) -> None:
        """Deletes its entry, if there still is one, and its configs; its Admission stays."""
        keys = documents.node_key(node_id), documents.node_configs_key(str(node_id))
        versions = self._projection.versions
        await self._commit_or_raise([Delete(key, versions[key]) for key in keys if key in versions])

    async def alter_topic(self, name: str, **fields: Any) -> None:
        """Changes partitions or configs. Raises Changed when the topic is not as the present view has it."""
        topic = replace(self._topic(name), **fields)
        value = documents.encode_topic(topic)
        if len(value) > MAX_CHUNK_BYTES - len(name) - 50:
            raise api_errors.too_many_partitions(topic)
        await self._set(documents.topic_key(name), value)

    async def alter_node_configs(self, node: str, configs: Mapping[str, str]) -> None:
        """Writes all configs of a node id as text, or of "" for all nodes. Raises Changed."""
        await self._set(documents.node_configs_key(node), documents.encode_configs(configs))

    async def alter_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        await self._set(documents.group_configs_key(group_id), documents.encode_configs(configs))

    async def alter_users(self, users: Mapping[str, UserCredentials]) -> None:
        """Writes all credentials of each user; without any, the user is deleted. Raises Changed."""
        await self._commit_or_raise(self.user_operations(users))

    def user_operations(self, users: Mapping[str, UserCredentials]) -> list[Operation]:
        operations: list[Operation] = []
        for name, credentials in users.items():
            key = documents.user_key(name)
            if credentials:
                operations.append(self.write(key, documents.encode_user(credentials)))
            elif (version := self._projection.versions.get(key)) is not None:
                operations.append(Delete(key, version))
        return operations

    async def create_acls(self, acls: Sequence[AclBinding]) -> ApiError | None:
        """Adds ACLs to the set; those that are there already stay. The error, if not all are there then."""
        entries = {documents.acl_key(acl): documents.encode_acl(acl) for acl in acls}
        missing = [Create(key, value) for key, value in entries.items() if key not in self.view.acls]
        return await self._commit_until_done(missing, lambda key: key in self.view.acls)

    async def delete_acls(self, acls: Sequence[AclBinding]) -> ApiError | None:
        """Removes ACLs from the set; those that are not there are ignored. The error, if some remain."""
        versions = self._projection.versions
        keys = dict.fromkeys(documents.acl_key(acl) for acl in acls)
        present = [Delete(key, versions[key]) for key in keys if key in versions]
        return await self._commit_until_done(present, lambda key: key not in self.view.acls)

    async def alter_client_quotas(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """Writes all quotas of an entity; without any, its entry is deleted. Raises Changed."""
        key = documents.quotas_key(entity)
        if quotas:
            await self._set(key, documents.encode_quotas(quotas))
        elif (version := self._projection.versions.get(key)) is not None:
            await self._commit_or_raise([Delete(key, version)])

    async def allocate_producer_ids(self, count: int) -> range:
        """Ids that are unique in the cluster, from a block allocated to this process."""
        return await self._producer_ids.take(count)

    # Writing

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        outcome = await commit_resolving_unknown(self._store, operations)
        if isinstance(outcome, Applied):
            self._newest_commit = max(self._newest_commit, outcome.version)
        return outcome

    async def catch_up(self) -> None:
        """Wait until the view includes everything committed so far by any process."""
        newest = await self.commit([])
        assert isinstance(newest, Applied)
        await self._wait_for_version(newest.version)

    async def _commit_as_controller(self, operations: Sequence[Operation]) -> Applied | Conflict:
        """Commit, fenced by the controller epoch (R2)."""
        held = self._controllership
        if held is None:
            raise api_errors.not_controller("This node is not the controller.")
        fence = Check(documents.CONTROLLER_EPOCH, held.epoch_key_version)
        outcome = await self.commit([fence, *operations])
        if outcome == Conflict(documents.CONTROLLER_EPOCH):
            self._controllership = None
            raise api_errors.not_controller("Another node has become the controller.")
        return outcome

    async def _commit_in_chunks(
        self, operations: Sequence[BulkOperation], results: list[ApiError | None]
    ) -> None:
        """Stops at a chunk that fails; the results of those before it stay."""
        failure: ApiError | None = None
        for chunk in chunks(operations):
            if failure is None:
                failure = await self._commit_chunk(chunk, results)
            if failure is not None:
                for each in chunk:
                    results[each.index] = failure
        await self.wait_for_own_commits()

    async def _commit_chunk(
        self, chunk: Sequence[BulkOperation], results: list[ApiError | None]
    ) -> ApiError | None:
        """Commit all operations except conflicting ones; returns the error if the whole chunk failed."""
        pending = {each.operation.key: each for each in chunk}
        try:
            while pending:
                outcome = await self._commit_as_controller([each.operation for each in pending.values()])
                if isinstance(outcome, Applied):
                    break
                refused = pending.pop(outcome.key)
                results[refused.index] = refused.refusal
            if len(pending) < len(chunk):
                await self.catch_up()  # the view then has the change that was first
        except ApiError as error:
            return error
        except CoordinationError as error:
            return api_errors.store_failed(error)
        return None

    async def _commit_until_done(
        self, operations: Sequence[Create | Delete], is_done: Callable[[str], bool]
    ) -> ApiError | None:
        """For operations whose conflict may mean that another request has done the same."""
        conflict = api_errors.changed_meanwhile()
        results: list[ApiError | None] = [None] * len(operations)
        bulk = [BulkOperation(index, each, conflict) for index, each in enumerate(operations)]
        await self._commit_in_chunks(bulk, results)
        failed = (
            result
            for operation, result in zip(operations, results, strict=True)
            if result is not None and not (result is conflict and is_done(operation.key))
        )
        return next(failed, None)

    async def _set(self, key: str, value: bytes) -> None:
        await self._commit_or_raise([self.write(key, value)])

    async def _commit_or_raise(self, operations: Sequence[Operation]) -> None:
        outcome = await self._commit_as_controller(operations)
        if isinstance(outcome, Conflict):
            await self.catch_up()
            raise Changed(f"{outcome.key} was changed by another request at the same time")
        await self.wait_for_own_commits()

    def write(self, key: str, value: bytes) -> Create | Set:
        """A write that is conditional on the entry's version in the view."""
        version = self._projection.versions.get(key)
        return Create(key, value) if version is None else Set(key, value, version)

    def _topic(self, name: str) -> Topic:
        topic = self.view.topics.get(name)
        if topic is None:
            raise api_errors.unknown_topic(name)
        return topic

    # Reading

    async def _watch_changes(self) -> None:
        while True:
            try:
                changes = await self._store.changes(self.view.version, _CHANGES_TIMEOUT_MS)
                if changes.version > self.view.version:
                    self._apply_changes(changes)
                self._went_back_at = None
            except Exception as error:  # noqa: BLE001 - without updates the node would act on an old view
                if isinstance(error, StoreWentBack):
                    self.store_went_back(error)
                unforeseen = None if isinstance(error, CoordinationError) else error
                _log.warning("cannot read changes of the cluster, retrying: %s", error, exc_info=unforeseen)
                await self._world.tasks.sleep(_RETRY_S)

    def _apply_changes(self, changes: Changes) -> None:
        before = self.view
        view = self._projection.apply(changes)
        if not changes.complete:
            names = (documents.topic_of_key(key) for key in changes.changed)
            self._last_step = _Step(before, view, tuple(name for name in names if name is not None))
        self._controllership = self._held_controllership()
        for subscriber in self._subscribers:
            try:
                subscriber(before, view)
            except Exception:  # noqa: BLE001  one failing subscriber must not stop the others
                _log.exception("a subscriber of the cluster view failed")
        self._version_waiters.reached(view.version)

    async def _wait_for_version(self, version: int) -> None:
        if self.view.version < version:
            await self._version_waiters.until(version)


class VersionWaiters:
    """Wakes callers when the cluster view has reached a version."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._ended = False

    async def until(self, version: int) -> None:
        if self._ended:
            raise CoordinationError(_CLOSED)
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((version, reached))
        await reached

    def reached(self, version: int) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, waiter in waiting:
            if wanted > version:
                self._waiting.append((wanted, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def end(self) -> None:
        self._ended = True
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(CoordinationError(_CLOSED))
