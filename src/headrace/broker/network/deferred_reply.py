# SPDX-License-Identifier: Apache-2.0
"""The reply to a request that is handled without a task: sent at once, or later by a callback.

For the requests of group members: thousands arrive every second, and most are answered immediately. The
connection continues with its next request when this one is answered. Read next: dispatch/dispatcher.py,
handlers/group_members.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection, PendingReply
from headrace.broker.network.request_context import Reply, RequestContext
from headrace.broker.network.request_tasks import NOT_ANSWERED
from headrace.errors import ApiError
from headrace.wire.messages import encode_error_reply, encode_reply
from headrace.wire.requests.repeated_codec import RepeatedCodec

logger = logging.getLogger(__name__)

T = TypeVar("T")
Throttle = Callable[[KafkaConnection, RequestContext, bytes], bytes]
"""Gives a reply its throttle time while there are quotas, and mutes the connection for it."""


class DeferredReply:
    """It takes its place among the replies of the connection when the handler returns without an answer.

    `codec`: encodes the reply where replies mostly repeat the last one. `throttle`: see Throttle.
    """

    __slots__ = (
        "_context",
        "_metrics",
        "_on_sent",
        "_pending",
        "_sent",
        "_started",
        "_throttle",
        "codec",
        "connection",
    )

    def __init__(
        self,
        connection: KafkaConnection,
        context: RequestContext,
        started: float,
        metrics: Metrics,
        codec: RepeatedCodec | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self.connection = connection
        self.codec = codec
        self._context = context
        self._started = started
        self._metrics = metrics
        self._throttle = throttle
        self._pending: PendingReply | None = None
        self._sent = False
        self._on_sent: Callable[[], None] | None = None

    def prepared(self, make: Callable[[RequestContext, Any], T], request: Any) -> T:
        """What `make` makes of the request; the same object for requests that repeat the last one."""
        codec = self.codec
        if codec is None:
            return make(self._context, request)
        if codec.prepared is None:
            codec.prepared = make(self._context, request)
        found: T = codec.prepared
        return found

    def answer_with(self, finish: Callable[[T], dict[str, Any] | bytes]) -> Callable[[T], None]:
        """A callback for one result. `finish` makes fields or the whole frame of it, or raises ApiError."""
        return partial(self._answer, finish)

    def _answer(self, finish: Callable[[T], dict[str, Any] | bytes], result: T) -> None:
        """The caller is whoever has the result, so nothing may be raised."""
        try:
            try:
                reply = finish(result)
                if isinstance(reply, bytes):
                    frame = reply
                elif self.codec is not None:
                    frame = self.codec.encode(self._context.correlation_id, reply)
                else:
                    frame = encode_reply(*self._context[:3], reply)
            except ApiError as error:
                frame = self._encode_error(error)
            self.send(frame)
        except Exception:
            logger.exception("a reply to %s failed", self._context.peer)
            self.connection.refuse(NOT_ANSWERED)
            if self._on_sent is not None:
                self._on_sent()

    def _encode_error(self, error: ApiError) -> bytes:
        api_key, version, correlation_id = self._context[:3]
        self._metrics.request_error(api_key, error.code, self._context.activity)
        return encode_error_reply(api_key, version, correlation_id, error.code, error.message)

    def send(self, frame: bytes) -> None:
        self._sent = True
        if self._throttle is not None:
            frame = self._throttle(self.connection, self._context, frame)
        if self._pending is None:
            self.connection.answer(self._context.api_key, self._started, frame)
        else:
            self._pending.complete([frame])
        if self._on_sent is not None:
            self._on_sent()

    def expect(self) -> PendingReply:
        """Later replies of the connection wait for this one."""
        self._pending = self.connection.expect_reply(self._context.api_key, self._started)
        return self._pending

    def block_until_sent(self) -> None:
        if not self._sent:
            self.expect()
            self._on_sent = self.connection.unblock
            self.connection.block()

    async def wait_sent(self) -> None:
        if not self._sent:
            self.expect()
            sent = asyncio.Event()
            self._on_sent = sent.set
            await sent.wait()


DeferredHandler = Callable[[RequestContext, Any, DeferredReply], Coroutine[Any, Any, Reply] | None]
"""Answers through the reply and returns None, or returns a coroutine whose result is the reply."""
