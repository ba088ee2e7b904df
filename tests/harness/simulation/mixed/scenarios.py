# SPDX-License-Identifier: Apache-2.0
"""Schedules for what only the mixed simulation has: retention, compaction, logs unknown to the store (T2).

Plain functions that raise; each breaks when its rule is taken out (T3). Read next:
simulation/cluster_lab.py.
"""

from __future__ import annotations

import asyncio
from functools import partial

from headrace.broker.node import REMEMBER_S
from headrace.coordination.restore.declare import declare_newer
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.simulation.clients import EARLIEST, LATEST, TryAgain, list_offset, records_in
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.cluster_plan import PORT
from tests.harness.simulation.cluster_scenarios import all_alike, others_of
from tests.harness.simulation.consumer import fetch_all
from tests.harness.simulation.routing import LeaderTarget
from tests.harness.simulation.store import StoreCopy

LATER, KEYED = "later", "keyed"
_DAY_MS = 86_400_000
_NOT_ALONE = {"headrace.coordination": "zk://store:2181"}
"""A node without a store of its own; that of the simulation takes its place."""
_COMPACTION = {
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "broker.session.timeout.ms": "30000",
}


class _OtherTopic:
    """Records of a topic beside that of the lab."""

    def __init__(self, lab: ClusterLab, name: str) -> None:
        self._lab = lab
        self._target = LeaderTarget(
            host="", port=PORT, topic=name, partitions=1, index=0, addresses=lab.addresses
        )

    async def append(self, value: bytes, *, key: bytes | None = None, acks: int = -1) -> None:
        record = Record(0, self._lab.world.clock.wall_ms(), key, value)
        await self._lab.cluster.retry(partial(self._append, record, acks), f"{value!r} is acknowledged")

    async def _append(self, record: Record, acks: int) -> None:
        connection = await self._target.connect(self._lab.world, "lab")
        try:
            data = {"index": 0, "records": bytes(build_batch([record]))}
            topics = [{"name": self._target.topic, "partition_data": [data]}]
            fields = {"transactional_id": None, "acks": acks, "timeout": 2_000, "topic_data": topics}
            reply = await connection.call(ApiKey.PRODUCE, fields, version=8, timeout_ms=10_000)
            code = reply.responses[0].partition_responses[0].error_code
            if code is not ErrorCode.none:
                raise TryAgain(code.name)
        finally:
            connection.abort()

    async def values(self) -> list[bytes]:
        found: list[bytes] = await self._lab.cluster.retry(self._values, f"{self._target.topic} is read")
        return found

    async def _values(self) -> list[bytes]:
        connection = await self._target.connect(self._lab.world, "lab")
        try:
            first = await list_offset(connection, self._target, 0, EARLIEST)
            last = await list_offset(connection, self._target, 0, LATEST)
            return [value for _, value in await fetch_all(connection, self._target, 0, first, last)]
        finally:
            connection.abort()


