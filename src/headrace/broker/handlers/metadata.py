"""ApiVersions 0-4, Metadata 0-13, DescribeTopicPartitions 0: what a client needs to know before it can work.

Metadata and ApiVersions are answered with kept bytes (broker/metadata_replies.py). Unlike Apache Kafka, a
topic made by asking for it is in the very reply. Gaps: no ACLs, so every operation is authorized; no
feature is listed, above all not transaction.version (producers would stop announcing partitions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.broker.context import EncodedReply, Handler, Reply, RequestContext
from headrace.broker.group_coordinator import OFFSETS_TOPIC
from headrace.broker.metadata_replies import TOPIC_OPERATIONS, Reach, reach
from headrace.broker.topic_rules import check_name
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.types import INTERNAL_TOPICS, NO_TOPIC_ID, ClusterView, Topic
from headrace.wire.api_table import API_VERSIONS_KEY, APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_reply
from headrace.wire.metadata_reply import NOT_ASKED, MetadataTopic

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_IDS_ACCEPTED_FROM = 12
_MOST_PARTITIONS_DESCRIBED = 2000
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_LONGEST_SOFTWARE_NAME = 100


# ApiVersions


async def api_versions(broker: Broker, context: RequestContext, request: Any) -> Reply:
    if context.api_version < 3:
        return _api_versions(context.api_version)
    name, version = request.client_software_name, request.client_software_version
    if not _SOFTWARE_NAME.match(name) or not _SOFTWARE_NAME.match(version):
        broker.metrics.request_error(context.api_key, ErrorCode.invalid_request)
        return {"error_code": ErrorCode.invalid_request}
    broker.metrics.client_seen(name[:_LONGEST_SOFTWARE_NAME], version[:_LONGEST_SOFTWARE_NAME])
    return _api_versions(context.api_version)


@cache
def _api_versions(version: int) -> EncodedReply:
    ranges = [
        {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
        for api in sorted(APIS.values(), key=lambda api: api.key)
    ]
    return EncodedReply(encode_reply(API_VERSIONS_KEY, version, 0, {"api_keys": ranges}))


def unsupported_api_versions(correlation_id: int) -> bytes:
    """KIP-511: a version we do not have is answered in version 0, with the range of this one API."""
    return _unsupported_api_versions().for_request(correlation_id)


@cache
def _unsupported_api_versions() -> EncodedReply:
    api = APIS[API_VERSIONS_KEY]
    fields = {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [{"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}],
    }
    return EncodedReply(encode_reply(API_VERSIONS_KEY, 0, 0, fields))


# Metadata


async def metadata(broker: Broker, context: RequestContext, request: Any) -> Reply:
    await broker.office.others_have_taken_over()
    view = broker.cluster.view
    key = (context.api_version, context.listener, request)
    kept = broker.metadata_replies.kept(view, key)
    if kept is not None:
        return kept
    topics = await _asked_topics(broker, context.api_version, request)
    view = broker.cluster.view  # creating topics has changed it
    reply = broker.metadata_replies.build(
        view,
        context.api_version,
        context.listener,
        topics,
        topic_operations=getattr(request, "include_topic_authorized_operations", False),
        cluster_operations=getattr(request, "include_cluster_authorized_operations", False),
    )
    if all(isinstance(topic, Topic) for topic in topics):  # an error may be gone at the next try
        broker.metadata_replies.keep(view, key, reply)
    return reply


async def _asked_topics(broker: Broker, version: int, request: Any) -> list[Topic | MetadataTopic]:
    if request.topics is None or (version == 0 and not request.topics):
        return list(broker.cluster.view.topics.values())
    if version < _IDS_ACCEPTED_FROM:
        refused = [_refused_by_id(asked) for asked in request.topics if _asks_by_id(asked)]
        if refused:
            return list(refused)
    ids = _once(asked.topic_id for asked in request.topics if getattr(asked, "topic_id", None) is not None)
    if ids:
        view = broker.cluster.view
        return [
            view.topic_by_id(topic_id) or MetadataTopic(ErrorCode.unknown_topic_id, None, topic_id, False, ())
            for topic_id in ids
        ]
    create = (
        getattr(request, "allow_auto_topic_creation", True) and broker.config["auto.create.topics.enable"]
    )
    operations = (
        TOPIC_OPERATIONS if getattr(request, "include_topic_authorized_operations", False) else NOT_ASKED
    )
    names = _once(asked.name for asked in request.topics)
    return [await _asked_topic(broker, name, create, operations) async for name in in_turns(names)]


def _asks_by_id(asked: Any) -> bool:
    return asked.name is None or getattr(asked, "topic_id", None) is not None


def _refused_by_id(asked: Any) -> MetadataTopic:
    return MetadataTopic(ErrorCode.invalid_request, asked.name, asked.topic_id, False, ())


async def _asked_topic(
    broker: Broker, name: str | None, create: bool, operations: int
) -> Topic | MetadataTopic:
    name = name or ""
    topic = broker.cluster.view.topics.get(name)
    if topic is not None:
        return topic
    try:
        check_name(name)
        if create and name == OFFSETS_TOPIC:
            return await broker.groups.ensure_topic()
        if create:
            return await broker.controller.ensure_topic(name)
        code = ErrorCode.unknown_topic_or_partition
    except ApiError as error:
        code = error.code
    return MetadataTopic(code, name, NO_TOPIC_ID, name in INTERNAL_TOPICS, (), operations)


def _once(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


# DescribeTopicPartitions


async def describe_topic_partitions(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    """Topics by name in order, at most so many partitions; the cursor says where the next request goes on."""
    view, cursor = broker.cluster.view, request.cursor
    asked = {topic.name for topic in request.topics}
    names = asked or set(view.topics)
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return {"topics": [{"name": name, "error_code": ErrorCode.invalid_request} for name in sorted(asked)]}
    after = "" if cursor is None else cursor.topic_name
    seen = reach(view, context.listener)
    remaining = max(1, min(_MOST_PARTITIONS_DESCRIBED, request.response_partition_limit))
    described: list[dict[str, Any]] = []
    async for name in in_turns(sorted(name for name in names if name >= after)):
        if remaining == 0:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": 0}}
        first = cursor.partition_index if cursor is not None and name == after else 0
        entry = _describe_partitions_of(view, name, seen, first, remaining)
        described.append(entry)
        remaining -= len(entry["partitions"])
        following = first + len(entry["partitions"])
        if name in view.topics and following < len(view.topics[name].partitions):
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": following}}
    return {"topics": described, "next_cursor": None}


def _describe_partitions_of(
    view: ClusterView, name: str, seen: Reach, first: int, count: int
) -> dict[str, Any]:
    topic = view.topics.get(name)
    return {
        "error_code": _error_when_missing(name) if topic is None else ErrorCode.none,
        "name": name,
        "topic_id": NO_TOPIC_ID if topic is None else topic.topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "topic_authorized_operations": TOPIC_OPERATIONS,
        "partitions": []
        if topic is None
        else [
            {
                "error_code": ErrorCode.none,
                "partition_index": first + index,
                "leader_id": seen.leader(state),
                "leader_epoch": state.leader_epoch,
                "replica_nodes": state.replicas,
                "isr_nodes": state.isr,
                "eligible_leader_replicas": state.elr,
                "last_known_elr": state.last_known_elr,
                "offline_replicas": seen.offline(topic, first + index),
            }
            for index, state in enumerate(topic.partitions[first : first + count])
        ],
    }


def _error_when_missing(name: str) -> ErrorCode:
    try:
        check_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition


HANDLERS: dict[int, Handler] = {
    3: metadata,
    API_VERSIONS_KEY: api_versions,
    75: describe_topic_partitions,
}
