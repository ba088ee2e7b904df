# SPDX-License-Identifier: Apache-2.0
"""What a group coordinator does, asked by raw members: rebalances, commits, heartbeats, reload."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from statistics import median

from bench.cell import Cell
from bench.group_client import (
    ClassicGroup,
    Kip848Member,
    ask,
    expect_none,
    form_groups,
    repeat_each,
    wait_for_coordinator,
    wait_until_stable,
)
from bench.model import Figures, Profile
from bench.raw_client import RawConnection, no_collection, send_each
from bench.raw_requests import RawReplyError
from headrace.cluster.engines.engine import RunningNode
from tests.harness.groups import wire as wire

COORDINATOR_PROFILE = Profile(
    name="groups",
    settings={
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.assignment.interval.ms": "0",
    },
)
"""Nothing waits on purpose: what is left is the broker's own time."""

LONG_SESSION_PROFILE = Profile(
    name="groups with long sessions",
    settings={
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": "1800000",
        "group.consumer.max.session.timeout.ms": "1800000",
        "group.consumer.assignment.interval.ms": "0",
    },
)
"""3,000 members must not be sent away between two turns."""

MEMBERS, PARTITIONS = 50, 500
GROUPS, GROUP_SIZE = 1000, 3
HEARTBEAT_SECONDS = 3.0
"""How often each of the 3,000 members says that it is there: the clients' default."""
COMMITTED_OFFSETS = 100_000
_OFFSETS_PER_GROUP = 100
_group_numbers = count()


def new_group() -> str:
    return f"bench-group-{next(_group_numbers)}"


def _small(cell: Cell) -> RawConnection:
    return cell.connect(buffer_bytes=1 << 12)


def _large_topic(cell: Cell) -> str:
    return cell.shared_topic(lambda _: None, partitions=PARTITIONS)


def classic_rebalance(cell: Cell) -> Figures:
    """The stop of the world that users curse: how much of it is the broker's."""
    group_name, topic = new_group(), _large_topic(cell)
    with ExitStack() as stack, no_collection():
        wait_for_coordinator(stack.enter_context(cell.connect()), group_name)
        group = _form_one(cell, stack, group_name, topic)
        times = [group.rebalance() for _ in range(cell.scaled(15, least=3))]
    return {"rebalance_ms": median(times) * 1000, "slowest_ms": max(times) * 1000}


def _form_one(cell: Cell, stack: ExitStack, name: str, topic: str) -> ClassicGroup:
    (group,) = form_groups(
        [name],
        topic,
        partitions=PARTITIONS,
        members=MEMBERS,
        connect=lambda: stack.enter_context(cell.connect(buffer_bytes=1 << 14)),
    )
    return group


def kip848_target(cell: Cell) -> Figures:
    """KIP-848: from the heartbeat of a 51st member to a reply that knows the new target assignment."""
    group, topic = new_group(), _large_topic(cell)
    times: list[float] = []
    with ExitStack() as stack, no_collection():
        wait_for_coordinator(stack.enter_context(cell.connect()), group)
        members = [
            Kip848Member(connection=stack.enter_context(_small(cell)), group=group, topic=topic)
            for _ in range(MEMBERS)
        ]
        for member in members:
            member.join()
        epoch = wait_until_stable(members, PARTITIONS)
        with _small(cell) as connection:
            for _ in range(cell.scaled(8, least=2)):
                joiner = Kip848Member(connection=connection, group=group, topic=topic)
                times.append(_to_new_target(joiner, epoch))
                wait_until_stable([*members, joiner], PARTITIONS)
                joiner.leave()
                epoch = wait_until_stable(members, PARTITIONS)
    return {"target_ms": median(times) * 1000, "slowest_ms": max(times) * 1000}


def _to_new_target(joiner: Kip848Member, epoch: int) -> float:
    """A broker that computes the target beside the request answers with the old epoch at first."""
    request = joiner.join_request()
    started = time.perf_counter()
    while True:
        frame = joiner.connection.call(request)
        ended = time.perf_counter()
        joiner.apply(frame)
        if joiner.epoch > epoch:
            return ended - started
        request = joiner.heartbeat_request()


