"""Commits of one connection that repeat each other, as a consumer sends them after every batch.

When two in a row are alike but for their positions, those that follow are recognised by what they have in
common, and ask their group without being taken apart. Whatever is not like them goes the usual way
(handlers/group_offsets.py). Read next: wire/commit_shape.py, machines/repeated_commit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.broker.context import RequestContext
from headrace.broker.quick_reply import QuickReply
from headrace.errors import ApiError
from headrace.machines.group_events import OffsetCommit, OffsetCommitReply
from headrace.machines.machine import ReplyBody, ReplyToken
from headrace.machines.repeated_commit import CommitPlaces, RepeatedCommit
from headrace.types import ClusterView
from headrace.wire.commit_shape import CommitShape
from headrace.wire.error_codes import ErrorCode
from headrace.wire.offset_commit import OFFSET_COMMIT_KEY, AskedCommit, write_offset_commit_reply

if TYPE_CHECKING:
    from headrace.broker.connection import KafkaConnection
    from headrace.broker.node import Broker


class CommitRun:
    """What one connection committed last, and what can be told from it about the next frames."""

    __slots__ = (
        "_broker",
        "_connection",
        "_context",
        "_last",
        "_places",
        "_request",
        "_shape",
        "_view",
    )

    def __init__(self, broker: Broker, connection: KafkaConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._last: object = None
        self._shape: CommitShape | None = None
        self._places: CommitPlaces
        self._request: AskedCommit
        self._context: RequestContext
        self._view: ClusterView

    def seen(
        self,
        context: RequestContext,
        request: AskedCommit,
        view: ClusterView,
        event: Callable[[ReplyToken], OffsetCommit],
    ) -> None:
        """A request came the usual way and was accepted whole, with the cluster looking like this."""
        about = (context.api_version, context.client_id, request.generation, _places(request))
        if about != self._last:
            self._last, self._shape = about, None
        elif request.retention_ms == -1:
            self._shape = CommitShape.of(context.api_version, context.client_id, request)
            self._places = CommitPlaces(request.group_id, event(ReplyToken(0)))
            self._request, self._context, self._view = request, context, view

    def take(self, view: memoryview, position: int, end: int) -> int:
        """Handles the frame at `position` if it repeats the last one; where the next one begins."""
        shape = self._shape
        found = None if shape is None else shape.read(view, position, end)
        if shape is None or found is None:
            return position
        if self._broker.cluster.view is not self._view:  # its topics may be others now
            self._last = self._shape = None
            return position
        correlation_id, offsets, leader_epochs = found
        reply = QuickReply.again(self._broker, self._connection, self._context, correlation_id)
        places, request = self._places, self._request

        def event(token: ReplyToken) -> RepeatedCommit:
            return RepeatedCommit(token, places, offsets, leader_epochs)

        def finish(body: ReplyBody | ApiError) -> bytes:
            if body is places.accepted:
                return shape.accepted(correlation_id)
            codes = list(commit_errors(body, len(places.where)))
            for code in filter(None, codes):
                self._broker.metrics.request_error(OFFSET_COMMIT_KEY, code)
            version = self._context.api_version
            return write_offset_commit_reply(version, correlation_id, request.topics, codes)

        reply.ask_group(request.group_id, event, finish)
        reply.block_until_given()
        return position + shape.size


def commit_errors(body: ReplyBody | ApiError, count: int) -> Iterable[ErrorCode]:
    """Of each of the `count` partitions that the group decided about."""
    if isinstance(body, ApiError):
        return [body.code] * count
    if not isinstance(body, OffsetCommitReply):
        raise TypeError(f"{body!r} is no OffsetCommitReply")
    return body.errors if body.error is ErrorCode.none else [body.error] * count


def _places(request: AskedCommit) -> object:
    return (
        request.group_id,
        request.member_id,
        request.instance_id,
        [
            (topic.name, topic.topic_id, [(place[0], place[3]) for place in topic.offsets])
            for topic in request.topics
        ],
    )
