# SPDX-License-Identifier: Apache-2.0
"""Headrace against itself: what a request costs in CPU when a node runs on each of two cores.

Of the process that answers it: what idle processes take does not depend on requests. How much two cores do at
once is not measured: on a machine of two, the clients need one of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cell import Cell
from bench.model import Figures
from bench.payloads import plain_batch
from bench.raw_client import RawConnection, produce_check, produce_pipelined
from bench.raw_requests import produce_request
from headrace.client.tools.admin import Admin
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.processes import find_process

ROUNDS = 5
_PARTITIONS = 2
_STOP_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A produce request of so many records of 100 or 1,000 bytes, pipelined."""

    records: int
    value_bytes: int
    at_once: int
    in_flight: int
    requests: int
    """To one partition in one round."""


SMALL = _Kind(records=1, value_bytes=100, at_once=32, in_flight=512, requests=64_000)
LARGER = _Kind(records=16, value_bytes=1000, at_once=4, in_flight=64, requests=4_000)


def two_cores_against_one(cell: Cell) -> Figures:
    """Pipelined produce requests to two partitions: one node leads both, or each core leads one."""
    with ExitStack() as stack:
        hosts = {count: stack.enter_context(_serving(count)) for count in (1, 2)}
        figures: Figures = {}
        for name, kind in (("small", SMALL), ("16kb", LARGER)):
            loads = {count: stack.enter_context(_load(host, kind, name)) for count, host in hosts.items()}
            seconds = dict.fromkeys(hosts, 0.0)
            requests = cell.scaled(kind.requests, least=kind.at_once) // kind.at_once * kind.at_once
            for _ in range(ROUNDS):
                for count, load in loads.items():
                    seconds[count] += load.cpu_seconds(requests)
            one, two = (seconds[count] / (requests * _PARTITIONS * ROUNDS) * 1e6 for count in (1, 2))
            figures |= {f"{name}_one_us": one, f"{name}_two_us": two, f"{name}_ratio": two / one}
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    pids: Mapping[int, int]
    """Of each node."""
    bootstrap: str


@contextmanager
def _serving(cores: int) -> Iterator[_Host]:
    with tempfile.TemporaryDirectory(prefix="bench-cores-") as folder:
        command = [sys.executable, "-m", "headrace.cli.main", "serve", "--cores", str(cores), "--json"]
        command += ["--port", "0", "--data", folder, "--set", "headrace.flush.default=os"]
        with (
            (Path(folder) / "serve.log").open("wb") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL
            ) as process,
        ):
            try:
                assert process.stdout is not None
                ready = json.loads(process.stdout.readline())
                yield _Host(
                    pids=_pids(ready, process.pid, Path(folder)),
                    bootstrap=ready["bootstrap"]
                    if "cores" in ready
                    else next(iter(ready["listeners"].values())),
                )
            finally:
                process.terminate()
                process.wait(_STOP_SECONDS)


def _pids(ready: Mapping[str, Any], pid: int, folder: Path) -> dict[int, int]:
    if "cores" not in ready:
        return {ready["node_id"]: pid}
    nodes = [int(core["node_id"]) for core in ready["cores"]]
    processes = {node: find_process(ClusterFolder(folder).node(node)) for node in nodes}
    return {node: process.pid for node, process in processes.items() if process is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    kind: _Kind
    topic: str
    leaders: tuple[tuple[int, RawConnection], ...]
    """Process and connection, by partition."""

    def cpu_seconds(self, requests: int) -> float:
        """For so many requests to each partition, one partition after the other."""
        batch = plain_batch(self.kind.records, self.kind.value_bytes)
        seconds = 0.0
        for partition, (pid, connection) in enumerate(self.leaders):
            request = produce_request(self.topic, {partition: batch}, acks=1)
            before = read_process_tree(pid).cpu_seconds
            produce_pipelined(
                connection,
                request * self.kind.at_once,
                produce_check(self.topic),
                in_flight=self.kind.in_flight,
                requests_per_send=self.kind.at_once,
                count=requests,
            )
            seconds += read_process_tree(pid).cpu_seconds - before
        return seconds


@contextmanager
def _load(host: _Host, kind: _Kind, topic: str) -> Iterator[_Load]:
    admin = Admin(host.bootstrap)
    admin.create_topic(topic, partitions=_PARTITIONS, configs={"retention.bytes": str(64 << 20)})
    nodes = {node.node_id: node for node in admin.describe_cluster().nodes}
    leaders = [nodes[each.leader or 0] for each in admin.describe_topic(topic).partitions]
    connections = [RawConnection(node.host, node.port) for node in leaders]
    processes = [host.pids[node.node_id] for node in leaders]
    try:
        yield _Load(kind=kind, topic=topic, leaders=tuple(zip(processes, connections, strict=True)))
    finally:
        for connection in connections:
            connection.close()
