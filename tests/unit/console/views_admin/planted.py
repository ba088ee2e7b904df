# SPDX-License-Identifier: Apache-2.0
"""A source whose blocking functions answer what the test planted, and a snapshot to build views from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.console.state.model import (
    GroupState,
    MemberState,
    PartitionState,
    ProgressState,
    Snapshot,
    TopicState,
)
from headrace.console.views.registry import find_view
from headrace.console.views.view import Document
from headrace.types import TopicPartition

NOW_MS = 1_000_000


class PlantedSource:
    """`answer` is returned by every function, or raised."""

    def __init__(self, answer: Any = None) -> None:
        self.cluster = Cluster(bootstrap="nobody:1")
        self._answer = answer

    @property
    def network(self) -> Any:
        raise AssertionError("not used here")

    def now(self) -> Snapshot:
        return Snapshot(at_ms=NOW_MS)

    async def at(self, at_ms: int) -> Snapshot:
        return Snapshot(at_ms=at_ms, live=False)

    async def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def built(
    name: str, answer: Any = None, params: Mapping[str, str] | None = None, snapshot: Snapshot | None = None
) -> Document:
    source = PlantedSource(answer)
    return asyncio.run(find_view(name).build(source, snapshot or source.now(), params or {}))


def orders(
    *, partitions: int = 3, rate_in: float | None = 100.0, end: int | None = 1_000, name: str = "orders"
) -> TopicState:
    return TopicState(
        name=name,
        partitions={
            number: PartitionState(
                partition=number, leader=1, replicas=(1,), isr=(1,), start=0, end=end, rate_in=rate_in
            )
            for number in range(partitions)
        },
    )


def billing(*, consumers: int = 3, committed: int = 900, rate_out: float | None = 80.0) -> GroupState:
    """One partition of `orders` for each consumer."""
    return GroupState(
        group_id="billing",
        state="Stable",
        members=tuple(
            MemberState(
                member_id=f"m{number}",
                client_id=f"c{number}",
                host="/10.0.0.1",
                assigned=(TopicPartition("orders", number),),
            )
            for number in range(consumers)
        ),
        progress={
            TopicPartition("orders", number): ProgressState(committed=committed, rate_out=rate_out)
            for number in range(consumers)
        },
    )


def snapshot(*, topic: TopicState | None = None, group: GroupState | None = None) -> Snapshot:
    return Snapshot(
        at_ms=NOW_MS,
        engine="headrace",
        topics={} if topic is None else {topic.name: topic},
        groups={} if group is None else {group.group_id: group},
    )
