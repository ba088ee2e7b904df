# SPDX-License-Identifier: Apache-2.0
"""Holds the answer to a change of the cluster until the other live nodes know it, within a limit.

A client that has the answer may ask any node next. The node that answers asks the others whether their view
has reached the version of its own, which has the change (BrokerHeartbeat); decisions are in
machines/replication/propagation.py. Reasons: docs/decisions/0025-nodes-answer-as-one.md.
Read next: handlers/cluster.py (the other side), dispatch/dispatcher.py (which answers wait).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from headrace.broker.network.request_context import EncodedReply, Reply
from headrace.broker.replication.peers import VIEW, NotServed, PeerLost, Peers
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import CoordinationError
from headrace.machines.replication.propagation import Propagation, Question
from headrace.types import ClusterView
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Timer, World

logger = logging.getLogger(__name__)

LIMIT_MS = 5_000
"""The longest an answer waits, whatever timeout the request has; about one session of a node."""
_RETRY_MS = 50
_VERSION = 0


class ChangePropagation:
    def __init__(self, *, world: World, node_id: int, cluster: ClusterMetadata, peers: Peers) -> None:
        self._world = world
        self._node_id = node_id
        self._cluster = cluster
        self._peers = peers
        self._machine = Propagation(limit_ms=LIMIT_MS, retry_ms=_RETRY_MS)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        cluster.subscribe(self._view_changed)

    async def answer(self, request: Any, answering: Awaitable[Reply]) -> Reply:
        """The reply to a request that changes the cluster, once the other nodes know of the change."""
        started_ms = self._now_ms()
        reply = await answering
        if not getattr(request, "validate_only", False):
            timeout = getattr(request, "timeout", None)
            left_ms = LIMIT_MS
            if timeout is not None:
                left_ms = int(timeout.total_seconds() * 1000) - (self._now_ms() - started_ms)
            await self.wait(min(left_ms, LIMIT_MS), elsewhere=isinstance(reply, EncodedReply))
        return reply

    async def wait(self, timeout_ms: int = LIMIT_MS, *, elsewhere: bool = False) -> None:
        """Returns when the other live nodes know what this one knows. `elsewhere`: and what another node
        committed. After the timeout, too: the change is durable and they will learn of it."""
        if timeout_ms <= 0 or not self._live(self._cluster.view):
            return
        deadline_ms = self._now_ms() + timeout_ms
        if not elsewhere or await self._caught_up(timeout_ms):
            await self._until_known(deadline_ms)

    async def _caught_up(self, timeout_ms: int) -> bool:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._cluster.catch_up()
        except (TimeoutError, CoordinationError) as error:
            logger.warning("answered before this node knew the change: the store does not answer %s", error)
            return False
        return True

    async def stop(self) -> None:
        for task in list(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _until_known(self, deadline_ms: int) -> None:
        now_ms = self._now_ms()
        self._machine.update_nodes(self._live(self._cluster.view))
        number = self._machine.begin(self._cluster.view.version, deadline_ms - now_ms, now_ms)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = done
        self._step()
        try:
            await done
        finally:
            self._waiting.pop(number, None)
            self._machine.abandon(number)

    def _view_changed(self, old: ClusterView, new: ClusterView) -> None:
        if self._machine.waiting and old.nodes is not new.nodes:
            self._machine.update_nodes(self._live(new))
            self._step()

    def _live(self, view: ClusterView) -> dict[int, int]:
        return {node.node_id: node.epoch for node in view.nodes.values() if node.node_id != self._node_id}

    def _step(self) -> None:
        step = self._machine.step(self._now_ms())
        for question in step.questions:
            asking = self._ask(question)
            task = self._world.tasks.spawn(asking, name=f"cluster view of node {question.node_id}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        for node_id in step.late:
            logger.warning(
                "node %d has not followed the cluster view for %d s: answers no longer wait for it",
                node_id,
                LIMIT_MS // 1000,
            )
        for number in step.done:
            done = self._waiting.pop(number, None)
            if done is not None and not done.done():
                done.set_result(None)
        self._schedule(step.next_ms)

    def _schedule(self, at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = None if at_ms is None else (at_ms - self._now_ms()) / 1000
        self._timer = None if delay_s is None else self._world.tasks.call_later(delay_s, self._step)

    async def _ask(self, question: Question) -> None:
        body = {
            "broker_id": question.node_id,
            "broker_epoch": question.node_epoch,
            "current_metadata_offset": question.version,
            "want_fence": False,
            "want_shut_down": False,
        }
        try:
            reply = await self._peers.request(
                question.node_id,
                ApiKey.BROKER_HEARTBEAT,
                _VERSION,
                body,
                2 * LIMIT_MS,
                purpose=VIEW,
            )
        except NotServed:
            self._machine.not_served(question)
        except PeerLost as error:
            logger.info("%s", error)
            self._machine.failed(question, self._now_ms())
        else:
            if reply.error_code is ErrorCode.none and reply.is_caught_up:
                self._machine.confirmed(question)
            else:
                self._machine.failed(question, self._now_ms())
        self._step()

    def _now_ms(self) -> int:
        return int(self._world.clock.monotonic() * 1000)
