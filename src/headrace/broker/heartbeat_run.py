"""Heartbeats of one connection that repeat each other, byte for byte but for their number.

A member of a group sends the same heartbeat for hours. It asks its group every time, as the first one did; it
is not taken apart again, and while the answer is the same its reply is not written again either.
Read next: handlers/group_members.py (the first one), commit_run.py (the same for commits).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from headrace.broker.context import EncodedReply, RequestContext
from headrace.broker.quick_reply import Asked, QuickReply
from headrace.errors import ApiError
from headrace.machines.consumer_events import ConsumerGroupHeartbeatReply
from headrace.machines.group_events import ErrorReply
from headrace.machines.machine import ReplyBody
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_reply

if TYPE_CHECKING:
    from headrace.broker.connection import KafkaConnection
    from headrace.broker.node import Broker

HEARTBEAT_KEYS = frozenset({12, 68})
_LENGTH = Struct(">i")
_NUMBER = Struct(">8xi")  # the correlation id, behind length, key and version
_NUMBER_AT, _BEHIND_NUMBER = 8, 12


class HeartbeatRun:
    __slots__ = ("_asked", "_body", "_broker", "_connection", "_context", "_head", "_reply", "_tail")

    def __init__(self, broker: Broker, connection: KafkaConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._head = self._tail = b""
        self._asked: Asked | None = None
        self._context: RequestContext
        self._body: ReplyBody | None = None
        self._reply = EncodedReply()

    def seen(self, context: RequestContext, frame: bytes, asked: Asked | None) -> None:
        """A heartbeat came the usual way; `frame` without its length."""
        whole = _LENGTH.pack(len(frame)) + frame
        self._head, self._tail = whole[:_NUMBER_AT], whole[_BEHIND_NUMBER:]
        self._context, self._asked, self._body = context, asked, None

    def take(self, view: memoryview, position: int, end: int) -> int:
        """Handles the frame at `position` if it repeats the last one; where the next one begins."""
        asked, behind = self._asked, position + _BEHIND_NUMBER
        after = behind + len(self._tail)
        if asked is None or after > end:
            return position
        if view[position : position + _NUMBER_AT] != self._head or view[behind:after] != self._tail:
            return position
        (correlation_id,) = _NUMBER.unpack_from(view, position)
        reply = QuickReply.again(self._broker, self._connection, self._context, correlation_id)
        reply.ask_group(
            asked.group_id, asked.make_event, lambda body: self._finish(correlation_id, asked, body)
        )
        reply.block_until_given()
        return after

    def _finish(self, correlation_id: int, asked: Asked, body: ReplyBody | ApiError) -> bytes:
        if body == self._body:
            return self._reply.for_request(correlation_id)
        fields = asked.finish(body)
        if isinstance(fields, bytes):
            return fields
        frame = encode_reply(self._context.api_key, self._context.api_version, correlation_id, fields)
        if isinstance(body, ErrorReply | ConsumerGroupHeartbeatReply) and body.error is ErrorCode.none:
            self._body, self._reply = body, EncodedReply(frame)
        return frame
