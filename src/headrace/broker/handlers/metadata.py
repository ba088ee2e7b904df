# SPDX-License-Identifier: Apache-2.0
"""Metadata 0-13, DescribeTopicPartitions 0.

Metadata replies are cached as encoded bytes (controller/metadata_cache.py). Unlike in Apache Kafka, a topic
created by a Metadata request is already in its reply.

Topics that the sender must not describe are not listed, and answered alike whether they exist or not (S20).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.loop import ControllerLoop
from headrace.broker.controller.metadata_cache import ListenerNodes, MetadataCache, nodes_on
from headrace.broker.controller.topic_rules import check_name
from headrace.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.security.authorization import Authorization
from headrace.broker.security.visibility import Visibility
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.types import INTERNAL_TOPICS, NO_TOPIC_ID, ClusterView, Topic, TopicId
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.metadata_reply import NOT_ASKED, MetadataTopic

_IDS_ACCEPTED_FROM = 12
_MAX_PARTITIONS_DESCRIBED = 2000
_UNAUTHORIZED = ErrorCode.topic_authorization_failed


class MetadataHandlers:
    """Handlers of Metadata and DescribeTopicPartitions."""

    def __init__(
        self,
        *,
        cluster: ClusterMetadata,
        config: NodeConfig,
        cache: MetadataCache,
        controller: Controller,
        controller_loop: ControllerLoop,
        groups: GroupCoordinator,
        authorization: Authorization | None = None,
    ) -> None:
        self._authorization = authorization
        self._cluster = cluster
        self._config = config
        self._cache = cache
        self._controller = controller
        self._controller_loop = controller_loop
        self._groups = groups

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    # Metadata

    async def metadata(self, context: RequestContext, request: Any) -> Reply:
        await self._controller_loop.wait_for_failover()
        seen, seen_by = self._cluster.view, self._visibility(context).key
        cached = self._cache.get(seen, (context.api_version, context.listener, seen_by, request))
        if cached is not None:
            return cached
        topics = await self._requested_topics(context, request)
        view, visibility = self._cluster.view, self._visibility(context)  # changed if topics were created
        of_topics = getattr(request, "include_topic_authorized_operations", False)
        of_cluster = getattr(request, "include_cluster_authorized_operations", False)
        reply = await self._cache.build(
            view,
            context.api_version,
            context.listener,
            topics,
            topic_operations=visibility.topic_operations if of_topics else None,
            cluster_operations=visibility.cluster_operations() if of_cluster else NOT_ASKED,
        )
        unchanged = view is seen and visibility.key is seen_by  # else topics may be of several views
        if unchanged and all(isinstance(topic, Topic) for topic in topics):  # errors may be transient
            self._cache.put(view, (context.api_version, context.listener, seen_by, request), reply)
        return reply

    def _visibility(self, context: RequestContext) -> Visibility:
        return Visibility.of(self._authorization, context)

    async def _requested_topics(self, context: RequestContext, request: Any) -> list[Topic | MetadataTopic]:
        version, topics = context.api_version, self._cluster.view.topics
        if request.topics is None or (version == 0 and not request.topics):
            visibility = self._visibility(context)
            return [topic for topic in topics.values() if visibility.lists(topic.name)]
        if version < _IDS_ACCEPTED_FROM:
            refused = [_refused_by_id(entry) for entry in request.topics if _is_by_id(entry)]
            if refused:
                return list(refused)
        ids = _unique(getattr(entry, "topic_id", None) for entry in request.topics)
        if any(ids):
            return [self._topic_by_id(context, topic_id) for topic_id in ids if topic_id is not None]
        create = (
            getattr(request, "allow_auto_topic_creation", True) and self._config["auto.create.topics.enable"]
        )
        operations = getattr(request, "include_topic_authorized_operations", False)
        names = _unique(entry.name for entry in request.topics)
        return [
            await self._topic_by_name(context, name or "", create=create, operations=operations)
            async for name in yielding(names)
        ]

    def _topic_by_id(self, context: RequestContext, topic_id: TopicId) -> Topic | MetadataTopic:
        topic = self._cluster.view.topic_by_id(topic_id)
        if topic is None:
            return MetadataTopic(ErrorCode.unknown_topic_id, None, topic_id, False, ())
        if not self._visibility(context).may_describe(topic.name):
            return MetadataTopic(_UNAUTHORIZED, None, topic_id, False, ())
        return topic

    async def _topic_by_name(
        self, context: RequestContext, name: str, *, create: bool, operations: bool
    ) -> Topic | MetadataTopic:
        visibility = self._visibility(context)
        internal = name in INTERNAL_TOPICS
        if not visibility.may_describe(name):
            return MetadataTopic(_UNAUTHORIZED, name, NO_TOPIC_ID, internal, ())
        topic = self._cluster.view.topics.get(name)
        if topic is not None:
            return topic
        try:
            check_name(name)
            if create:
                return await self._created(visibility, name)
            code = ErrorCode.unknown_topic_or_partition
        except ApiError as error:
            code = error.code
        asked = visibility.topic_operations(name) if operations else NOT_ASKED
        return MetadataTopic(code, name, NO_TOPIC_ID, internal, (), asked)

    async def _created(self, visibility: Visibility, name: str) -> Topic:
        if not visibility.may_create(name):
            raise ApiError(_UNAUTHORIZED)
        if name == OFFSETS_TOPIC:
            return await self._groups.ensure_topic()
        return await self._controller.ensure_topic(name)

    # DescribeTopicPartitions

    async def describe_topic_partitions(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Topics in order of their names, up to the partition limit; the cursor is where to continue."""
        view, cursor, visibility = self._cluster.view, request.cursor, self._visibility(context)
        requested = {topic.name for topic in request.topics}
        if requested:
            names = {name for name in requested if visibility.may_describe(name)}
        else:
            names = {name for name in view.topics if visibility.lists(name)}
        if cursor is not None and not _is_valid_cursor(cursor, requested):
            code = ErrorCode.invalid_request
            return {"topics": [{"name": name, "error_code": code} for name in sorted(requested)]}
        after = "" if cursor is None else cursor.topic_name
        nodes = nodes_on(view, context.listener)
        remaining = max(1, min(_MAX_PARTITIONS_DESCRIBED, request.response_partition_limit))
        described: list[dict[str, Any]] = [_unauthorized(name) for name in sorted(requested - names)]
        async for name in yielding(sorted(name for name in names if name >= after)):
            if remaining == 0:
                return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": 0}}
            first = cursor.partition_index if cursor is not None and name == after else 0
            entry = _describe_partitions(view, name, nodes, first, remaining)
            entry["topic_authorized_operations"] = visibility.topic_operations(name)
            described.append(entry)
            remaining -= len(entry["partitions"])
            after_last = first + len(entry["partitions"])
            if name in view.topics and after_last < len(view.topics[name].partitions):
                next_cursor = {"topic_name": name, "partition_index": after_last}
                return {"topics": described, "next_cursor": next_cursor}
        return {"topics": described, "next_cursor": None}