def offset_commits(cell: Cell) -> Figures:
    """50 consumers that commit after every batch, each waiting for the answer: of ten partitions, of one."""
    group_name, topic = new_group(), _large_topic(cell)
    with ExitStack() as stack, no_collection():
        wait_for_coordinator(stack.enter_context(cell.connect()), group_name)
        group = _form_one(cell, stack, group_name, topic)
        figures: Figures = {}
        for partitions_each, suffix in ((PARTITIONS // MEMBERS, ""), (1, "_one_partition")):
            requests = [_commit_of(group, place, partitions_each) for place in range(MEMBERS)]
            with cell.cpu_clock() as cpu:
                done, taken = _commit_on(group, requests, seconds=max(2.0 * cell.scale, 0.4))
            figures[f"kcommits_per_s{suffix}"] = done / taken / 1e3
            figures[f"cpu_us_per_commit{suffix}"] = cpu.seconds / done * 1e6
    return figures


def _commit_of(group: ClassicGroup, place: int, partitions_each: int) -> bytes:
    mine = range(place, PARTITIONS, MEMBERS)[:partitions_each]
    member_id = group.members[place].member_id
    offsets = dict.fromkeys(mine, 1000 + place)
    fields = wire.commit_fields(group.name, member_id, group.generation, group.topic, offsets)
    return wire.request("offset_commit", fields)


def _commit_on(group: ClassicGroup, requests: Sequence[bytes], seconds: float) -> tuple[int, float]:
    connections = [member.connection for member in group.members]
    expected = [_accepted(connection, one) for connection, one in zip(connections, requests, strict=True)]
    return repeat_each(connections, requests, expected, seconds)


def _accepted(connection: RawConnection, request: bytes) -> bytes:
    """The reply, which must hold no error: later ones are compared with it byte by byte."""
    frame = bytes(connection.call(request))
    for topic in wire.read_reply("offset_commit", frame).topics:
        for partition in topic.partitions:
            expect_none("OffsetCommit", partition.error_code)
    return frame


def _pace(connections: Sequence[RawConnection], requests: Sequence[bytes], seconds: float) -> int:
    """Heartbeats spread evenly, each member's every three seconds, checked against its first; how many."""
    per_tick = max(1, len(connections) // int(HEARTBEAT_SECONDS * 100))
    started = time.monotonic()
    expected = bytes(connections[0].call(requests[0]))
    ticks = int(seconds * 100)
    place = 1
    for tick in range(ticks):
        batch = [(place + step) % len(connections) for step in range(per_tick)]
        for one in batch:
            connections[one].send(requests[one])
        for one in batch:
            if bytes(connections[one].receive())[:11] != expected[:11]:
                raise RawReplyError("a heartbeat was answered by an error")
        place = batch[-1] + 1
        time.sleep(max(0.0, started + (tick + 1) / 100 - time.monotonic()))
    return ticks * per_tick


def _heartbeats(cell: Cell, connections: Sequence[RawConnection], requests: Sequence[bytes]) -> Figures:
    seconds = max(4.0 * cell.scale, 1.0)
    began = time.monotonic()
    with cell.cpu_clock() as cpu:
        beats = _pace(connections, requests, seconds)
    elapsed = time.monotonic() - began
    return {
        "cpu_percent": cpu.seconds / elapsed * 100,
        "heartbeats_per_s": beats / elapsed,
        "cpu_us_per_heartbeat": cpu.seconds / beats * 1e6,
    }


def classic_heartbeats(cell: Cell) -> Figures:
    """A thousand small services with nothing to do: what their being there costs."""
    if "groups" not in cell.state:
        cell.state["groups"] = _form_classic_groups(cell)
    groups: list[ClassicGroup] = cell.state["groups"]
    connections = [member.connection for group in groups for member in group.members]
    requests = [
        member.heartbeat(group.name, group.generation) for group in groups for member in group.members
    ]
    return _heartbeats(cell, connections, requests)


def _form_classic_groups(cell: Cell) -> list[ClassicGroup]:
    topic = cell.shared_topic(lambda _: None, partitions=GROUP_SIZE)
    with cell.connect() as connection:
        wait_for_coordinator(connection, new_group())
    names = [new_group() for _ in range(_group_count(cell))]
    return form_groups(names, topic, partitions=GROUP_SIZE, members=GROUP_SIZE, connect=lambda: _small(cell))


def _group_count(cell: Cell) -> int:
    return max(20, int(GROUPS * cell.suite_scale))


def kip848_heartbeats(cell: Cell) -> Figures:
    """The same with KIP-848 members."""
    if "members" not in cell.state:
        cell.state["members"] = _form_kip848_groups(cell)
    members: list[Kip848Member] = cell.state["members"]
    return _heartbeats(
        cell, [member.connection for member in members], [member.heartbeat_request() for member in members]
    )


def _form_kip848_groups(cell: Cell) -> list[Kip848Member]:
    topic = cell.shared_topic(lambda _: None, partitions=GROUP_SIZE)
    with cell.connect() as connection:
        wait_for_coordinator(connection, new_group())
    members: list[Kip848Member] = []
    for _ in range(_group_count(cell)):
        group = new_group()
        together = [
            Kip848Member(connection=_small(cell), group=group, topic=topic) for _ in range(GROUP_SIZE)
        ]
        for member in together:
            member.join()
        wait_until_stable(together, GROUP_SIZE)
        members += together
    return members


def reload(cell: Cell) -> Figures:
    """Killed and started again with 100,000 committed offsets: how long groups wait for their positions."""
    groups = max(10, int(COMMITTED_OFFSETS * cell.scale) // _OFFSETS_PER_GROUP)
    prepared = cell.nodes.prepare(cell.variant)
    node = prepared.launch()
    try:
        empty_s = node.ready_after_ms / 1000
        cell.own_node = node
        names = [new_group() for _ in range(groups)]
        _commit_all(cell, names)
        node.kill()
        began = time.monotonic()
        node = cell.own_node = prepared.launch()
        _wait_for_all(node, names)
        whole_s = time.monotonic() - began
    finally:
        node.kill()
        cell.own_node = None
    return {"reload_s": max(0.0, whole_s - empty_s), "start_s": whole_s, "empty_start_s": empty_s}


def _commit_all(cell: Cell, names: Sequence[str]) -> None:
    topic = cell.create_topic(_OFFSETS_PER_GROUP)
    offsets = {index: 12_345 + index for index in range(_OFFSETS_PER_GROUP)}
    requests = [
        wire.request("offset_commit", wire.commit_fields(name, "", -1, topic, offsets)) for name in names
    ]
    with cell.connect() as connection:
        for name in names[:200]:  # the coordinator's 50 partitions are there by then
            wait_for_coordinator(connection, name)
        send_each(connection, requests, _check_commit, in_flight=8)


def _check_commit(frame: memoryview) -> None:
    for partition in wire.read_reply("offset_commit", frame).topics[0].partitions:
        expect_none("OffsetCommit", partition.error_code)


def _wait_for_all(node: RunningNode, names: Sequence[str]) -> None:
    """One group of each of the coordinator's partitions answers, and the last one with all its offsets."""
    with RawConnection(node.host, node.port) as connection:
        for name in {coordinator_partition(name): name for name in names}.values():
            wait_for_coordinator(connection, name)
        asked = {"groups": [{"group_id": names[-1], "topics": None}]}
        (found,) = ask(connection, "offset_fetch", asked).groups[0].topics
        if len(found.partitions) != _OFFSETS_PER_GROUP:
            raise RawReplyError(f"{len(found.partitions)} of {_OFFSETS_PER_GROUP} offsets are left")


def coordinator_partition(group: str) -> int:
    """Java's String.hashCode over the default number of partitions."""
    hashed = 0
    for character in group:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % 50
