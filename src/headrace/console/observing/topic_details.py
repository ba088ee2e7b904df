# SPDX-License-Identifier: Apache-2.0
"""Configs, segments and producers of one topic, each as far as the cluster tells it."""

from __future__ import annotations

from headrace.client.errors import ClientError
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.topic_requests import Segments, ask_configs, ask_producers, ask_segments
from headrace.console.state.model import PartitionDetails, ProducerState, Snapshot, TopicState
from headrace.types import TopicPartition

Details = tuple[dict[str, str], dict[int, PartitionDetails], dict[str, str | None]]


async def ask_details(calls: BrokerCalls, snapshot: Snapshot, topic: TopicState) -> Details:
    """Configs, details by partition, and sentences about what is not told, by subject."""
    problems: dict[str, str | None] = {}
    configs = await _configs(calls, topic, problems)
    segments: Segments = {}
    if snapshot.engine == "headrace":
        segments = await ask_segments(calls, topic)
    problems["segments"] = None if segments else "This cluster does not tell the segments of a log."
    producers: dict[TopicPartition, tuple[ProducerState, ...]] | None = None
    try:
        producers = await ask_producers(calls, topic)
        problems["producers"] = None
    except ClientError as error:
        problems["producers"] = f"The producers cannot be read: {error.what}."
    details = {}
    for index in topic.partitions:
        where = TopicPartition(topic.name, index)
        listed, more = segments.get(where, (None, 0))
        details[index] = PartitionDetails(
            segments=listed,
            segments_more=more,
            producers=None if producers is None else producers.get(where),
        )
    return configs, details, problems


async def _configs(calls: BrokerCalls, topic: TopicState, problems: dict[str, str | None]) -> dict[str, str]:
    leader = next((each.leader for each in topic.partitions.values() if each.leader is not None), None)
    if leader is None:
        return {}
    try:
        configs = await ask_configs(calls, leader, topic.name)
    except ClientError as error:
        problems["configs"] = f"The configs of the topic cannot be read: {error.what}."
        return {}
    problems["configs"] = None
    return configs