def _is_by_id(entry: Any) -> bool:
    return entry.name is None or getattr(entry, "topic_id", None) is not None


def _refused_by_id(entry: Any) -> MetadataTopic:
    return MetadataTopic(ErrorCode.invalid_request, entry.name, entry.topic_id, False, ())


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _is_valid_cursor(cursor: Any, requested: set[str]) -> bool:
    return cursor.partition_index >= 0 and (not requested or cursor.topic_name in requested)


def _unauthorized(name: str) -> dict[str, Any]:
    return {"error_code": _UNAUTHORIZED, "name": name, "topic_id": NO_TOPIC_ID, "partitions": []}


def _describe_partitions(
    view: ClusterView, name: str, nodes: ListenerNodes, first: int, count: int
) -> dict[str, Any]:
    topic = view.topics.get(name)
    return {
        "error_code": _error_when_missing(name) if topic is None else ErrorCode.none,
        "name": name,
        "topic_id": NO_TOPIC_ID if topic is None else topic.topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": []
        if topic is None
        else [
            {
                "error_code": ErrorCode.none,
                "partition_index": first + index,
                "leader_id": nodes.leader(state),
                "leader_epoch": state.leader_epoch,
                "replica_nodes": state.replicas,
                "isr_nodes": state.isr,
                "eligible_leader_replicas": state.elr,
                "last_known_elr": state.last_known_elr,
                "offline_replicas": nodes.offline(topic, first + index),
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
