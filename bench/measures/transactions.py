# SPDX-License-Identifier: Apache-2.0
"""Transactions as applications see them: how many a second, how long a commit takes, and what readers pay."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import count
from statistics import median

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.cell import Cell
from bench.clusters import NODES, running_cluster
from bench.group_client import ask
from bench.measures.groups import coordinator_partition
from bench.model import Figures
from bench.raw_client import RawConnection, send_each
from bench.raw_requests import (
    FetchReply,
    InitProducerIdReply,
    RawReplyError,
    fetch_request,
    init_producer_id_request,
)
from bench.transactional_clients import (
    RECORDS,
    VALUE_BYTES,
    CommitProber,
    Commits,
    Gate,
    JavaProgram,
    commit_for,
    commit_ms,
    fill_with_transactions,
    rate_of,
)
from headrace.cluster.engines.engine import RunningNode
from tests.harness.live.cluster import LiveCluster

PRODUCERS, WORKERS = 32, 2
SECONDS = 3.0
PARTITIONS_EACH = 4
"""What a transaction writes to."""
IDS = 100_000
FILLED, FILLERS, ABORTED_EVERY = 4000, 8, 10
"""Transactions of the topic that is read, by so many producers."""
_PASSES, _REPEATED = 3, 6
"""How often the topic is read at each isolation level, and by the raw client in each of these."""
_RESPONSE_BYTES = 1 << 20
_TOPIC = "transactions"
_WARM_UP_S = 4.0
_CALM_S = 1.0
_READY_S = 60.0
_NOT_READY = frozenset({14, 15, 16, 51})  # loading, none yet, not this one; the transaction before is ending
_id_numbers = count()


def new_id() -> str:
    return f"bench-{next(_id_numbers)}"


def one_producer(cell: Cell) -> Figures:
    """A careful application with confluent-kafka: transactions of 100 records, one after the other."""
    return _on_one_node(cell, producers=1, partitions=PARTITIONS_EACH)


def one_java_producer(cell: Cell) -> Figures:
    """The same with Apache Kafka's Java client, which speaks transaction version 2 (KIP-890)."""
    seconds = _seconds(cell)
    if "program" not in cell.state:
        folder = cell.nodes.new_folder("java")
        cell.state["program"] = JavaProgram.compile(cell.tools, folder)
    program: JavaProgram = cell.state["program"]
    with cell.topic(PARTITIONS_EACH) as topic:
        rate = program.run(
            cell.node.bootstrap, topic, PARTITIONS_EACH, new_id(), warm_up_s=seconds / 2, seconds=seconds
        )
    return {
        "transactions_per_s": rate.transactions_per_s,
        "commit_p50_ms": rate.commit_p50_ms,
        "commit_p99_ms": rate.commit_p99_ms,
    }


def many_producers(cell: Cell) -> Figures:
    """32 such applications at once, in two processes, over 16 partitions."""
    return _on_one_node(cell, producers=PRODUCERS, partitions=4 * PARTITIONS_EACH)


def _on_one_node(cell: Cell, *, producers: int, partitions: int) -> Figures:
    bootstrap, seconds = cell.node.bootstrap, _seconds(cell)
    with cell.topic(partitions) as topic:
        if "warm" not in cell.state:  # no other measure has shown transactions to this node
            _commit(cell, bootstrap, topic, producers=PRODUCERS, partitions=partitions, seconds=_WARM_UP_S)
            cell.state["warm"] = True
        with cell.cpu_clock() as cpu:
            runs = _commit(
                cell, bootstrap, topic, producers=producers, partitions=partitions, seconds=seconds
            )
    transactions = sum(len(run.calls) for run in runs)
    return {**_rate_and_latency(runs), "cpu_ms": cpu.seconds / transactions * 1000}


def three_nodes(cell: Cell) -> Figures:
    """Everything replicated to three: one producer, 32 of them, and then their coordinator is killed."""
    with running_cluster(cell) as cluster:
        _create_replicated(cluster)
        seconds = _seconds(cell)
        _commit(cell, cluster.bootstrap, _TOPIC, producers=PRODUCERS, partitions=NODES, seconds=_WARM_UP_S)
        one = _commit(cell, cluster.bootstrap, _TOPIC, producers=1, partitions=NODES, seconds=seconds)
        many = _commit(
            cell, cluster.bootstrap, _TOPIC, producers=PRODUCERS, partitions=NODES, seconds=seconds
        )
        return {
            **_rate_and_latency(one),
            "many_transactions_per_s": rate_of(many),
            "killed_ms": _kill_coordinator(cluster) * 1000,
        }


