# SPDX-License-Identifier: Apache-2.0
"""The drawn groups (D10, D11) with real consumers: who has what before and after each rebalance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.harness.groups.polled_consumers import QUICK_GROUPS, PolledGroup
from tests.harness.live.node import NodeProcess

TIMEOUT_S = 20


class Way(NamedTuple):
    """How a group shares out its partitions."""

    name: str
    settings: dict[str, Any]
    keeps: bool
    """Whether consumers keep what they have, so that only the least moves."""


CLASSIC = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
ROUND_ROBIN = Way("roundrobin", {**CLASSIC, "partition_assignment_strategy": "roundrobin"}, keeps=False)
RANGE = Way("range", {**CLASSIC, "partition_assignment_strategy": "range"}, keeps=False)
STICKY = Way("sticky", {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}, keeps=True)
KIP_848 = {"group_protocol": "consumer"}
UNIFORM = Way("kip848-uniform", {**KIP_848, "group_remote_assignor": "uniform"}, keeps=True)
SERVER_RANGE = Way("kip848-range", {**KIP_848, "group_remote_assignor": "range"}, keeps=False)

in_every_way = pytest.mark.parametrize(
    "way", [ROUND_ROBIN, RANGE, STICKY, UNIFORM, SERVER_RANGE], ids=lambda way: way.name
)
NAMES = ("A#0", "A#1", "A#2")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("drawn"), settings=QUICK_GROUPS) as node:
        yield node.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def polled_group(bootstrap: str, topic: str, way: Way) -> Iterator[PolledGroup]:
    with PolledGroup(bootstrap, f"group of {topic}", **way.settings) as polled_group:
        yield polled_group


class Scene:
    """A topic and the consumers A#0, A#1, … of a group."""

    def __init__(
        self, polled_group: PolledGroup, admin: AdminClient, topic: str, *, partitions: int, consumers: int
    ) -> None:
        self.polled_group, self._admin, self._topic, self._partitions = polled_group, admin, topic, partitions
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
        for name in NAMES[:consumers]:
            polled_group.join(name, [topic])
        self.before = self.assigned_when_stable()

    def assigned_when_stable(self) -> dict[str, list[int]]:
        self.polled_group.wait_until_stable(
            *((self._topic, partition) for partition in range(self._partitions))
        )
        return self.polled_group.shares()

    def add_partition(self) -> dict[str, list[int]]:
        self._partitions += 1
        wanted = NewPartitions(self._topic, self._partitions)
        self._admin.create_partitions([wanted])[self._topic].result(TIMEOUT_S)
        return self.assigned_when_stable()

    def join(self, name: str) -> dict[str, list[int]]:
        self.polled_group.join(name, [self._topic])
        return self.assigned_when_stable()

    def leave(self, name: str) -> dict[str, list[int]]:
        self.polled_group.leave(name)
        return self.assigned_when_stable()


def sizes(shares: dict[str, list[int]]) -> list[int]:
    return sorted(len(partitions) for partitions in shares.values())


def everything(shares: dict[str, list[int]]) -> list[int]:
    return sorted(partition for partitions in shares.values() for partition in partitions)


def moved(before: dict[str, list[int]], after: dict[str, list[int]]) -> set[int]:
    """Partitions that somebody had who is still there, and has no longer."""
    return {
        partition
        for name, partitions in before.items()
        for partition in partitions
        if name in after and partition not in after[name]
    }


@pytest.mark.row("D10")
@in_every_way
def test_four_partitions_over_three_consumers(
    polled_group: PolledGroup, admin: AdminClient, topic: str, way: Way
) -> None:
    shares = Scene(polled_group, admin, topic, partitions=4, consumers=3).before
    assert sizes(shares) == [1, 1, 2]
    assert everything(shares) == [0, 1, 2, 3]
    if way is ROUND_ROBIN:  # as drawn: the fourth goes to the first
        assert shares == {"A#0": [0, 3], "A#1": [1], "A#2": [2]}
    if way is RANGE:  # neighbours stay together
        assert shares == {"A#0": [0, 1], "A#1": [2], "A#2": [3]}


@pytest.mark.row("D11")
@in_every_way
def test_an_added_partition_goes_to_the_least_loaded(
    polled_group: PolledGroup, admin: AdminClient, topic: str, way: Way
) -> None:
    scene = Scene(polled_group, admin, topic, partitions=4, consumers=3)
    after = scene.add_partition()
    assert sizes(after) == [1, 2, 2]
    assert everything(after) == [0, 1, 2, 3, 4]
    if way is ROUND_ROBIN:
        assert after == {"A#0": [0, 3], "A#1": [1, 4], "A#2": [2]}
    if way.keeps or way is ROUND_ROBIN:
        (taker,) = (name for name, partitions in after.items() if 4 in partitions)
        assert len(scene.before[taker]) == 1
        assert moved(scene.before, after) == set()


@pytest.mark.row("D11")
@in_every_way
def test_a_consumer_that_joins_takes_from_the_most_loaded(
    polled_group: PolledGroup, admin: AdminClient, topic: str, way: Way
) -> None:
    scene = Scene(polled_group, admin, topic, partitions=3, consumers=2)
    after = scene.join("A#2")
    assert sizes(after) == [1, 1, 1]
    if way is ROUND_ROBIN:
        assert scene.before == {"A#0": [0, 2], "A#1": [1]}
        assert after == {"A#0": [0], "A#1": [1], "A#2": [2]}
    if way.keeps or way is ROUND_ROBIN:
        (most_loaded,) = (name for name, partitions in scene.before.items() if len(partitions) == 2)
        assert set(after["A#2"]) < set(scene.before[most_loaded])
        assert moved(scene.before, after) == set(after["A#2"])


@pytest.mark.row("D11")
@in_every_way
def test_the_partitions_of_a_consumer_that_leaves_are_shared_out(
    polled_group: PolledGroup, admin: AdminClient, topic: str, way: Way
) -> None:
    scene = Scene(polled_group, admin, topic, partitions=3, consumers=3)
    after = scene.leave("A#2")
    assert sizes(after) == [1, 2]
    assert everything(after) == [0, 1, 2]
    if way is ROUND_ROBIN:
        assert scene.before == {"A#0": [0], "A#1": [1], "A#2": [2]}
        assert after == {"A#0": [0, 2], "A#1": [1]}
    if way.keeps or way is ROUND_ROBIN:
        assert moved(scene.before, after) == set()


@pytest.mark.row("D11")
@pytest.mark.parametrize("way", [STICKY, UNIFORM], ids=lambda way: way.name)
def test_a_kept_partition_causes_no_rebalance_callback(
    polled_group: PolledGroup, admin: AdminClient, topic: str, way: Way
) -> None:
    """Incremental rebalances: listeners hear of what moves only, and nothing is lost."""
    scene = Scene(polled_group, admin, topic, partitions=3, consumers=2)
    begin = len(polled_group.rebalances)
    after = scene.join("A#2")
    (gone,) = after["A#2"]
    rebalances = [event for event in polled_group.rebalances[begin:] if event.keys]
    assert [(event.kind, event.keys) for event in rebalances] == [
        ("revoked", {(topic, gone)}),
        ("assigned", {(topic, gone)}),
    ]
    assert rebalances[1].consumer == "A#2"
