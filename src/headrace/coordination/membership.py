"""This node's registration: its session, its entry, and the heartbeat that keeps both (R3, R7, R10).

States: out -> joined -> lost -> joined ... -> closed. Lost (the session ended): every role is dropped by the
store itself; the node registers anew under a higher epoch. Read next: cluster.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.coordination import documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import Applied, Create, Delete, Operation, Session, SessionLost, Store
from headrace.errors import CoordinationError
from headrace.types import Endpoint, Node
from headrace.world import World

if TYPE_CHECKING:
    from headrace.coordination.cluster import Cluster

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


class Membership:
    def __init__(
        self, store: Store, world: World, registration: Registration, projection: Projection, cluster: Cluster
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

    @property
    def session_id(self) -> int | None:
        return None if self._session is None else self._session.id

    @property
    def in_doubt(self) -> bool:
        return self._session is None or self._session.in_doubt

    async def join(self, *, replaces_dead_predecessor: bool) -> int:
        session = await self._store.open_session(self._registration.session_ttl_ms)
        try:
            epoch = await self._register(session, replaces_dead_predecessor)
        except BaseException:
            await session.close()
            raise
        self._session = session
        self._own_earlier_sessions.add(session.id)
        if self._heartbeat is None:
            self._heartbeat = self._world.tasks.spawn(self._stay_alive(), name="node heartbeat")
        return epoch

    async def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heartbeat
        if self._session is not None:
            with contextlib.suppress(CoordinationError):  # what stays behind expires
                await self._session.close()

    async def _register(self, session: Session, replaces_dead_predecessor: bool) -> int:
        create = Create(self._key, documents.encode_node(self._node()), owner=session.id)
        while True:
            removals = self._predecessor(replaces_dead_predecessor)
            if isinstance(await self._cluster.commit([*removals, create]), Applied):
                await self._cluster.settle()
                return self._cluster.view.nodes[self._registration.node_id].epoch
            await self._cluster.catch_up()

    def _predecessor(self, known_dead: bool) -> list[Operation]:
        """Removes what an ended process of this node left behind: its entry, and its controllership."""
        owner = self._projection.owners.get(self._key)
        if owner is None:
            return []
        if not known_dead and owner not in self._own_earlier_sessions:
            node = self._cluster.view.nodes[self._registration.node_id]
            raise DuplicateNode(
                f"node {node.node_id} is already registered from host {node.hostname}. Give this node "
                "another node.id or, if that process is dead, try again when its session has ended "
                f"({self._registration.session_ttl_ms} ms)"
            )
        left_behind = [self._key]
        if self._projection.owners.get(documents.CONTROLLER) == owner:
            left_behind.append(documents.CONTROLLER)
        return [Delete(key, self._projection.versions[key]) for key in left_behind]

    def _node(self) -> Node:
        asked = self._registration
        return Node(
            node_id=asked.node_id,
            epoch=0,
            host_id=asked.host_id,
            hostname=asked.hostname,
            endpoints=asked.endpoints,
            rack=asked.rack,
        )

    async def _stay_alive(self) -> None:
        """Driven by the loop, so that a wedged loop does not look alive (R8)."""
        pause_s = self._registration.session_ttl_ms / 1000 / _RENEWALS_PER_TTL
        while True:
            await self._world.tasks.sleep(pause_s)
            try:
                await self._renew()
            except CoordinationError as error:
                _log.warning("node %d could not renew its session: %s", self._registration.node_id, error)

    async def _renew(self) -> None:
        assert self._session is not None
        try:
            await self._session.renew()
        except SessionLost:
            _log.warning("node %d lost its session and registers anew", self._registration.node_id)
            await self.join(replaces_dead_predecessor=False)
            if self._cluster.wants_control:
                await self._cluster.become_controller(self._registration.node_id)