def _seconds(cell: Cell) -> float:
    return max(SECONDS * cell.scale, 1.0)


def _commit(
    cell: Cell, bootstrap: str, topic: str, *, producers: int, partitions: int, seconds: float
) -> list[Commits]:
    """Each producer writes to four of the partitions, or to all of them; two processes share 32."""
    shares: list[dict[str, list[int]]] = [{} for _ in range(min(WORKERS, producers))]
    each = min(PARTITIONS_EACH, partitions)
    for number in range(producers):
        mine = [(number * each + step) % partitions for step in range(each)]
        shares[number % len(shares)][new_id()] = mine
    folder = cell.nodes.new_folder("gate")
    folder.mkdir(parents=True)
    gate = Gate(folder=folder, processes=len(shares))
    loads = [cell.pool.submit(commit_for, bootstrap, topic, share, seconds, gate) for share in shares]
    return [run for load in loads for run in load.result()]


def _rate_and_latency(runs: Sequence[Commits]) -> Figures:
    return {
        "transactions_per_s": rate_of(runs),
        "commit_p50_ms": commit_ms(runs, 50),
        "commit_p99_ms": commit_ms(runs, 99),
    }


def _create_replicated(cluster: LiveCluster) -> None:
    nodes = cluster.node_ids
    replicas = [[nodes[(first + step) % NODES] for step in range(NODES)] for first in range(NODES)]
    cluster.create_topic(_TOPIC, replicas, min_insync_replicas="2")
    cluster.wait_in_sync()


def _kill_coordinator(cluster: LiveCluster) -> float:
    """Seconds from the signal until a transaction that began after it is committed.

    The partition that it writes to is led by another node: what is measured is the coordinator.
    """
    transactional_id = new_id()
    victim = _coordinator_of(cluster, transactional_id)
    partition = next(index for index in range(NODES) if cluster.leader(_TOPIC, index) != victim)
    with CommitProber(cluster.bootstrap, _TOPIC, partition, transactional_id) as prober:
        prober.first_after(time.monotonic() + _CALM_S)
        if _coordinator_of(cluster, transactional_id) != victim:
            raise RuntimeError("the coordinator moved before it was killed")
        moment = time.monotonic()
        cluster.kill(victim)
        return prober.first_after(moment)


def _coordinator_of(cluster: LiveCluster, transactional_id: str) -> int:
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    with RawConnection(host, int(port)) as connection:
        return _wait_for_coordinator(connection, transactional_id)


