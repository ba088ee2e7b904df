"""From a frame to its handler, and from the handler's answer to a reply; here alone errors become replies.

Produce, Fetch and what group members ask are handled at once, in the read that brought them; everything else
in a task of its own.
Read next: handlers/.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.context import EncodedReply, Handler, Reply, RequestContext
from headrace.broker.handlers import (
    cluster,
    configs,
    coordinators,
    group_members,
    group_offsets,
    groups,
    metadata,
    offsets,
    producers,
    replicas,
    topics,
)
from headrace.broker.handlers.fetch import FetchHandler
from headrace.broker.handlers.produce import ProduceHandler
from headrace.broker.heartbeat_run import HEARTBEAT_KEYS, HeartbeatRun
from headrace.broker.quick_reply import Asked, QuickHandler, QuickReply
from headrace.broker.relay import is_for_another, relayed
from headrace.broker.turns import is_long
from headrace.errors import ApiError, DecodeError
from headrace.wire.api_table import API_VERSIONS_KEY, APIS, RequestHeader, read_request_header
from headrace.wire.messages import decode_request, encode_error_reply, encode_reply
from headrace.wire.offset_commit import OFFSET_COMMIT_KEY, read_offset_commit
from headrace.wire.produce_fetch import read_fetch

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

PRODUCE_KEY, FETCH_KEY = 0, 1
LARGE_FRAME_BYTES = 16 * 1024
"""Of all but Produce, whose bytes are mostly records: larger ones hold so many items that reading them
would be felt by others."""
_SEE_BEFORE = "the request could not be answered; see the line before"
_END_S = 5.0
"""How long requests under way may still take when the node stops."""

HANDLERS: dict[int, Handler] = {
    **cluster.HANDLERS,
    **configs.HANDLERS,
    **coordinators.HANDLERS,
    **group_offsets.HANDLERS,
    **groups.HANDLERS,
    **metadata.HANDLERS,
    **offsets.HANDLERS,
    **producers.HANDLERS,
    **replicas.HANDLERS,
    **topics.HANDLERS,
}
QUICK_HANDLERS: dict[int, QuickHandler] = {**group_members.QUICK_HANDLERS, **group_offsets.QUICK_HANDLERS}


class Dispatcher:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.world.clock
        self._spawn = broker.world.tasks.spawn
        self._metrics = broker.metrics
        self._codec = broker.world.tasks.thread("codec")
        self._produce = ProduceHandler(broker, self._run_alone)
        self._fetch = FetchHandler(broker, self._run_alone, self._codec)
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, connection: KafkaConnection, view: memoryview, start: int, end: int) -> None:
        """Raises DecodeError when the connection cannot go on, and nothing else."""
        started = self._clock.monotonic()
        header = read_request_header(view, start, end)
        api_key, version = header.api_key, header.api_version
        api = APIS.get(api_key)
        if api is None:
            raise DecodeError(f"API key {api_key} is not served")
        if not api.accepts(version):
            self._refuse_version(connection, header)
            return
        try:
            if api_key == PRODUCE_KEY:
                self._produce(connection, header, view, start, end, started)
            elif end - start > LARGE_FRAME_BYTES:
                body = bytes(view[header.body_position : end])
                self._run_alone(connection, self._answer_large(connection, header, body, started))
            elif api_key == FETCH_KEY:
                self._fetch(connection, header, view, end, started)
            else:
                request = _read_request(api_key, version, view, header.body_position, end)
                pending = connection.expect_reply(api_key, started)
                context = _context(connection, header)
                if api_key in QUICK_HANDLERS:
                    reply = self._answer_at_once(connection, pending, context, request)
                    if api_key in HEARTBEAT_KEYS:
                        self._remember_heartbeat(connection, context, bytes(view[start:end]), reply.asked)
                else:
                    answering = self._carry_out(context, request, view[header.body_position : end])
                    self._run_alone(connection, self._answer(pending, context, answering))
        except DecodeError:
            raise
        except Exception:
            logger.exception("%s from %s failed", api.name, connection.peer)
            raise DecodeError(_SEE_BEFORE) from None

    def _refuse_version(self, connection: KafkaConnection, header: RequestHeader) -> None:
        """ApiVersions is how a client learns which versions there are, so it is always answered."""
        if header.api_key != API_VERSIONS_KEY:
            raise DecodeError(f"{APIS[header.api_key].name} version {header.api_version} is not served")
        connection.reply([metadata.unsupported_api_versions(header.correlation_id)])

    def _run_alone(self, connection: KafkaConnection, request: Coroutine[Any, Any, None]) -> None:
        """In a task; nothing else of the connection starts before it has ended."""
        connection.block()
        task = self._spawn(self._supervise(connection, request), name=f"request of {connection.peer}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _supervise(self, connection: KafkaConnection, request: Coroutine[Any, Any, None]) -> None:
        try:
            await request
        except DecodeError as error:
            connection.refuse(str(error))
        except Exception:
            logger.exception("a request from %s failed", connection.peer)
            connection.refuse(_SEE_BEFORE)
        else:
            connection.unblock()

    async def _answer_large(
        self, connection: KafkaConnection, header: RequestHeader, body: bytes, started: float
    ) -> None:
        """A thread reads it, with as much of the loop's time as Python gives to a thread."""
        api_key, version, view, size = header.api_key, header.api_version, memoryview(body), len(body)
        memory = self._broker.hub.memory
        memory.take(size)
        try:
            if api_key == FETCH_KEY:
                request = await self._codec.run(read_fetch, view, 0, size, version)
            else:
                request = await self._codec.run(_read_request, api_key, version, view, 0, size)
        finally:
            memory.give_back(size)
        if api_key == FETCH_KEY:
            await self._fetch.answer(connection, header, request, started)
        else:
            pending = connection.expect_reply(api_key, started)
            context = _context(connection, header)
            if api_key in QUICK_HANDLERS:
                await self._answer_quick_key(connection, pending, context, request)
            else:
                await self._answer(pending, context, self._carry_out(context, request, view))

    def _carry_out(self, context: RequestContext, request: object, body: memoryview) -> Awaitable[Reply]:
        """By this node, or by another when only that can; `body` is valid until this returns."""
        broker, handler = self._broker, HANDLERS[context.api_key]
        if is_for_another(broker, context, request):
            return relayed(broker, context, request, bytes(body), lambda: handler(broker, context, request))
        return handler(broker, context, request)

    def _answer_at_once(
        self, connection: KafkaConnection, pending: PendingReply, context: RequestContext, request: object
    ) -> QuickReply:
        reply = QuickReply(self._broker, connection, context, pending)
        slow = QUICK_HANDLERS[context.api_key](self._broker, context, request, reply)
        if slow is None:
            reply.block_until_given()
        else:
            self._run_alone(connection, self._answer(pending, context, slow))
        return reply

    def _remember_heartbeat(
        self, connection: KafkaConnection, context: RequestContext, frame: bytes, asked: Asked | None
    ) -> None:
        run = connection.runs.get(context.api_key)
        if not isinstance(run, HeartbeatRun):
            run = connection.runs[context.api_key] = HeartbeatRun(self._broker, connection)
        run.seen(context, frame, asked)

    async def _answer_quick_key(
        self, connection: KafkaConnection, pending: PendingReply, context: RequestContext, request: object
    ) -> None:
        """The same from a task that blocks the connection already."""
        reply = QuickReply(self._broker, connection, context, pending)
        slow = QUICK_HANDLERS[context.api_key](self._broker, context, request, reply)
        if slow is None:
            await reply.given()
        else:
            await self._answer(pending, context, slow)

    async def _answer(
        self, pending: PendingReply, context: RequestContext, answering: Awaitable[Reply]
    ) -> None:
        pending.complete([await self._frame(context, answering)])

    async def _frame(self, context: RequestContext, answering: Awaitable[Reply]) -> bytes:
        try:
            reply = await answering
        except ApiError as error:
            self._metrics.request_error(context.api_key, error.code)
            return encode_error_reply(
                context.api_key, context.api_version, context.correlation_id, error.code, error.message
            )
        if isinstance(reply, EncodedReply):
            return reply.for_request(context.correlation_id)
        written = context.api_key, context.api_version, context.correlation_id, reply
        return await self._codec.run(encode_reply, *written) if is_long(reply) else encode_reply(*written)

    async def stop(self) -> None:
        """Lets the requests under way end; those that do not are cut off."""
        self._fetch.end_waits()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _context(connection: KafkaConnection, header: RequestHeader) -> RequestContext:
    api_key, version, correlation_id, client_id, _ = header
    return RequestContext(
        api_key, version, correlation_id, client_id, connection.listener, connection.peer
    )


def _read_request(api_key: int, version: int, view: memoryview, position: int, end: int) -> Any:
    if api_key == OFFSET_COMMIT_KEY:
        return read_offset_commit(version, view, position, end)
    return decode_request(api_key, version, view, position, end)


def missing_handlers() -> set[int]:
    """Keys that ApiVersions would promise although nothing answers them (must be empty)."""
    return set(APIS) - set(HANDLERS) - set(QUICK_HANDLERS) - {PRODUCE_KEY, FETCH_KEY}


