"""CreateTopics 2–7, DeleteTopics 1–6, CreatePartitions 0–3: requests to the controller and back.

CreateTopics 5+ tells the new topic's settings and counts, 7 its id. DeleteTopics 6 takes names or ids.
The time-out is not looked at: an answer comes when the change is durable. Gap: mutation quotas (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.broker.config_entries import NodeLayers, topic_entries
from headrace.broker.context import Handler, RequestContext
from headrace.broker.topic_rules import Assignment, MorePartitions, NewTopic
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.types import NO_TOPIC_ID, Topic
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_CONFIGS_SINCE = 5
_DELETION_DISABLED_SINCE = 3
_IDS_SINCE = 6


async def create_topics(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    answers = await broker.controller.create_topics(
        [_new_topic(asked) async for asked in in_turns(request.topics)], validate_only=request.validate_only
    )
    shown = _ShownConfigs(broker) if context.api_version >= _CONFIGS_SINCE else None
    return {
        "throttle_time": 0,
        "topics": [
            _created(answer, shown) if isinstance(answer, Topic) else _refused(asked.name, answer)
            async for asked, answer in in_turns(zip(request.topics, answers, strict=True))
        ],
    }


def _new_topic(asked: Any) -> NewTopic:
    return NewTopic(
        name=asked.name,
        partition_count=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments=tuple(
            Assignment(partition_index=each.partition_index, replicas=tuple(each.broker_ids))
            for each in asked.assignments
        ),
        configs=tuple((config.name, config.value) for config in asked.configs),
    )


class _ShownConfigs:
    """Thousands of topics of one request mostly share their settings: worked out once."""

    def __init__(self, broker: Broker) -> None:
        self._layers = NodeLayers.of(broker.config, broker.cluster.view, broker.node_id)
        self._known: dict[Hashable, list[dict[str, Any]]] = {}

    def of(self, configs: Mapping[str, str], replicas: int) -> list[dict[str, Any]]:
        key = (replicas, *sorted(configs.items()))
        if key not in self._known:
            entries = topic_entries(self._layers, configs, replicas=replicas)
            names = ("name", "value", "read_only", "config_source", "is_sensitive")
            self._known[key] = [{name: entry[name] for name in names} for entry in entries]
        return self._known[key]


def _created(topic: Topic, shown: _ShownConfigs | None) -> dict[str, Any]:
    replicas = len(topic.partitions[0].replicas)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": replicas,
        "configs": None if shown is None else shown.of(topic.configs, replicas),
    }


def _refused(name: str, error: ApiError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "error_code": error.code,
        "error_message": error.message,
        "configs": None,
    }


class _Asked(NamedTuple):
    """A topic to delete: by name or by id."""

    name: str | None
    topic_id: UUID | None


async def delete_topics(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    found: dict[_Asked, Topic | ApiError] = {}
    names: set[str] = set()
    for asked, times in Counter(_asked_for_deletion(context, request)).items():
        answer = _find(broker, context, asked, times)
        if isinstance(answer, Topic) and answer.name in names:
            answer = _invalid("The provided topic name maps to an ID that was already supplied.")
        elif isinstance(answer, Topic):
            names.add(answer.name)
        found[asked] = answer
    topics = [answer for answer in found.values() if isinstance(answer, Topic)]
    outcomes = await broker.controller.delete_topics([topic.name for topic in topics])
    outcome_of = {topic.name: outcome for topic, outcome in zip(topics, outcomes, strict=True)}
    return {
        "throttle_time": 0,
        "responses": [
            _deletion(answer.name, answer.topic_id, outcome_of[answer.name])
            if isinstance(answer, Topic)
            else _deletion(asked.name, asked.topic_id, answer)
            for asked, answer in found.items()
        ],
    }


def _asked_for_deletion(context: RequestContext, request: Any) -> list[_Asked]:
    if context.api_version < _IDS_SINCE:
        return [_Asked(name, None) for name in request.topic_names]
    return [_Asked(each.name, each.topic_id) for each in request.topics]


def _find(broker: Broker, context: RequestContext, asked: _Asked, times: int) -> Topic | ApiError:
    if not broker.controller.deletion_enabled:
        known = context.api_version >= _DELETION_DISABLED_SINCE
        code = ErrorCode.topic_deletion_disabled if known else ErrorCode.invalid_request
        return ApiError(code, "Topic deletion is disabled.")
    if asked.name is None and asked.topic_id is None:
        return _invalid("Neither topic name nor id were specified.")
    if asked.name is not None and asked.topic_id is not None:
        return _invalid("You may not specify both topic name and topic id.")
    if times > 1:
        return _invalid(f"Duplicate topic {'id' if asked.name is None else 'name'}.")
    view = broker.cluster.view
    if asked.topic_id is not None:
        return view.topic_by_id(asked.topic_id) or ApiError(
            ErrorCode.unknown_topic_id, "This server does not host this topic ID."
        )
    return view.topics.get(asked.name or "") or ApiError(
        ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


def _deletion(name: str | None, topic_id: UUID | None, outcome: ApiError | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": topic_id or NO_TOPIC_ID,
        "error_code": ErrorCode.none if outcome is None else outcome.code,
        "error_message": None if outcome is None else outcome.message,
    }


async def create_partitions(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    outcomes = await broker.controller.create_partitions(
        [_more_partitions(asked) async for asked in in_turns(request.topics)],
        validate_only=request.validate_only,
    )
    answers = {asked.name: outcome for asked, outcome in zip(request.topics, outcomes, strict=True)}
    return {
        "throttle_time": 0,
        "results": [
            {
                "name": name,
                "error_code": ErrorCode.none if outcome is None else outcome.code,
                "error_message": None if outcome is None else outcome.message,
            }
            for name, outcome in answers.items()
        ],
    }


def _more_partitions(asked: Any) -> MorePartitions:
    return MorePartitions(
        name=asked.name,
        count=asked.count,
        assignments=None
        if asked.assignments is None
        else tuple(tuple(each.broker_ids) for each in asked.assignments),
    )


HANDLERS: dict[int, Handler] = {19: create_topics, 20: delete_topics, 37: create_partitions}
