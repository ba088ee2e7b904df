# SPDX-License-Identifier: Apache-2.0
"""DescribeConfigs tells the segments of a topic's logs when they are asked for, as the console reads them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headrace.console.observing.topic_requests import _segments
from headrace.types import SEGMENTS, TopicPartition
from headrace.wire.api_key import ApiKey
from tests.harness.broker.simulated_node import TOPIC, SimBroker, on_a_node


async def fill(node: SimBroker, segments: int, partitions: int = 1) -> None:
    """Each record is older than its segment may be when the next one comes."""
    assert await node.create(partitions=partitions, segment_ms="10") == 0
    for _ in range(segments):
        assert (await node.produce(b"x"))[0] == 0
        await asyncio.sleep(1)


async def described(node: SimBroker, *keys: str) -> Any:
    asked = [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": list(keys) or None}]
    fields = {"resources": asked, "include_synonyms": False, "include_documentation": False}
    return await node._once(ApiKey.DESCRIBE_CONFIGS, fields)


def test_segments_are_told_when_they_are_asked_for() -> None:
    async def scenario(node: SimBroker) -> None:
        await fill(node, 6, partitions=2)
        log = node.partition().log
        assert log.segment_count > 2
        found = _segments(await described(node, SEGMENTS))
        listed, more = found[TopicPartition(TOPIC, 0)]
        assert [each.base for each in listed] == log._segments.base_offsets
        assert sum(each.bytes for each in listed) == log.size_bytes
        assert listed[0].newest_ms is not None
        assert more == 0
        (empty,) = found[TopicPartition(TOPIC, 1)][0]
        assert (empty.base, empty.bytes, empty.newest_ms) == (0, 0, None)

    on_a_node(scenario)


def test_of_many_segments_the_oldest_are_told_and_the_others_counted() -> None:
    async def scenario(node: SimBroker) -> None:
        await fill(node, 60)
        listed, more = _segments(await described(node, SEGMENTS))[TopicPartition(TOPIC, 0)]
        assert (len(listed), listed[0].base) == (50, 0)
        assert more == node.partition().log.segment_count - 50

    on_a_node(scenario)


def test_nobody_else_sees_them() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        names = [config.name for config in (await described(node)).results[0].configs]
        assert not [name for name in names if name.startswith(SEGMENTS)]
        (entry,) = (await described(node, SEGMENTS)).results[0].configs
        assert (entry.name, json.loads(entry.value)["more"], entry.read_only) == (f"{SEGMENTS}.0", 0, True)

    on_a_node(scenario)
