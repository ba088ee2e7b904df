"""OffsetFetch before there are groups: nothing is committed, in every version's shape."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.context import RequestContext
from headrace.broker.handlers.groups import offset_fetch
from headrace.types import NO_TOPIC_ID
from headrace.wire.messages import decode_reply, decode_request, encode_reply, encode_request

KEY = 9


def ask(version: int, fields: dict[str, Any]) -> Any:
    frame = memoryview(bytearray(encode_request(KEY, version, 7, "test", fields)))
    position = 4 + 8 + 2 + len("test") + (version >= 6)
    request = decode_request(KEY, version, frame, position, len(frame))
    context = RequestContext(
        api_key=KEY, api_version=version, correlation_id=7, client_id="test", listener="main", peer="?"
    )
    reply = asyncio.run(offset_fetch(None, context, request))  # type: ignore[arg-type]
    return decode_reply(KEY, version, memoryview(encode_reply(KEY, version, 7, reply))[4:])[1]


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_has_committed_nothing(version: int) -> None:
    answer = ask(version, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 3]}]})
    partitions = answer.topics[0].partitions
    assert [(p.partition_index, p.committed_offset) for p in partitions] == [(0, -1), (3, -1)]


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_have_committed_nothing(version: int) -> None:
    topic = {"partition_indexes": [1], **({"topic_id": NO_TOPIC_ID} if version >= 10 else {"name": "t"})}
    groups = [{"group_id": "g", "topics": [topic]}, {"group_id": "h", "topics": None}]
    answer = ask(version, {"groups": groups})
    assert [group.group_id for group in answer.groups] == ["g", "h"]
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1
    assert answer.groups[1].topics == ()
