# SPDX-License-Identifier: Apache-2.0
"""A cluster of three nodes as a snapshot, and a source that shows it: what tests of views start from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.network_client import NetworkClient
from headrace.console.state.model import (
    Event,
    GroupState,
    MemberState,
    NodeState,
    PartitionState,
    ProgressState,
    Snapshot,
    TopicState,
)
from headrace.console.views.registry import find_view
from headrace.console.views.view import Document
from headrace.types import TopicPartition

T = TypeVar("T")
NOW = 1_000_000


@dataclass(frozen=True, slots=True)
class StillSource:
    """Nothing can be asked of it."""

    snapshot: Snapshot

    @property
    def cluster(self) -> Cluster:
        return Cluster(bootstrap="kafka:9092")

    @property
    def network(self) -> NetworkClient:
        raise AssertionError("this view asks nothing")

    def now(self) -> Snapshot:
        return self.snapshot

    async def at(self, at_ms: int) -> Snapshot:
        raise AssertionError("this view asks nothing")

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        raise AssertionError("this view asks nothing")


def show(name: str, snapshot: Snapshot, **params: str) -> Document:
    return asyncio.run(find_view(name).build(StillSource(snapshot), snapshot, params))


def partition(index: int, leader: int | None = 1, **more: Any) -> PartitionState:
    known = PartitionState(
        partition=index, leader=leader, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3), start=0, end=100,
        size_bytes=1_000, rate_in=10.0,
    )  # fmt: skip
    return replace(known, **more)


def topic(name: str, *partitions: PartitionState, **more: Any) -> TopicState:
    return TopicState(name=name, topic_id=f"id of {name}", partitions=dict(enumerate(partitions)), **more)


def place(index: int, name: str = "orders") -> TopicPartition:
    return TopicPartition(name, index)


def member(name: str, *partitions: int, **more: Any) -> MemberState:
    return MemberState(
        member_id=name,
        client_id=f"client-{name}",
        host="10.0.0.1",
        assigned=tuple(map(place, partitions)),
        **more,
    )


def group(name: str, *members: MemberState, progress: dict[int, ProgressState], **more: Any) -> GroupState:
    given: dict[str, Any] = {"state": "Stable", "assignor": "range", "coordinator": 1, **more}
    return GroupState(
        group_id=name,
        members=members,
        progress={place(index): known for index, known in progress.items()},
        **given,
    )


def event(at: int, kind: str, **fields: Any) -> Event:
    return Event(at_ms=at, kind=kind, **fields)


def planted() -> Snapshot:
    """`orders` with two partitions, read by `billing` with two members."""
    return Snapshot(
        at_ms=NOW,
        engine="headrace",
        cluster_id="c",
        records_events=True,
        controller=2,
        nodes={
            number: NodeState(
                node_id=number, host="127.0.0.1", port=9090 + number, disk_used_bytes=50,
                disk_free_bytes=50, disk_total_bytes=100,
            )
            for number in (1, 2, 3)
        },
        topics={"orders": topic("orders", partition(0, 1), partition(1, 2))},
        groups={
            "billing": group(
                "billing",
                member("a", 0),
                member("b", 1),
                progress={
                    0: ProgressState(committed=100, rate_out=10.0),
                    1: ProgressState(
                        committed=40, rate_out=5.0, behind_ms=9_000, behind_since_ms=NOW - 20_000, position=45
                    ),
                },
            )
        },
    )  # fmt: skip
