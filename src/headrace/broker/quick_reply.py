"""The reply to a request that is handled at once, without a task: given now, or called back later.

For the requests of group members, of which thousands come every second and most are answered in the same
moment. The connection goes on with its next request when this one is answered. Read next: dispatch.py,
handlers/group_members.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.context import Reply, RequestContext
from headrace.errors import ApiError
from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.wire.messages import encode_error_reply, encode_reply

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

Finish = Callable[[ReplyBody | ApiError], dict[str, Any] | bytes]
"""From a machine's answer to the fields of the reply, or its whole frame; may raise ApiError."""


class Asked(NamedTuple):
    """What a request asked of its group."""

    group_id: str
    make_event: Callable[[ReplyToken], Event]
    finish: Finish


class QuickReply:
    __slots__ = (
        "_broker",
        "_context",
        "_finish",
        "_given",
        "_group_id",
        "_make_event",
        "_on_given",
        "_pending",
        "connection",
    )

    def __init__(
        self, broker: Broker, connection: KafkaConnection, context: RequestContext, pending: PendingReply
    ) -> None:
        self._broker = broker
        self.connection = connection
        self._context = context
        self._pending = pending
        self._finish: Finish = _as_it_is
        self._group_id = ""
        self._make_event: Callable[[ReplyToken], Event] | None = None
        self._given = False
        self._on_given: Callable[[], None] | None = None

    @classmethod
    def again(
        cls, broker: Broker, connection: KafkaConnection, context: RequestContext, correlation_id: int
    ) -> QuickReply:
        """To a request that repeats the one of `context` but for its number."""
        pending = connection.expect_reply(context.api_key, broker.world.clock.monotonic())
        return cls(broker, connection, context._replace(correlation_id=correlation_id), pending)

    @property
    def asked(self) -> Asked | None:
        """None: no group was asked."""
        if self._make_event is None:
            return None
        return Asked(self._group_id, self._make_event, self._finish)

    def ask_group(self, group_id: str, make_event: Callable[[ReplyToken], Event], finish: Finish) -> None:
        self._finish, self._group_id, self._make_event = finish, group_id, make_event
        self._broker.groups.submit(group_id, make_event, self)

    def give(self, frame: bytes) -> None:
        """Answers without asking anyone."""
        self._finish = lambda _: frame
        self(ReplyBody())

    def __call__(self, body: ReplyBody | ApiError) -> None:
        """Called once, from wherever the answer comes: nothing may be raised there."""
        try:
            self._give(self._frame(body))
        except Exception:
            logger.exception("a reply to %s failed", self._context.peer)
            self.connection.refuse("the request could not be answered; see the line before")
            if self._on_given is not None:
                self._on_given()

    def _frame(self, body: ReplyBody | ApiError) -> bytes:
        context = self._context
        api_key, version, correlation_id = context.api_key, context.api_version, context.correlation_id
        try:
            reply = self._finish(body)
            if isinstance(reply, bytes):
                return reply
            return encode_reply(api_key, version, correlation_id, reply)
        except ApiError as error:
            self._broker.metrics.request_error(api_key, error.code)
            return encode_error_reply(api_key, version, correlation_id, error.code, error.message)

    def _give(self, frame: bytes) -> None:
        self._given = True
        self._pending.complete([frame])
        if self._on_given is not None:
            self._on_given()

    def block_until_given(self) -> None:
        if not self._given:
            self._on_given = self.connection.unblock
            self.connection.block()

    async def given(self) -> None:
        if not self._given:
            given = asyncio.Event()
            self._on_given = given.set
            await given.wait()


QuickHandler = Callable[["Broker", RequestContext, Any, QuickReply], Coroutine[Any, Any, Reply] | None]
"""Answers through the reply and returns None, or returns a coroutine that does it in a task."""


def _as_it_is(body: ReplyBody | ApiError) -> dict[str, Any]:
    raise body if isinstance(body, ApiError) else TypeError(f"nobody asked for {body!r}")
