"""OffsetFetch 1-10: always "nothing is committed", which is true while no group can commit.

librdkafka asks for it also when a program only calls assign(), and does not survive its absence. Gap: groups.
Read next: docs/decisions/0003-what-is-not-served-yet.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_BATCHED_FROM = 8
_NOTHING = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


async def offset_fetch(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    if context.api_version < _BATCHED_FROM:
        return {"topics": _uncommitted(request.topics)}
    groups = [{"group_id": each.group_id, "topics": _uncommitted(each.topics)} for each in request.groups]
    return {"groups": groups}


def _uncommitted(topics: Any) -> list[dict[str, Any]]:
    """None asks for every topic of the group: there is none."""
    return [
        {
            **({"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {"name": topic.name}),
            "partitions": [{"partition_index": index, **_NOTHING} for index in topic.partition_indexes],
        }
        for topic in topics or ()
    ]


HANDLERS: dict[int, Handler] = {9: offset_fetch}
