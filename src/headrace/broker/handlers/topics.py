# SPDX-License-Identifier: Apache-2.0
"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3.

CreateTopics replies with the topic's configs and counts from version 5 on, with its id in version 7.
DeleteTopics 6 accepts names or ids. The reply is made when the change is durable; the timeout in the request
bounds the wait for the other nodes (controller/change_propagation.py). Beyond `controller_mutation_rate`
newer versions are refused with THROTTLING_QUOTA_EXCEEDED, older ones only throttled (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.controller.config_entries import NodeLayers, topic_entries
from headrace.broker.controller.controller import Controller
from headrace.broker.controller.topic_rules import Assignment, MorePartitions, NewTopic
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.quotas.client_throttles import ClientThrottles, MutationQuota
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.types import NO_TOPIC_ID, Topic
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_CONFIGS_SINCE = 5
_DELETION_DISABLED_SINCE = 3
_IDS_SINCE = 6
_CREATE_STRICT_SINCE, _DELETE_STRICT_SINCE, _CREATE_PARTITIONS_STRICT_SINCE = 6, 5, 3
"""Versions whose clients understand THROTTLING_QUOTA_EXCEEDED."""


class _TopicConfigs:
    """Config entries of created topics, computed once for all topics with equal configs."""

    def __init__(self, layers: NodeLayers) -> None:
        self._layers = layers
        self._known: dict[Hashable, list[dict[str, Any]]] = {}

    def of(self, configs: Mapping[str, str], replicas: int) -> list[dict[str, Any]]:
        key = (replicas, *sorted(configs.items()))
        if key not in self._known:
            entries = topic_entries(self._layers, configs, replicas=replicas)
            names = ("name", "value", "read_only", "config_source", "is_sensitive")
            self._known[key] = [{name: entry[name] for name in names} for entry in entries]
        return self._known[key]


class _Target(NamedTuple):
    """A topic to delete, by name or by id."""

    name: str | None
    topic_id: UUID | None


class TopicHandlers:
    """Handlers of CreateTopics, DeleteTopics and CreatePartitions."""

    def __init__(
        self,
        *,
        cluster: ClusterMetadata,
        controller: Controller,
        config: NodeConfig,
        node_id: int,
        throttles: ClientThrottles,
    ) -> None:
        self._cluster = cluster
        self._throttles = throttles
        self._controller = controller
        self._config = config
        self._node_id = node_id

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.CREATE_TOPICS: self.create_topics,
            ApiKey.DELETE_TOPICS: self.delete_topics,
            ApiKey.CREATE_PARTITIONS: self.create_partitions,
        }

    async def create_topics(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """A name that appears twice is refused once, as in Apache Kafka."""
        quota = self._throttles.mutations(context, strict_since=_CREATE_STRICT_SINCE)
        results = await self._controller.create_topics(
            [_new_topic(entry) async for entry in yielding(request.topics)],
            validate_only=request.validate_only,
            charge=None if quota is None else quota.charge,
        )
        answers = {
            entry.name: result async for entry, result in yielding(zip(request.topics, results, strict=True))
        }
        configs = self._topic_configs() if context.api_version >= _CONFIGS_SINCE else None
        return {
            "throttle_time": _throttle_ms(quota),
            "topics": [
                _created(result, configs) if isinstance(result, Topic) else _refused(name, result)
                async for name, result in yielding(answers.items())
            ],
        }

    def _topic_configs(self) -> _TopicConfigs:
        return _TopicConfigs(NodeLayers.of(self._config, self._cluster.view, self._node_id))

    async def delete_topics(self, context: RequestContext, request: Any) -> dict[str, Any]:
        quota = self._throttles.mutations(context, strict_since=_DELETE_STRICT_SINCE)
        found: dict[_Target, Topic | ApiError] = {}
        names: set[str] = set()
        counts: Counter[_Target] = Counter()
        async for target in yielding(_targets(context, request)):
            counts[target] += 1
        async for target, count in yielding(counts.items()):
            result = self._find(context, target, count)
            if isinstance(result, Topic) and result.name in names:
                result = _invalid("The provided topic name maps to an ID that was already supplied.")
            elif isinstance(result, Topic):
                names.add(result.name)
            found[target] = _charged(quota, result)
        topics = [result for result in found.values() if isinstance(result, Topic)]
        outcomes = await self._controller.delete_topics([topic.name for topic in topics])
        outcome_of = {topic.name: outcome for topic, outcome in zip(topics, outcomes, strict=True)}
        return {
            "throttle_time": _throttle_ms(quota),
            "responses": [
                _deletion(result.name, result.topic_id, outcome_of[result.name])
                if isinstance(result, Topic)
                else _deletion(target.name, target.topic_id, result)
                async for target, result in yielding(found.items())
            ],
        }

    def _find(self, context: RequestContext, target: _Target, count: int) -> Topic | ApiError:
        if not self._controller.deletion_enabled:
            known = context.api_version >= _DELETION_DISABLED_SINCE
            code = ErrorCode.topic_deletion_disabled if known else ErrorCode.invalid_request
            return ApiError(code, "Topic deletion is disabled.")
        if target.name is None and target.topic_id is None:
            return _invalid("Neither topic name nor id were specified.")
        if target.name is not None and target.topic_id is not None:
            return _invalid("You may not specify both topic name and topic id.")
        if count > 1:
            return _invalid(f"Duplicate topic {'id' if target.name is None else 'name'}.")
        view = self._cluster.view
        if target.topic_id is not None:
            return view.topic_by_id(target.topic_id) or ApiError(
                ErrorCode.unknown_topic_id, "This server does not host this topic ID."
            )
        return view.topics.get(target.name or "") or ApiError(
            ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
        )

    async def create_partitions(self, context: RequestContext, request: Any) -> dict[str, Any]:
        quota = self._throttles.mutations(context, strict_since=_CREATE_PARTITIONS_STRICT_SINCE)
        outcomes = await self._controller.create_partitions(
            [_more_partitions(entry) async for entry in yielding(request.topics)],
            validate_only=request.validate_only,
            charge=None if quota is None else quota.charge,
        )
        results = {
            entry.name: outcome
            async for entry, outcome in yielding(zip(request.topics, outcomes, strict=True))
        }
        return {
            "throttle_time": _throttle_ms(quota),
            "results": [
                {
                    "name": name,
                    "error_code": ErrorCode.none if outcome is None else outcome.code,
                    "error_message": None if outcome is None else outcome.message,
                }
                async for name, outcome in yielding(results.items())
            ],
        }


def _throttle_ms(quota: MutationQuota | None) -> int:
    return 0 if quota is None else quota.throttle_ms


def _charged(quota: MutationQuota | None, topic: Topic | ApiError) -> Topic | ApiError:
    """The topic to delete, unless the quota refuses it."""
    if quota is not None and isinstance(topic, Topic):
        try:
            quota.charge(len(topic.partitions))
        except ApiError as refusal:
            return refusal
    return topic


def _new_topic(entry: Any) -> NewTopic:
    return NewTopic(
        name=entry.name,
        partition_count=entry.num_partitions,
        replication_factor=entry.replication_factor,
        assignments=tuple(
            Assignment(partition_index=each.partition_index, replicas=tuple(each.broker_ids))
            for each in entry.assignments
        ),
        configs=tuple((config.name, config.value) for config in entry.configs),
    )


def _created(topic: Topic, configs: _TopicConfigs | None) -> dict[str, Any]:
    replicas = len(topic.partitions[0].replicas)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": replicas,
        "configs": None if configs is None else configs.of(topic.configs, replicas),
    }


def _refused(name: str, error: ApiError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "error_code": error.code,
        "error_message": error.message,
        "configs": None,
    }


def _targets(context: RequestContext, request: Any) -> Iterator[_Target]:
    if context.api_version < _IDS_SINCE:
        return (_Target(name, None) for name in request.topic_names)
    return (_Target(each.name, each.topic_id) for each in request.topics)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


def _deletion(name: str | None, topic_id: UUID | None, outcome: ApiError | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": topic_id or NO_TOPIC_ID,
        "error_code": ErrorCode.none if outcome is None else outcome.code,
        "error_message": None if outcome is None else outcome.message,
    }


def _more_partitions(entry: Any) -> MorePartitions:
    return MorePartitions(
        name=entry.name,
        count=entry.count,
        assignments=None
        if entry.assignments is None
        else tuple(tuple(each.broker_ids) for each in entry.assignments),
    )