def logs_that_an_older_store_does_not_know_are_kept_and_taken_back() -> None:
    """R5b: nodes refuse it; once it is declared they remove nothing; with the newest copy they have all."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        older = lab.store.copy()
        await lab.cluster.create_topic(LATER, 1, {"headrace.flush": lab.plan.flush})
        later = _OtherTopic(lab, LATER)
        await later.append(b"kept")
        await lab.produced(b"two")
        await all_alike(lab)
        await lab.until(lambda: lab.cluster.all_in_sync(LATER), f"{LATER} is on all nodes")
        await asyncio.sleep(2 * REMEMBER_S)  # they remember what they have seen of the store
        await _stop_all(lab)
        newest = lab.store.copy()
        await _put_back(lab, older)
        assert LATER not in lab.invariants.view.topics
        _check_kept(lab, 1)
        assert await lab.read_all() == [b"one", b"two"]
        await _stop_all(lab)
        await _start_all(lab)
        _check_kept(lab, 1)
        await lab.produced(b"three")
        await all_alike(lab)
        await asyncio.sleep(2 * REMEMBER_S)
        await _stop_all(lab)
        await _put_back(lab, newest)
        _check_kept(lab, 0)
        assert await later.values() == [b"kept"]
        await later.append(b"more")
        assert await later.values() == [b"kept", b"more"]
        await lab.produced(b"four")
        assert await lab.read_all() == [b"one", b"two", b"three", b"four"]

    for flush in ("os", "ack"):
        simulate_cluster(scenario, profile="zookeeper", flush=flush, settings=_NOT_ALONE)


async def _stop_all(lab: ClusterLab) -> None:
    """Some stop, others are killed."""
    for number, node in enumerate(lab.nodes):
        if number % 2:
            node.kill()
        else:
            node.stop_cleanly()
    await lab.until(lambda: all(node.broker is None for node in lab.nodes), "all have ended")
    await lab.until(lambda: not _registered(lab), "their sessions have ended")


def _registered(lab: ClusterLab) -> bool:
    view = lab.invariants.view
    return bool({*view.nodes, *view.joining, *view.fenced}) or view.controller_id != NO_NODE


async def _start_all(lab: ClusterLab) -> None:
    for node_id in range(lab.plan.nodes):
        lab.start(node_id)
    for node in lab.nodes:
        await node.wait_until_serving()


async def _put_back(lab: ClusterLab, copy: StoreCopy) -> None:
    """The nodes refuse it until it is declared the one to go on with."""
    lab.store.put_back(copy)
    lab.invariants.store_was_put_back()
    refused = [len(node.refusals) for node in lab.nodes]
    for node_id in range(lab.plan.nodes):
        lab.start(node_id)
    await asyncio.sleep(lab.plan.session_ms / 1000)
    for node, before in zip(lab.nodes, refused, strict=True):
        told = node.refusals[before:]
        assert told, f"{node.machine.name} takes the older store"
        assert "was put back to an older copy" in told[0], told
    lab.simulation.loop.after_step = None  # no controller writes this
    await declare_newer(lab.store.connect(lab.world), lab.random)
    lab.invariants.store_was_put_back()
    lab.simulation.loop.after_step = lab.invariants.check
    await _start_all(lab)


def _check_kept(lab: ClusterLab, count: int) -> None:
    for node in lab.nodes:
        names = node.machine.files.listdir(DATA_DIRECTORY)
        kept = [name for name in names if name.startswith(f"{LATER}-0.") and name.endswith("-kept")]
        assert len(kept) == count, f"{node.machine.name} has {names}"
        assert (f"{LATER}-0" in names) == (count == 0), f"{node.machine.name} has {names}"


def what_is_not_committed_displaces_nothing() -> None:
    """R29: a leader that nobody copies from compacts its log, and is then followed by the others again."""

    async def scenario(lab: ClusterLab) -> None:
        configs = {"cleanup.policy": "compact", "segment.ms": "300", "headrace.flush": lab.plan.flush}
        await lab.cluster.create_topic(KEYED, 1, configs)
        keyed = _OtherTopic(lab, KEYED)
        await keyed.append(b"old", key=b"k")
        await lab.until(lambda: lab.cluster.all_in_sync(KEYED), "all replicas are in sync")
        leader = lab.invariants.view.topics[KEYED].partitions[0].leader
        broker, name = lab.nodes[leader].broker, lab.nodes[leader].machine.name
        assert broker is not None
        replica = broker.partitions.find(KEYED, None, 0)
        await lab.until(lambda: replica.high_watermark == 1, "it is committed")
        for other in others_of(lab, leader):
            lab.simulation.network.cut(lab.nodes[other].machine.name, name)
        for number in range(4):
            await keyed.append(b"new %d" % number, key=b"k", acks=1)
            await asyncio.sleep(1)
        await asyncio.sleep(3)
        assert replica.high_watermark == 1
        piece = replica.log.read(0, 1 << 20, 1)
        held = [] if piece is None else [record.value for record in records_in(piece.bytes())]
        assert held == [b"old"], f"committed was {b'old'!r}, and the log has {held}"
        assert piece is not None
        piece.release()
        lab.simulation.network.mend_all()
        await lab.until(lambda: replica.high_watermark == 5, "all is committed")
        await lab.until(lambda: replica.log.log_end_offset == 5, "and kept")

    simulate_cluster(scenario, profile="zookeeper", lag_ms=30_000, settings=_COMPACTION)


def a_clock_that_jumps_ahead_deletes_nothing() -> None:
    """R34: retention does not believe it at once; the clock is right again before it would."""

    async def scenario(lab: ClusterLab) -> None:
        configs = {"retention.ms": "600000", "segment.ms": "300", "headrace.flush": lab.plan.flush}
        await lab.cluster.create_topic(LATER, 1, configs)
        retained = _OtherTopic(lab, LATER)
        for value in (b"one", b"two", b"three"):
            await retained.append(value)
            await asyncio.sleep(1)
        for node in lab.nodes:
            node.machine.wall_jump_ms = _DAY_MS
        await asyncio.sleep(30)
        for node in lab.nodes:
            node.machine.wall_jump_ms = 0
        assert await retained.values() == [b"one", b"two", b"three"]

    simulate_cluster(scenario, settings={"log.retention.check.interval.ms": "1000"})


SCENARIOS = (
    a_clock_that_jumps_ahead_deletes_nothing,
    logs_that_an_older_store_does_not_know_are_kept_and_taken_back,
    what_is_not_committed_displaces_nothing,
)
