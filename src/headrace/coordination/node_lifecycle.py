# SPDX-License-Identifier: Apache-2.0
"""This node's registration: its session, its entry, and the heartbeat that renews both (R3, R7, R10).

States: unregistered -> joined -> lost -> joined ... -> closed. Lost (the session ended, or the controller
fenced this incarnation): the node has no role any more and registers again with a higher epoch.
Read next: cluster_metadata.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.coordination import documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import (
    Applied,
    Conflict,
    Create,
    Delete,
    Operation,
    Session,
    SessionLost,
    Set,
    Store,
    StoreWentBack,
)
from headrace.coordination.transaction_version import SERVED
from headrace.errors import CoordinationError
from headrace.types import ClusterView, Endpoint, Node, TopicId
from headrace.world import World

_RENEWALS_PER_TTL = 4

_log = logging.getLogger(__name__)


class DuplicateNode(CoordinationError):
    """Another live process has this node id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    node_id: int
    host_id: str
    hostname: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    session_ttl_ms: int
    directory_id: str = ""
    waits_for_admission: bool = False
    lossless: bool = True
    new_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """The state of a node's disk, in its entry: whether it is full, and which logs are damaged."""

    full: bool = False
    offline: frozenset[tuple[TopicId, int]] = frozenset()
    offline_epochs: frozenset[tuple[TopicId, int, int]] = frozenset()


class MetadataAccess(Protocol):
    """What the lifecycle of a node needs of ClusterMetadata."""

    disk_state: DiskState
    slow_nodes: frozenset[int]
    reclaims_controllership: bool

    @property
    def view(self) -> ClusterView: ...
    def subscribe(self, callback: Callable[[ClusterView, ClusterView], None]) -> None: ...
    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict: ...
    async def catch_up(self) -> None: ...
    async def wait_for_own_commits(self) -> None: ...
    async def become_controller(self, node_id: int) -> int | None: ...
    def store_went_back(self, error: StoreWentBack) -> None: ...


