# SPDX-License-Identifier: Apache-2.0
"""All faults beside retention, compaction, scrubs, changes of the cluster and a replaced node (T2).

A failing seed is repeated by `mixed.cluster.run_seed(SEED)`; it is then written to mixed_seeds.txt. Each
check that only this simulation makes is shown an anomaly here.
Read next: tests/harness/simulation/mixed/cluster.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.controller.change_propagation import ChangePropagation
from headrace.broker.partition.log_removals import LogRemovals
from headrace.log.segments.files import file_stem
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from headrace.world import read_file
from tests.harness import soak
from tests.harness.history import History, Send
from tests.harness.simulation.clients import BrokenPromise
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.cluster_scenarios import all_alike, others_of
from tests.harness.simulation.mixed.changes import SHORT_LIVED, RuleWriter
from tests.harness.simulation.mixed.clocks import ClockWatch
from tests.harness.simulation.mixed.damage import damage_a_file
from tests.harness.simulation.mixed.deletion import DeletionWatch
from tests.harness.simulation.mixed.end_state import difference, ignorant, leftovers
from tests.harness.simulation.mixed.keyed_logs import CompactionWatch
from tests.harness.simulation.mixed.scenarios import SCENARIOS
from tests.harness.simulation.seeds import known_seeds, run_all
from tests.harness.simulation.several_nodes import TOPIC
from tests.simulation.sim_proofs import traces

SIMULATION = "mixed.cluster"
ONE_IN = 12
"""Of the fresh seeds of a commit: each takes several times as long as one of several_nodes.py."""
SOAK_SEEDS, SOAK_HOURS = 1_300, 2.0
"""About 2,600 hours of virtual time."""
SEEDS_FILE = Path(__file__).with_name("mixed_seeds.txt")
NAME = TopicPartition("t", 0)


def test_seeds_that_once_failed_still_pass() -> None:
    assert run_all(SIMULATION, known_seeds(SEEDS_FILE)).failures == []


@pytest.mark.seeds
@pytest.mark.timeout(900)
def test_t2_fresh_seeds_of_the_mixed_simulation_find_no_anomaly() -> None:
    seeds = soak.fresh_seeds()[::ONE_IN]
    tally = run_all(SIMULATION, seeds)
    assert tally.failures == [], "add the seeds to tests/simulation/mixed_seeds.txt"
    for figure in ("records_read", "elections", "deleted", "compacted", "changes"):
        assert tally.figures[figure] > len(seeds)
    assert tally.figures["logical_s"] > 30 * len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(86_400)
def test_soak_t2_mixed_faults_for_many_virtual_hours_find_no_anomaly() -> None:
    started, seeds = time.monotonic(), soak.long_seeds(SOAK_SEEDS)
    hours = soak.hours_per_seed(SOAK_HOURS)
    tally = run_all(SIMULATION, seeds, hours=hours)
    plan = {"first_seed": seeds.start, "seeds": len(seeds), "hours_per_seed": hours}
    soak.write_report("T2-mixed", started, {**plan, **tally.as_report()})
    assert tally.failures == []


def test_the_same_seed_gives_the_same_trace() -> None:
    assert traces(SIMULATION, 1, hash_seed="1") == traces(SIMULATION, 1, hash_seed="2")


# Faults


def test_a_lost_disk_is_empty_and_its_node_catches_up() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        victim = lab.state.leader
        lab.faults._may_lose_disk = lambda _: True
        lab.invariants.disk_was_replaced(victim)
        await lab.faults.inject("lost_disk", victim)
        await lab.until(lambda: victim not in lab.state.isr, "it is out of sync")
        assert not any("topic" in name for name in lab.nodes[victim].machine.files.listdir(Path("/data")))
        await lab.until(lambda: victim not in lab.invariants.view.nodes, "its session has ended")
        await asyncio.sleep(lab.plan.session_ms / 1000)
        lab.start(victim)
        await all_alike(lab)
        assert lab.partition(victim).log_end_offset == 1

    simulate_cluster(scenario)


def test_a_stalled_event_loop_answers_nobody_while_its_threads_go_on() -> None:
    async def scenario(lab: ClusterLab) -> None:
        world = lab.nodes[0].world
        assert world is not None
        done: list[str] = []
        job = world.tasks.thread("test").run(done.append, "on the thread")
        lab.simulation.loop.stall(world.process)
        await lab.until(lambda: bool(done), "the thread has worked")
        assert not cast("Any", job).done(), "its event loop has not heard of it"
        lab.simulation.loop.resume(world.process)
        await lab.until(cast("Any", job).done, "its event loop goes on")

    simulate_cluster(scenario)


def test_all_nodes_lose_power_and_nothing_is_lost_where_acknowledged_records_are_on_disk() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await lab.faults.inject("power_cut_of_all", 0)
        assert all(node.broker is None for node in lab.nodes)
        assert lab.faults.counts["power lost"] == len(lab.nodes)
        for number in range(len(lab.nodes)):
            lab.start(number)
        await all_alike(lab)
        assert await lab.read_all() == [b"one"]

    simulate_cluster(scenario, flush="ack")


def test_a_node_sleeps_while_its_peers_lose_power() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await lab.faults.inject("power_cut_beside_a_pause", 0)
        assert lab.nodes[0].broker is not None
        assert lab.nodes[0].world is not None
        assert not lab.nodes[0].world.process.paused
        assert any(node.broker is None for node in lab.nodes[1:])

    simulate_cluster(scenario, flush="ack")


def test_a_damaged_file_is_found_and_fetched_again() -> None:
    async def scenario(lab: ClusterLab) -> None:
        for number in range(12):
            await lab.produced(b"%d" % number)
        await all_alike(lab)
        victim = lab.nodes[lab.state.leader]
        await lab.until(lambda: victim.broker is not None, "it runs")
        assert victim.broker is not None
        await victim.broker.offsets.persist()
        lab.invariants.distrust(victim)
        assert damage_a_file(victim, lab.random, (TOPIC,))
        await lab.until(lambda: _kept_aside(lab), "what was damaged was kept aside")
        await all_alike(lab)

    settings = {"log.index.interval.bytes": "0", "log.index.size.max.bytes": "60"}
    simulate_cluster(scenario, flush="ack", settings={**settings, "headrace.scrub.interval.ms": "2000"})


def _kept_aside(lab: ClusterLab) -> bool:
    """The whole log, or a file of the log where its range was fetched again."""
    data, log = Path("/data"), Path(f"/data/{TOPIC}-0")
    for files in (node.machine.files for node in lab.nodes):
        names = [*files.listdir(data), *(files.listdir(log) if files.exists(log) else ())]
        if any(name.endswith("-stray") or ".damaged-" in name for name in names):
            return True
    return False


# Checks: each is shown what it has to find


def process(*, new_disk: bool) -> Any:
    return SimpleNamespace(checkpoints=SimpleNamespace(new_disk=new_disk))


class _Node:
    def __init__(self) -> None:
        self.machine = SimpleNamespace(name="node0", wall_jump_ms=0)
        self.broker = process(new_disk=True)


def node() -> Any:
    return _Node()


def batch(base_offset: int, records: Sequence[Record]) -> memoryview:
    data = build_batch(list(records))
    data[:8] = base_offset.to_bytes(8, "big")
    return memoryview(data)


def clocks() -> ClockWatch:
    return ClockWatch(cast("Any", SimpleNamespace(time=lambda: 0.0)))


def replica(start: int, size_bytes: int = 0) -> Any:
    log = SimpleNamespace(size_bytes=size_bytes)
    return SimpleNamespace(topic_partition=NAME, log_start_offset=start, log=log)


@pytest.mark.parametrize(("now_ms", "early"), [(100_000, True), (300_000, False)])
def test_a_log_start_that_moves_before_its_time_is_found(now_ms: int, early: bool) -> None:
    watch = DeletionWatch(clocks(), lambda: now_ms, retention_ms=100_000)
    watch.committed(NAME, node(), batch(0, [Record(0, 50_000, None, b"v")]))
    move: Callable[[], None] = lambda: watch.log_start_moved(replica(1), node(), 0)  # noqa: E731
    if early:
        with pytest.raises(BrokenPromise, match="too early"):
            move()
    else:
        move()
        assert watch.deleted == 1


def test_a_log_that_is_cut_below_its_retained_size_is_found() -> None:
    watch = DeletionWatch(clocks(), lambda: 0, retention_bytes=1000)
    watch.committed(NAME, node(), batch(0, [Record(0, 0, None, b"v")]))
    with pytest.raises(BrokenPromise, match="too early"):
        watch.log_start_moved(replica(1, size_bytes=999), node(), 0)
    watch.log_start_moved(replica(1, size_bytes=1000), node(), 0)
    watch.log_start_moved(replica(1, size_bytes=10), node(), 0)  # taken over from the node that was entitled


def test_a_clock_that_jumped_entitles_to_nothing_before_it_is_accepted() -> None:
    time_s = 0.0
    watch = ClockWatch(cast("Any", SimpleNamespace(time=lambda: time_s)))
    one = node()
    watch.look(one)
    one.machine.wall_jump_ms = 86_400_000
    assert watch.ahead_ms(one) < 100_000
    time_s = 3_700.0
    assert watch.ahead_ms(one) > 86_400_000
    one.machine.wall_jump_ms = 0
    assert watch.ahead_ms(one) < 100_000
    one.machine.wall_jump_ms, one.broker = 86_400_000, process(new_disk=False)
    assert watch.ahead_ms(one) < 100_000, "nor to a process that starts"
    one.broker = process(new_disk=True)
    assert watch.ahead_ms(one) > 86_400_000, "without a time to compare with it takes the clock as it is"


class _KeyedReplica:
    """A replica with these batches, and its high watermark at their end."""

    topic_partition = NAME
    log_start_offset = 0

    def __init__(self, batches: Sequence[memoryview], end: int) -> None:
        self._pieces = list(batches)
        self.high_watermark = end
        self.log = self

    def read(self, offset: int, *_: object, **__: object) -> Any:
        if not self._pieces:
            return None
        data = b"".join(self._pieces)
        self._pieces = []
        return SimpleNamespace(bytes=lambda: data, next_offset=self.high_watermark, release=lambda: None)


OLD, NEW = Record(0, 0, b"k", b"old"), Record(0, 0, b"k", b"new")
OTHER, TOMBSTONE = Record(0, 0, b"other", b"v"), Record(0, 0, b"k", None)


def watch_of(*records: Record, now_ms: int = 0) -> CompactionWatch:
    """That has seen these committed, a batch each."""
    watch = CompactionWatch(clocks(), lambda: now_ms, tombstones_kept_ms=100_000)
    for offset, record in enumerate(records):
        watch.committed(NAME, node(), batch(offset, [record]))
    return watch


def test_a_compacted_log_may_lack_what_a_later_record_replaced() -> None:
    watch = watch_of(OLD, OTHER, NEW)
    watch.look(cast("Any", _KeyedReplica([batch(1, [OTHER]), batch(2, [NEW])], 3)), node())
    assert watch.compacted == 1


@pytest.mark.parametrize("kept", [[batch(1, [OTHER])], [batch(0, [OLD]), batch(1, [OTHER])]])
def test_a_compacted_log_without_the_last_record_of_a_key_is_found(kept: list[memoryview]) -> None:
    with pytest.raises(BrokenPromise, match="nothing took its place"):
        watch_of(OLD, OTHER, NEW).look(cast("Any", _KeyedReplica(kept, 3)), node())


def test_a_compacted_log_with_another_record_at_an_offset_is_found() -> None:
    with pytest.raises(BrokenPromise, match="and was"):
        watch_of(OLD, OTHER).look(cast("Any", _KeyedReplica([batch(0, [NEW]), batch(1, [OTHER])], 2)), node())


def test_a_tombstone_that_went_before_its_time_is_found() -> None:
    kept = [batch(1, [OTHER])]
    with pytest.raises(BrokenPromise, match="nothing took its place"):
        watch_of(TOMBSTONE, OTHER).look(cast("Any", _KeyedReplica(kept, 2)), node())
    watch_of(TOMBSTONE, OTHER, now_ms=200_000).look(cast("Any", _KeyedReplica(kept, 2)), node())


def test_an_acknowledged_record_that_was_never_committed_is_found() -> None:
    history = History()
    send = history.sent(Send(producer="p", partition=NAME, value=b"lost", durable=True))
    history.ended(send, "ok", 1)
    with pytest.raises(BrokenPromise, match="acknowledged at 1"):
        watch_of(OLD, OTHER).check_acknowledged(history)


def test_a_log_start_that_goes_back_is_found() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        await lab.produced(b"two")
        await all_alike(lab)
        replica = lab.partition(lab.state.leader)
        replica.log.log_start_offset = 1
        await lab.until(lambda: lab.invariants._shown[replica].log_start == 1, "it was seen")
        replica.log.log_start_offset = 0
        await lab.until(lambda: False, "it is found")

    with pytest.raises(BrokenPromise, match="the log start went back"):
        simulate_cluster(scenario)


def test_a_change_that_a_live_node_does_not_know_is_found() -> None:
    """The answer no longer waits for the other nodes (decision 25)."""

    async def scenario(lab: ClusterLab) -> None:
        lab.store.late_s = 2.0
        writer = RuleWriter(lab.cluster, lab.random)
        for number in range(10):
            await writer._set_quota(f"client-{number}")

    async def at_once(self: object, *_: object, **__: object) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangePropagation, "wait", at_once)
        with pytest.raises(BrokenPromise, match="does not know it"):
            simulate_cluster(scenario, profile="zookeeper")
    simulate_cluster(scenario, profile="zookeeper")


# The end: each check is shown what it has to find, and finds nothing before and after it


def test_a_replica_with_other_bytes_than_the_others_is_found() -> None:
    async def scenario(lab: ClusterLab) -> None:
        for number in range(3):
            await lab.produced(b"%d" % number)
        await all_alike(lab)
        await lab.until(lambda: not difference(lab.cluster, (TOPIC,)), "all replicas are alike")
        changed = lab.nodes[others_of(lab, lab.state.leader)[0]].machine.files
        path = DATA_DIRECTORY / f"{TOPIC}-0" / f"{file_stem(0)}.log"
        sound = read_file(changed, path)
        file = changed.open(path, "write")
        file.pwritev([bytes([sound[-1] ^ 1])], len(sound) - 1)
        assert difference(lab.cluster, (TOPIC,)).startswith(f"{TOPIC}: {{(3, 3)}}")
        file.pwritev([sound[-1:]], len(sound) - 1)
        file.close()
        assert not difference(lab.cluster, (TOPIC,))

    simulate_cluster(scenario)


def test_a_replica_that_is_shorter_than_the_others_or_missing_is_found() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        await lab.until(lambda: not difference(lab.cluster, (TOPIC,)), "all replicas are alike")
        follower, name = others_of(lab, lab.state.leader)[0], lab.nodes[lab.state.leader].machine.name
        lab.simulation.network.cut(name, lab.nodes[follower].machine.name)
        assert await lab.produce(b"two", acks=1) is ErrorCode.none
        assert difference(lab.cluster, (TOPIC,))
        lab.nodes[follower].kill()
        assert difference(lab.cluster, (TOPIC,)) == f"{TOPIC} on node {follower} is not there"

    simulate_cluster(scenario)


def test_a_deleted_topic_whose_folder_stays_is_found() -> None:
    """The removal of its files never begins."""

    async def scenario(lab: ClusterLab) -> None:
        name = f"{SHORT_LIVED}1"
        await lab.cluster.create_topic(name, 1, {})
        await lab.until(lambda: lab.cluster.all_in_sync(name), "all replicas are in sync")
        assert not leftovers(lab.cluster), "it is not deleted"
        fields = {"topic_names": [name], "timeout": 10_000}
        await lab.cluster.with_any(lambda each: each.call(ApiKey.DELETE_TOPICS, fields, version=3))
        await lab.until(lambda: name not in lab.invariants.view.topics, "it is deleted")
        await asyncio.sleep(70)
        found.append(leftovers(lab.cluster))

    found: list[list[str]] = []
    simulate_cluster(scenario)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogRemovals, "later", lambda self, removal: None)
        simulate_cluster(scenario)
    assert found[0] == []
    assert {each.rpartition(" on ")[2] for each in found[1]} == {"node0", "node1", "node2"}


def test_a_node_that_does_not_know_all_rules_in_the_end_is_found() -> None:
    async def scenario(lab: ClusterLab) -> None:
        rules = RuleWriter(lab.cluster, lab.random)
        await rules._set_quota("client")
        await lab.until(lambda: not ignorant(lab.cluster, rules), "all know it")
        deaf = others_of(lab, lab.invariants.view.controller_id)[0]
        broker = lab.nodes[deaf].broker
        assert broker is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broker.cluster, "_apply_changes", lambda changes: None)
            await rules._set_quota("other client")
            await lab.until(lambda: bool(ignorant(lab.cluster, rules)), "one does not know it")
            assert ignorant(lab.cluster, rules) == [f"node{deaf}"]
        await lab.until(lambda: not ignorant(lab.cluster, rules), "all know it")

    simulate_cluster(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[], None]) -> None:
    scenario()