def read_committed(cell: Cell) -> Figures:
    """What a reader pays for leaving out aborted transactions, a tenth of them, with the same broker."""
    aborted = FILLERS * -(-_transactions_each(cell) // ABORTED_EVERY)
    every = FILLERS * _transactions_each(cell) * RECORDS
    expected = {"read_uncommitted": every, "read_committed": every - aborted * RECORDS}
    topic = cell.shared_topic(lambda topic: _fill(cell, topic))
    levels = list(expected)
    _read_all(cell, topic, "read_committed", expected["read_committed"])  # into the page cache
    took: dict[str, list[float]] = {level: [] for level in levels}
    raw: dict[str, list[float]] = {level: [] for level in levels}
    for turn in range(_PASSES):
        for level in levels if turn % 2 == 0 else reversed(levels):
            took[level].append(_read_all(cell, topic, level, expected[level]))
            raw[level].append(_fetch_all(cell, topic, every, committed_only=level == "read_committed"))
    return {
        "committed_ratio": sum(took["read_uncommitted"]) / sum(took["read_committed"]),
        "raw_committed_ratio": median(raw["read_committed"]) / median(raw["read_uncommitted"]),
        "committed_krecords_per_s": every * _PASSES / sum(took["read_committed"]) / 1000,
        "raw_committed_mb_per_s": median(raw["read_committed"]),
    }


def _transactions_each(cell: Cell) -> int:
    return max(20, int(FILLED * cell.suite_scale) // FILLERS)


def _fill(cell: Cell, topic: str) -> None:
    ids = [new_id() for _ in range(FILLERS)]
    each, bootstrap = _transactions_each(cell), cell.node.bootstrap
    loads = [
        cell.pool.submit(fill_with_transactions, bootstrap, topic, ids[place::WORKERS], each, ABORTED_EVERY)
        for place in range(WORKERS)
    ]
    for load in loads:
        load.result()


def _read_all(cell: Cell, topic: str, isolation_level: str, expected: int) -> float:
    """Seconds of a confluent-kafka consumer for all records of the topic that it may see."""
    settings = {"isolation.level": isolation_level, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": cell.node.bootstrap, "group.id": "unused", **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = len(consumer.consume(1, timeout=10))  # connecting is not what is measured
        started = time.perf_counter()
        while seen < expected:
            messages = consumer.consume(min(10_000, expected - seen), timeout=10)
            if not messages:
                raise KafkaException(f"{seen} of {expected} records arrived, {isolation_level}")
            seen += len(messages)
        return time.perf_counter() - started
    finally:
        consumer.close()


def _fetch_all(cell: Cell, topic: str, records: int, *, committed_only: bool) -> float:
    """MB/s of responses of about 1 MB from one end of the topic to the other."""
    responses = max(1, records * VALUE_BYTES // _RESPONSE_BYTES)
    offsets = [records * place // responses for place in range(responses)]
    requests = [
        fetch_request(topic, offset, max_bytes=_RESPONSE_BYTES, committed_only=committed_only)
        for offset in offsets
    ]
    fetched = FetchReply(topic)
    with cell.connect(buffer_bytes=2 * _RESPONSE_BYTES) as connection:
        received, seconds = send_each(connection, requests * _REPEATED, fetched.check)
    return received / seconds / 1e6


def load_ids(cell: Cell) -> Figures:
    """Killed and started again with 100,000 transactional ids: how long producers wait for their coordinator.

    The ids are made once; each turn is another restart with the same folder.
    """
    if "prepared" not in cell.state:
        _make_ids(cell)
    prepared, names = cell.state["prepared"], cell.state["names"]
    began = time.monotonic()
    node = prepared.launch()
    try:
        _wait_until_served(node, names)
        whole_s = time.monotonic() - began
    finally:
        node.kill()
    return {"load_s": max(0.0, whole_s - cell.state["empty_s"]), "start_s": whole_s}


def _make_ids(cell: Cell) -> None:
    names = [new_id() for _ in range(max(1000, int(IDS * cell.suite_scale)))]
    prepared = cell.nodes.prepare(cell.variant)
    node = prepared.launch()
    try:
        cell.state["empty_s"] = node.ready_after_ms / 1000
        _wait_until_served(node, names)
        with RawConnection(node.host, node.port) as connection:
            left: Sequence[str] = names
            while left:
                left = _init_each(connection, left)
    finally:
        node.kill()
    cell.state["prepared"], cell.state["names"] = prepared, names


def _init_each(connection: RawConnection, names: Sequence[str]) -> list[str]:
    """The ids to ask for again: Apache Kafka refuses some while it gets its next block of producer ids."""
    codes: list[int] = []
    reply = InitProducerIdReply()
    requests = [init_producer_id_request(name) for name in names]
    send_each(connection, requests, lambda frame: codes.append(reply.error_code(frame)), in_flight=64)
    refused = {code for code in codes if code} - _NOT_READY
    if refused:
        raise RawReplyError(f"transactional ids were refused with error codes {sorted(refused)}")
    return [name for name, code in zip(names, codes, strict=True) if code]


def _wait_until_served(node: RunningNode, names: Sequence[str]) -> None:
    """An id of each of the coordinator's partitions gets its epoch."""
    one_of_each: Mapping[int, str] = {coordinator_partition(name): name for name in names}
    with RawConnection(node.host, node.port) as connection:
        for name in one_of_each.values():
            _wait_for_coordinator(connection, name)
            _wait_for_epoch(connection, name)


def _wait_for_coordinator(connection: RawConnection, transactional_id: str) -> int:
    """The node id of it."""
    deadline = time.monotonic() + _READY_S
    while True:
        asked = {"key_type": 1, "coordinator_keys": [transactional_id]}
        (found,) = ask(connection, "find_coordinator", asked).coordinators
        if int(found.error_code) == 0:
            return int(found.node_id)
        _check_not_ready(int(found.error_code), deadline)


def _wait_for_epoch(connection: RawConnection, transactional_id: str) -> None:
    deadline = time.monotonic() + _READY_S
    reply, request = InitProducerIdReply(), init_producer_id_request(transactional_id)
    while code := reply.error_code(connection.call(request)):
        _check_not_ready(code, deadline)


def _check_not_ready(code: int, deadline: float) -> None:
    if code not in _NOT_READY:
        raise RawReplyError(f"a transactional id was refused with error code {code}")
    if time.monotonic() > deadline:
        raise TimeoutError(f"no transaction coordinator within {_READY_S:.0f} s: error code {code}")
    time.sleep(0.005)
