"""OffsetCommit 2-10, OffsetFetch 1-10, OffsetDelete 0: the offsets that groups keep.

Which topics exist, and the id of each, is settled here; what may be committed by whom in machines/offsets.py.
From version 10 on, topics come and go by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker.commit_run import CommitRun, commit_errors
from headrace.broker.context import Handler, RequestContext
from headrace.broker.quick_reply import QuickHandler, QuickReply
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.machines.group_events import (
    FetchedOffset,
    OffsetCommit,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
)
from headrace.machines.machine import ReplyBody, ReplyToken
from headrace.types import ClusterView, Topic
from headrace.wire.error_codes import ErrorCode
from headrace.wire.offset_commit import AskedCommit, write_offset_commit_reply

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_IDS_FROM = 10
_BATCHED_FROM = 8
_WHOLE_ERROR_FROM = 2
"""First OffsetFetch version whose reply has a place for the error of the whole request."""
_ELSEWHERE = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_NOTHING = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


def _topic(view: ClusterView, named: Any, version: int) -> Topic | ErrorCode:
    """The topic, or why there is none."""
    if version >= _IDS_FROM:
        topic = None if named.topic_id is None else view.topic_by_id(named.topic_id)
        return topic or ErrorCode.unknown_topic_id
    return view.topics.get(named.name) or ErrorCode.unknown_topic_or_partition


def _label(named: Any, version: int) -> dict[str, Any]:
    return {"topic_id": named.topic_id} if version >= _IDS_FROM else {"name": named.name}


# OffsetCommit


def offset_commit(broker: Broker, context: RequestContext, request: AskedCommit, reply: QuickReply) -> None:
    version, view = context.api_version, broker.cluster.view
    offsets: list[OffsetToCommit] = []
    codes: list[ErrorCode | None] = []
    """Of each partition; None where the group decides."""
    for asked in request.topics:
        topic = _topic(view, asked, version)
        if not isinstance(topic, Topic):
            codes += [topic] * len(asked.offsets)
            continue
        name, topic_id, count = topic.name, topic.topic_id, len(topic.partitions)
        for partition, offset, epoch, note in asked.offsets:
            if 0 <= partition < count:
                codes.append(None)
                offsets.append(OffsetToCommit(name, partition, offset, epoch, note, topic_id))
            else:
                codes.append(ErrorCode.unknown_topic_or_partition)

    def event(token: ReplyToken) -> OffsetCommit:
        return OffsetCommit(
            token=token,
            version=version,
            offsets=tuple(offsets),
            member_id=request.member_id,
            group_instance_id=request.instance_id,
            generation=request.generation,
            retention_ms=request.retention_ms,
        )

    def finish(body: ReplyBody | ApiError) -> bytes:
        decided = iter(commit_errors(body, len(offsets)))
        results = [next(decided) if code is None else code for code in codes]
        refused = [code for code in results if code]
        for code in refused:
            broker.metrics.request_error(context.api_key, code)
        if offsets and not refused:
            connection = reply.connection
            run = connection.runs.get(context.api_key)
            if not isinstance(run, CommitRun):
                run = connection.runs[context.api_key] = CommitRun(broker, connection)
            run.seen(context, request, view, event)
        return write_offset_commit_reply(version, context.correlation_id, request.topics, results)

    if offsets:
        reply.ask_group(request.group_id, event, finish)
    else:
        reply.give(finish(OffsetCommitReply()))


# OffsetFetch


async def offset_fetch(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    require_stable = getattr(request, "require_stable", False)
    if version >= _BATCHED_FROM:
        return {
            "groups": [
                {"group_id": group.group_id, **await _fetch_group(broker, context, group, require_stable)}
                async for group in in_turns(request.groups)
            ]
        }
    answer = await _fetch_group(broker, context, request, require_stable)
    code = answer["error_code"]
    if code is not ErrorCode.none and version < _WHOLE_ERROR_FROM:
        return {"topics": [_unanswered(topic, version, code) for topic in request.topics]}
    return answer


async def _fetch_group(
    broker: Broker, context: RequestContext, group: Any, require_stable: bool
) -> dict[str, Any]:
    version, view = context.api_version, broker.cluster.view
    is_ours = broker.groups.is_coordinator_of(group.group_id)
    names = None if group.topics is None else [_name(view, topic, version) for topic in group.topics]

    def event(token: ReplyToken) -> OffsetFetch:
        return OffsetFetch(
            token=token,
            version=version,
            partitions=None if names is None else _wanted(names, group.topics),
            member_id=getattr(group, "member_id", None),
            member_epoch=getattr(group, "member_epoch", -1),
            require_stable=require_stable,
        )

    try:
        body = await broker.groups.ask(group.group_id, event)
        if not isinstance(body, OffsetFetchReply):
            raise TypeError(f"{body!r} is no OffsetFetchReply")
        if body.error is not ErrorCode.none:
            raise ApiError(body.error)
    except ApiError as refusal:
        ask_again = is_ours and refusal.code in _ELSEWHERE  # relay.py says why, and finds who is asked then
        code = ErrorCode.coordinator_load_in_progress if ask_again else refusal.code
        broker.metrics.request_error(context.api_key, code)
        return {"error_code": code, "topics": []}
    if names is None:
        topics = _all_topics(view, body.offsets, version)
    else:
        topics = _asked_topics(names, group.topics, iter(body.offsets), version)
    return {"error_code": ErrorCode.none, "topics": topics}


def _name(view: ClusterView, named: Any, version: int) -> str | None:
    """None: no topic has that id. Names are taken as they are: offsets may outlive their topic."""
    if version < _IDS_FROM:
        return str(named.name)
    return None if named.topic_id is None else view.topic_names.get(named.topic_id)


def _wanted(names: list[str | None], topics: Any) -> tuple[tuple[str, int], ...]:
    return tuple(
        (name, index)
        for name, topic in zip(names, topics, strict=True)
        if name is not None
        for index in topic.partition_indexes
    )


def _asked_topics(
    names: list[str | None], topics: Any, found: Iterator[FetchedOffset], version: int
) -> list[dict[str, Any]]:
    """In the order in which they were asked for, which is that of what was found."""
    return [
        _unanswered(topic, version, ErrorCode.unknown_topic_id)
        if name is None
        else {
            **_label(topic, version),
            "partitions": [_fetched(next(found)) for _ in topic.partition_indexes],
        }
        for name, topic in zip(names, topics, strict=True)
    ]


def _all_topics(
    view: ClusterView, found: Iterable[FetchedOffset], version: int
) -> list[dict[str, Any]]:
    """By id there is nothing to say of a topic that is gone."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        by_name.setdefault(each.topic, []).append(_fetched(each))
    if version < _IDS_FROM:
        return [{"name": name, "partitions": partitions} for name, partitions in by_name.items()]
    return [
        {"topic_id": view.topics[name].topic_id, "partitions": partitions}
        for name, partitions in by_name.items()
        if name in view.topics
    ]


