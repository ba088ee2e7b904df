# SPDX-License-Identifier: Apache-2.0
"""Decodes a request, calls its handler and encodes the reply, also of an error that the handler raised.

Produce, Fetch, ApiVersions, logins and the requests of group members are handled at once, in the read that
brought them; every other request in a task.
Read next: handlers/.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from struct import Struct
from typing import Any

from headrace.broker.controller.change_propagation import ChangePropagation
from headrace.broker.dispatch.envelope import unwrap
from headrace.broker.dispatch.forwarding import FORWARDED_KEYS, RequestForwarder, changes_cluster
from headrace.broker.handlers.api_versions import unsupported_api_versions
from headrace.broker.handlers.fetch import FetchHandler
from headrace.broker.handlers.produce import ProduceHandler
from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection, PendingReply
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.frame_memory import FrameMemory
from headrace.broker.network.request_context import EncodedReply, Handler, Reply, RequestContext
from headrace.broker.network.request_room import room_for
from headrace.broker.network.request_tasks import NOT_ANSWERED, RequestTasks
from headrace.broker.network.yielding import is_long
from headrace.broker.quotas.client_throttles import ClientThrottles
from headrace.broker.security.audit import CHANGES, AuditLog
from headrace.broker.security.login import Answer, Logins
from headrace.errors import ApiError, DecodeError
from headrace.principal import NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, RequestHeader, read_request_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_error_reply
from headrace.wire.requests.fetch import read_fetch
from headrace.wire.requests.offset_commit_codec import OffsetCommitCodec
from headrace.wire.requests.read_request import read_request
from headrace.wire.requests.repeated_codec import RepeatedCodec
from headrace.wire.requests.sasl import encode_sasl_reply, read_sasl_request
from headrace.wire.requests.write_reply import write_reply
from headrace.world import Clock, Thread

logger = logging.getLogger(__name__)

_PRODUCE, _FETCH, _OFFSET_COMMIT = ApiKey.PRODUCE.value, ApiKey.FETCH.value, ApiKey.OFFSET_COMMIT.value
_REPEATED = frozenset({_OFFSET_COMMIT, ApiKey.HEARTBEAT.value, ApiKey.CONSUMER_GROUP_HEARTBEAT.value})
"""Consumers send requests of these APIs again and again with hardly a change."""
_ENVELOPE = ApiKey.ENVELOPE.value
_LENGTH_BYTES = 4
_LOGIN = frozenset({ApiKey.SASL_HANDSHAKE.value, ApiKey.SASL_AUTHENTICATE.value})
_BEFORE_LOGIN = _LOGIN | {ApiKey.API_VERSIONS.value}
_new = tuple.__new__
_HEADER = Struct(">hhi")  # key, version, correlation id
_SHORTEST_HEADER, _unpack_header = _HEADER.size, _HEADER.unpack_from
LARGE_FRAME_BYTES = 16 * 1024
"""Larger requests are decoded by a thread, except Produce, whose bytes are mostly records."""


class Dispatcher:
    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Metrics,
        memory: FrameMemory,
        codec: Thread,
        request_tasks: RequestTasks,
        produce: ProduceHandler,
        fetch: FetchHandler,
        handlers: Mapping[int, Handler],
        deferred_handlers: Mapping[int, DeferredHandler],
        forwarder: RequestForwarder,
        propagation: ChangePropagation,
        logins: Logins,
        audit: AuditLog,
        throttles: ClientThrottles,
    ) -> None:
        """`codec`: the thread that decodes and encodes long messages."""
        self._clock = clock
        self._metrics = metrics
        self._memory = memory
        self._codec = codec
        self._request_tasks = request_tasks
        self._produce = produce
        self._fetch = fetch
        self._handlers = handlers
        self._deferred_handlers = deferred_handlers
        self._forwarder = forwarder
        self._propagation = propagation
        self._logins = logins
        self._audit = audit
        self._throttles = throttles

    @property
    def api_keys(self) -> set[int]:
        """Of all APIs that have a handler."""
        return {_PRODUCE, _FETCH, _ENVELOPE, *_LOGIN, *self._handlers, *self._deferred_handlers}

    def __call__(
        self, connection: KafkaConnection, view: memoryview, start: int, end: int, *, metered: bool = False
    ) -> None:
        """Raises DecodeError when the connection has to be closed, and nothing else."""
        if self._throttles.meters_requests and not metered:
            self._call_metered(connection, view, start, end)
            return
        started = self._clock.monotonic()
        if connection.codecs and self._repeated(connection, view, start, end, started):
            return
        header = read_request_header(view, start, end)
        api_key, version = header.api_key, header.api_version
        api = APIS.get(api_key)
        if api is None or version not in api.accepted:
            self._refuse_version(connection, header)
            return
        activity = connection.activity
        activity.requests[api_key] = activity.requests.get(api_key, 0) + 1
        if activity.client_id is None:
            activity.named(header.client_id)
        try:
            if api_key == _PRODUCE:
                self._produce(connection, header, view, start, end, started)
            elif api_key in _LOGIN:
                self._log_in(connection, header, read_sasl_request(header, view, end), started)
            elif end - start > LARGE_FRAME_BYTES:
                body = bytes(view[header.body_position : end])
                answering = self._answer_large(connection, header, body, started)
                self._request_tasks.start(connection, answering)
            elif api_key == _FETCH:
                fetch = read_fetch(view, header.body_position, end, version)
                self._fetch(connection, header, fetch, started)
            elif api_key in self._deferred_handlers:
                self._answer_deferred(connection, header, view, start, end, started)
            else:
                request = read_request(api_key, version, view, header.body_position, end)
                pending = connection.expect_reply(api_key, started)
                context = _context(connection, header)
                replying = self._call(context, request, view[header.body_position : end])
                self._request_tasks.start(connection, self._answer(pending, context, replying))
        except DecodeError:
            raise
        except Exception:
            logger.exception("%s from %s failed", api.name, connection.peer)
            raise DecodeError(NOT_ANSWERED) from None

    def _call_metered(self, connection: KafkaConnection, view: memoryview, start: int, end: int) -> None:
        """Charges the time to the client, whose quotas limit it."""
        client_id = read_request_header(view, start, end).client_id
        before = self._throttles.begin(connection.principal, client_id)
        try:
            self(connection, view, start, end, metered=True)
        finally:
            self._throttles.end(before)

    def before_login(self, connection: KafkaConnection, view: memoryview, start: int, end: int) -> None:
        """As a call, for a connection that has to log in: any other request closes it (S1)."""
        if connection.login is not None and connection.login.unframed:
            message = bytes(view[start:end])
            self._request_tasks.start(connection, self._answer_unframed(connection, message))
            return
        api_key = int.from_bytes(view[start : min(start + 2, end)], "big")
        if api_key not in _BEFORE_LOGIN or (connection.login is None and api_key == ApiKey.SASL_AUTHENTICATE):
            name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
            raise DecodeError(f"{name} out of order: the login is not complete")
        self(connection, view, start, end)

    def _log_in(
        self, connection: KafkaConnection, header: RequestHeader, request: Any, started: float
    ) -> None:
        pending = connection.expect_reply(header.api_key, started)
        context = _context(connection, header)
        answer = self._logins.answer(connection, context, request)
        if connection.closed:  # it took the place of a node, and is none
            raise DecodeError("the login of a client in the place of a node")
        if isinstance(answer, dict) and not answer["error_code"]:
            self._send_login_reply(pending, context, answer)
        else:
            self._request_tasks.start(connection, self._answer_login(pending, context, answer))

    async def _answer_login(self, pending: PendingReply, context: RequestContext, answering: Answer) -> None:
        """Closes the connection after a refusal, as Kafka does."""
        answer = answering if isinstance(answering, dict) else await answering
        self._send_login_reply(pending, context, answer)
        if answer["error_code"]:
            self._metrics.request_error(context.api_key, answer["error_code"], context.activity)
            await self._logins.linger()
            pending.connection.close()

    def _send_login_reply(
        self, pending: PendingReply, context: RequestContext, answer: dict[str, Any]
    ) -> None:
        frame = encode_sasl_reply(*context[:3], answer)
        pending.complete([self._throttled(pending.connection, context, frame)])

    async def _answer_unframed(self, connection: KafkaConnection, message: bytes) -> None:
        """Without a header there is no error code: a refusal only closes the connection."""
        pending = connection.expect_reply(-1, 0.0)
        header = RequestHeader(ApiKey.SASL_AUTHENTICATE, 0, 0, None, 0)
        answering = self._logins.continued(connection, _context(connection, header), message)
        answer = answering if isinstance(answering, dict) else await answering
        if answer["error_code"]:
            raise DecodeError("the login was refused")
        pending.complete([len(answer["auth_bytes"]).to_bytes(4, "big") + answer["auth_bytes"]])

    def _refuse_version(self, connection: KafkaConnection, header: RequestHeader) -> None:
        """Closes the connection, except for ApiVersions, by which clients learn the versions."""
        if header.api_key not in APIS:
            raise DecodeError(f"API key {header.api_key} is not served")
        if header.api_key != ApiKey.API_VERSIONS:
            raise DecodeError(f"{APIS[header.api_key].name} version {header.api_version} is not served")
        connection.reply([unsupported_api_versions(header.correlation_id)])

    async def _answer_large(
        self, connection: KafkaConnection, header: RequestHeader, body: bytes, started: float
    ) -> None:
        """For a request that a thread decodes: it would keep the event loop from other connections."""
        api_key = header.api_key
        if api_key != _FETCH and api_key not in self._deferred_handlers:
            await self._answer_in_room(connection, header, body, started)
            return
        async with room_for(self._memory, connection, api_key, len(body)):
            request = await self._decode_in_thread(header, body)
        if api_key == _FETCH:
            self._fetch(connection, header, request, started)
            return
        context = _context(connection, header)
        reply = DeferredReply(connection, context, started, self._metrics, throttle=self._throttled)
        slow = self._deferred_handlers[api_key](context, request, reply)
        if slow is None:
            await reply.wait_sent()
        else:
            await self._answer(reply.expect(), context, slow)

    async def _answer_in_room(
        self, connection: KafkaConnection, header: RequestHeader, body: bytes, started: float
    ) -> None:
        """Holds memory for the request until it is answered. Members of groups would wait for each other."""
        pending = connection.expect_reply(header.api_key, started)
        context = _context(connection, header)
        async with room_for(self._memory, connection, header.api_key, len(body)):
            request = await self._decode_in_thread(header, body)
            frame = await self._frame(context, self._call(context, request, memoryview(body)))
        pending.complete([self._throttled(connection, context, frame)])

    async def _decode_in_thread(self, header: RequestHeader, body: bytes) -> Any:
        view, size = memoryview(body), len(body)
        if header.api_key == _FETCH:
            return await self._codec.run(read_fetch, view, 0, size, header.api_version)
        return await self._codec.run(read_request, header.api_key, header.api_version, view, 0, size)

    def _call(self, context: RequestContext, request: Any, body: memoryview) -> Awaitable[Reply]:
        """Calls the handler or forwards the request to another node; `body` is valid until this returns."""
        if context.api_key == _ENVELOPE:
            return self._open_envelope(context, request)
        handler = self._handlers[context.api_key]
        answering: Awaitable[Reply]
        if self._forwarder.is_for_other_node(context, request):
            answering = self._forwarder.forward(
                context, request, bytes(body), lambda: handler(context, request)
            )
        elif context.api_key in CHANGES:
            answering = self._audit.changed(context, request, handler(context, request))
        else:
            answering = handler(context, request)
        return self._propagation.answer(request, answering) if changes_cluster(context) else answering

    async def _open_envelope(self, context: RequestContext, request: Any) -> Reply:
        """Handles a client's request that another node has forwarded."""
        if context.principal.kind != NODE:
            return {"error_code": ErrorCode.cluster_authorization_failed, "response_data": None}
        forwarded, body = unwrap(context, request, FORWARDED_KEYS)
        written = forwarded.api_key, forwarded.api_version, body, 0, len(body)
        if len(body) > LARGE_FRAME_BYTES:
            inner = await self._codec.run(read_request, *written)
        else:
            inner = read_request(*written)
        frame = await self._frame(forwarded, self._call(forwarded, inner, body))
        return {"error_code": ErrorCode.none, "response_data": frame[_LENGTH_BYTES:]}

    def _repeated(
        self, connection: KafkaConnection, view: memoryview, start: int, end: int, started: float
    ) -> bool:
        """Handles a request that is like the last one of its API; False for any other."""
        if end - start < _SHORTEST_HEADER:
            return False
        api_key, version, correlation_id = _unpack_header(view, start)
        known = connection.codecs.get(api_key)
        if known is None:
            return False
        codec, last = known
        request = codec.recognise(version, view, start, end)
        if request is None:
            return False
        requests = connection.activity.requests
        requests[api_key] = requests.get(api_key, 0) + 1
        context = _new(RequestContext, (api_key, version, correlation_id, *last[3:]))
        try:
            self._call_deferred(connection, context, request, codec, started)
        except Exception:
            logger.exception("%s from %s failed", APIS[api_key].name, connection.peer)
            raise DecodeError(NOT_ANSWERED) from None
        return True

    def _answer_deferred(
        self,
        connection: KafkaConnection,
        header: RequestHeader,
        view: memoryview,
        start: int,
        end: int,
        started: float,
    ) -> None:
        api_key, context = header.api_key, _context(connection, header)
        if api_key not in _REPEATED:
            request = read_request(api_key, header.api_version, view, header.body_position, end)
            self._call_deferred(connection, context, request, None, started)
            return
        known = connection.codecs.get(api_key)
        codec = known[0] if known is not None else _new_codec(api_key)
        request = codec.decode(header, view, start, end)
        connection.codecs[api_key] = codec, context
        self._call_deferred(connection, context, request, codec, started)

    def _call_deferred(
        self,
        connection: KafkaConnection,
        context: RequestContext,
        request: object,
        codec: RepeatedCodec | OffsetCommitCodec | None,
        started: float,
    ) -> None:
        encoder = codec if isinstance(codec, RepeatedCodec) else None
        throttle = self._throttles.answered if self._throttles.active else None
        reply = DeferredReply(connection, context, started, self._metrics, encoder, throttle)
        slow = self._deferred_handlers[context.api_key](context, request, reply)
        if slow is None:
            reply.block_until_sent()
        else:
            self._request_tasks.start(connection, self._answer(reply.expect(), context, slow))

    async def _answer(
        self, pending: PendingReply, context: RequestContext, answering: Awaitable[Reply]
    ) -> None:
        frame = await self._frame(context, answering)
        pending.complete([self._throttled(pending.connection, context, frame)])

    def _throttled(self, connection: KafkaConnection, context: RequestContext, frame: bytes) -> bytes:
        return self._throttles.answered(connection, context, frame) if self._throttles.active else frame

    async def _frame(self, context: RequestContext, answering: Awaitable[Reply]) -> bytes:
        try:
            reply = await answering
        except ApiError as error:
            self._metrics.request_error(context.api_key, error.code, context.activity)
            return encode_error_reply(
                context.api_key, context.api_version, context.correlation_id, error.code, error.message
            )
        if isinstance(reply, EncodedReply):
            return reply.for_request(context.correlation_id)
        written = context.api_key, context.api_version, context.correlation_id, reply
        return await self._codec.run(write_reply, *written) if is_long(reply) else write_reply(*written)


def _context(connection: KafkaConnection, header: RequestHeader) -> RequestContext:
    api_key, version, correlation_id, client_id, _ = header
    return RequestContext(
        api_key,
        version,
        correlation_id,
        client_id,
        connection.listener,
        connection.peer,
        connection.principal,
        False,
        connection.activity,
    )


def _new_codec(api_key: int) -> RepeatedCodec | OffsetCommitCodec:
    return OffsetCommitCodec() if api_key == _OFFSET_COMMIT else RepeatedCodec(api_key)
