# SPDX-License-Identifier: Apache-2.0
"""What only the page of a topic or group asks: readers, segments, configs, and producers of partitions.

Readers and segments are configs that Headrace answers when they are asked for by name; Apache Kafka has
none of them. Read next: open_pages.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.tools.brokers import active_producers
from headrace.client.tools.positions import Reader, read_readers
from headrace.console.observing.broker_calls import BrokerCalls, of_each
from headrace.console.observing.offset_requests import by_leader
from headrace.console.state.model import ProducerState, SegmentState, TopicState
from headrace.types import READERS, SEGMENTS, TopicPartition
from headrace.wire.api_key import ApiKey

_TOPIC_RESOURCE = 2
Segments = Mapping[TopicPartition, tuple[tuple[SegmentState, ...], int]]


async def ask_readers(calls: BrokerCalls, topics: Iterable[TopicState]) -> dict[TopicPartition, list[Reader]]:
    """The clients that fetch from each partition, as its leader knows them."""
    led = by_leader(topics)
    answers = await of_each(led, lambda node_id: _configs(calls, node_id, led[node_id], [READERS]))
    found: dict[TopicPartition, list[Reader]] = {}
    for node_id, answer in answers.items():
        if not isinstance(answer, ClientError):
            here = {
                TopicPartition(name, index) for name, indexes in led[node_id].items() for index in indexes
            }
            found |= {where: each for where, each in read_readers(answer).items() if where in here}
    return found


async def ask_segments(calls: BrokerCalls, topic: TopicState) -> Segments:
    led = by_leader([topic])
    answers = await of_each(led, lambda node_id: _configs(calls, node_id, led[node_id], [SEGMENTS]))
    found: dict[TopicPartition, tuple[tuple[SegmentState, ...], int]] = {}
    for node_id, answer in answers.items():
        if not isinstance(answer, ClientError):
            here = set(led[node_id][topic.name])
            found |= {where: each for where, each in _segments(answer).items() if where.partition in here}
    return found


def _segments(reply: Any) -> dict[TopicPartition, tuple[tuple[SegmentState, ...], int]]:
    found = {}
    for result in reply.results:
        for config in result.configs:
            prefix, _, partition = str(config.name).rpartition(".")
            if prefix == SEGMENTS:
                try:
                    where = TopicPartition(str(result.resource_name), int(partition))
                    found[where] = _read_segments(json.loads(config.value or "{}"))
                except (ValueError, TypeError, KeyError):
                    continue  # a newer release's form
    return found


def _read_segments(document: Any) -> tuple[tuple[SegmentState, ...], int]:
    listed = document["segments"] if isinstance(document, dict) else document
    more = int(document.get("more", 0)) if isinstance(document, dict) else 0
    segments = tuple(
        SegmentState(base=int(base), bytes=int(size), newest_ms=None if newest is None else int(newest))
        for base, size, newest in listed
    )
    return segments, more


async def ask_configs(calls: BrokerCalls, node_id: int, topic: str) -> dict[str, str]:
    """The configs of a topic that are not secret."""
    reply = await _configs(calls, node_id, [topic], None)
    return {
        str(config.name): str(config.value)
        for config in reply.results[0].configs
        if config.value is not None and not config.is_sensitive
    }


async def _configs(
    calls: BrokerCalls, node_id: int, topics: Iterable[str], keys: Sequence[str] | None
) -> Any:
    resources = [
        {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": keys}
        for topic in sorted(topics)
    ]
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    return await calls.node(node_id, ApiKey.DESCRIBE_CONFIGS, fields)


async def ask_producers(
    calls: BrokerCalls, topic: TopicState
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """The producers that the leaders remember. Raises ClientError where that is refused."""
    led = by_leader([topic])
    found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
    for node_id, topics in led.items():
        asked = [{"name": topic.name, "partition_indexes": topics[topic.name]}]
        reply = await calls.node(node_id, ApiKey.DESCRIBE_PRODUCERS, {"topics": asked})
        for index in topics[topic.name]:
            found[TopicPartition(topic.name, index)] = ()
        for each in active_producers(reply):
            where = TopicPartition(each.topic, each.partition)
            state = ProducerState(
                producer_id=each.producer_id,
                last_seen_ms=each.last_timestamp_ms if each.last_timestamp_ms >= 0 else None,
                transaction_start=each.transaction_start_offset,
            )
            found[where] = (*found.get(where, ()), state)
    return found