def _fetched(found: FetchedOffset) -> dict[str, Any]:
    committed = found.committed
    if committed is None:
        return {"partition_index": found.partition, **_NOTHING, "error_code": found.error}
    return {
        "partition_index": found.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": found.error,
    }


def _unanswered(topic: Any, version: int, code: ErrorCode) -> dict[str, Any]:
    return {
        **_label(topic, version),
        "partitions": [
            {"partition_index": index, **_NOTHING, "error_code": code} for index in topic.partition_indexes
        ],
    }


# OffsetDelete


async def offset_delete(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    view = broker.cluster.view
    wanted: list[tuple[str, int]] = []
    places: list[dict[str, Any]] = []
    topics = []
    for named in request.topics:
        topic = view.topics.get(named.name)
        partitions = [{"partition_index": each.partition_index} for each in named.partitions]
        topics.append({"name": named.name, "partitions": partitions})
        for place in partitions:
            index = place["partition_index"]
            if topic is None or not 0 <= index < len(topic.partitions):
                place["error_code"] = ErrorCode.unknown_topic_or_partition
            else:
                wanted.append((named.name, index))
                places.append(place)
    if not wanted and topics:
        return {"topics": topics}
    body = await broker.groups.ask(
        request.group_id,
        lambda token: OffsetDelete(token=token, version=context.api_version, partitions=tuple(wanted)),
    )
    if not isinstance(body, OffsetDeleteReply):
        raise TypeError(f"{body!r} is no OffsetDeleteReply")
    if body.error is not ErrorCode.none:
        raise ApiError(body.error)
    for place, code in zip(places, body.errors, strict=True):
        place["error_code"] = code
    return {"topics": topics}


HANDLERS: dict[int, Handler] = {9: offset_fetch, 47: offset_delete}
QUICK_HANDLERS: dict[int, QuickHandler] = {8: offset_commit}