class NodeLifecycle:
    """Registers this node, renews its session, and registers again when it was lost or fenced."""

    def __init__(
        self,
        store: Store,
        world: World,
        registration: Registration,
        projection: Projection,
        cluster: MetadataAccess,
    ) -> None:
        self._store = store
        self._world = world
        self._registration = registration
        self._projection = projection
        self._cluster = cluster
        self._key = documents.node_key(registration.node_id)
        self._session: Session | None = None
        self._own_earlier_sessions: set[int] = set()
        self._heartbeat: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self.epoch: int | None = None
        self._was_admitted = False
        self._leaving = False
        cluster.subscribe(self._watch_changes)

    @property
    def session_id(self) -> int | None:
        return None if self._session is None else self._session.id

    @property
    def session_may_have_expired(self) -> bool:
        return self._session is None or self._session.may_have_expired

    async def join(self, *, replaces_dead_predecessor: bool) -> int:
        session = await self._store.open_session(self._registration.session_ttl_ms)
        try:
            epoch = await self._register(session, replaces_dead_predecessor)
        except BaseException:
            with contextlib.suppress(CoordinationError):  # must not replace a cancellation
                await session.close()
            raise
        self._session = session
        self.epoch = epoch
        self._own_earlier_sessions.add(session.id)
        self._note_admission(self._cluster.view)
        if self._heartbeat is None:
            self._heartbeat = self._world.tasks.spawn(self._stay_alive(), name="node heartbeat")
        return epoch

    async def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heartbeat
        if self._session is not None:
            with contextlib.suppress(CoordinationError):  # entries that remain expire
                await self._session.close()

    async def announce(self, *, leaving: bool) -> None:
        """Writes this incarnation's entry; nothing while another process owns it."""
        self._leaving = self._leaving or leaving
        while self._session is not None and self._projection.owners.get(self._key) == self._session.id:
            entry = self._encoded(leaving=self._leaving)
            version = self._projection.versions[self._key]
            if isinstance(await self._cluster.commit([Set(self._key, entry, version)]), Applied):
                return
            await self._cluster.catch_up()

    async def _register(self, session: Session, replaces_dead_predecessor: bool) -> int:
        create = Create(self._key, self._encoded(), owner=session.id)
        while True:
            removals = self._predecessor(replaces_dead_predecessor)
            if isinstance(await self._cluster.commit([*removals, create]), Applied):
                await self._cluster.wait_for_own_commits()
                return self._present().epoch
            await self._cluster.catch_up()

    def _present(self) -> Node:
        view, node_id = self._cluster.view, self._registration.node_id
        node = view.nodes.get(node_id) or view.joining.get(node_id) or view.fenced.get(node_id)
        if node is None:
            raise SessionLost(f"node {node_id} was registered, but its session ended at once")
        return node

    def _predecessor(self, known_dead: bool) -> list[Operation]:
        """Deletes the entry and the controllership of an earlier process of this node."""
        owner = self._projection.owners.get(self._key)
        if owner is None:
            return []
        node = self._present()
        same_directory = node.directory_id == self._registration.directory_id
        if not (known_dead and same_directory) and owner not in self._own_earlier_sessions:
            raise DuplicateNode(
                f"node {node.node_id} is already registered from host {node.hostname}. Set "
                "another node.id or, if that process is dead, retry when its session has expired "
                f"({self._registration.session_ttl_ms} ms)"
            )
        stale = [self._key]
        if self._projection.owners.get(documents.CONTROLLER) == owner:
            stale.append(documents.CONTROLLER)
        return [Delete(key, self._projection.versions[key]) for key in stale]

    def _encoded(self, *, leaving: bool = False) -> bytes:
        asked = self._registration
        node = Node(
            node_id=asked.node_id,
            epoch=0,
            host_id=asked.host_id,
            hostname=asked.hostname,
            endpoints=asked.endpoints,
            rack=asked.rack,
            directory_id=asked.directory_id,
            logs_in=True,
            session_ms=asked.session_ttl_ms,
            transaction_versions=SERVED,
            # An admitted node kept running, and has lost nothing since (R21). After a registration without
            # admission the controller has not handled its loss yet (R20).
            lossless=asked.lossless or self._was_admitted,
            new_disk=asked.new_disk and not self._was_admitted,
            leaving=leaving,
            full=self._cluster.disk_state.full,
            offline=self._cluster.disk_state.offline,
            offline_epochs=self._cluster.disk_state.offline_epochs,
            slow=self._cluster.slow_nodes,
        )
        return documents.encode_node(node, waits=asked.waits_for_admission)

    def _watch_changes(self, old: ClusterView, new: ClusterView) -> None:
        """Registers again at once when the controller fenced this incarnation."""
        self._note_admission(new)
        fenced = new.fenced.get(self._registration.node_id)
        if fenced is not None and fenced.epoch == self.epoch and new.fenced is not old.fenced:
            self._world.tasks.spawn(self._register_again(), name="registration of a fenced node")

    def _note_admission(self, view: ClusterView) -> None:
        present = view.nodes.get(self._registration.node_id)
        if present is not None and present.epoch == self.epoch:
            self._was_admitted = True

    async def _register_again(self) -> None:
        try:
            await self._renew()
        except CoordinationError as error:
            _log.warning("node %d could not register again yet: %s", self._registration.node_id, error)

    async def _stay_alive(self) -> None:
        """Runs on the event loop, so that a blocked loop loses its session (R8)."""
        pause_s = self._registration.session_ttl_ms / 1000 / _RENEWALS_PER_TTL
        while True:
            await self._world.tasks.sleep(pause_s)
            try:
                await self._renew()
            except CoordinationError as error:
                _log.warning("node %d could not renew its session: %s", self._registration.node_id, error)
                if isinstance(error, StoreWentBack):
                    self._cluster.store_went_back(error)
            except Exception:  # noqa: BLE001  without renewals the node would never lead again
                _log.exception("node %d could not renew its session", self._registration.node_id)

    async def _renew(self) -> None:
        assert self._session is not None
        async with self._renewing:
            try:
                await self._session.renew()
            except SessionLost:
                _log.warning("node %d lost its session and registers again", self._registration.node_id)
                await self._join_again()
            fenced = self._cluster.view.fenced.get(self._registration.node_id)
            if fenced is not None and fenced.epoch == self.epoch and not self._leaving:
                _log.warning("node %d was fenced and registers again", self._registration.node_id)
                await self._session.close()
                await self._join_again()

    async def _join_again(self) -> None:
        await self.join(replaces_dead_predecessor=False)
        if self._cluster.reclaims_controllership:
            await self._cluster.become_controller(self._registration.node_id)
