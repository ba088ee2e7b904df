# SPDX-License-Identifier: Apache-2.0
"""Output of `cluster status` and the live view of `cluster up`.

On a terminal the view refreshes itself; in a pipe it prints one line per change of a node's state.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.cli.output import Cell, Output, human_bytes
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.status import ClusterStatus, Partition, read_status, readable_around

if TYPE_CHECKING:
    from rich.live import Live

_EVERY_S = 1.0
_NAMES_SHOWN = 8
_NEWEST_TRANSACTION_VERSION = 2
_COLUMNS = ("NODE", "STATE", "ADDRESS", "PID", "LEADS", "HOLDS", "BEHIND", "MEMORY")


def show_status(status: ClusterStatus, output: Output) -> None:
    rows: list[tuple[Cell, ...]] = [
        (
            str(node.node_id) + (" *" if _controls(status, node.node_id) else ""),
            node.state,
            node.address,
            None if node.pid is None else str(node.pid),
            node.leaders,
            node.replicas,
            node.out_of_sync,
            None if node.rss_bytes is None else human_bytes(node.rss_bytes),
        )
        for node in status.nodes
    ]
    output.table(_COLUMNS, rows)
    for line in _sentences(status):
        output.line(line)


def _controls(status: ClusterStatus, node_id: int) -> bool:
    return status.metadata is not None and status.metadata.controller == node_id


def _sentences(status: ClusterStatus) -> list[str]:
    metadata = status.metadata
    if metadata is None:
        if any(node.state == "running" for node in status.nodes):
            return ["Nodes run, but do not serve this client: check its login (--command-config)"]
        return ["No node responds. Start one: headrace cluster start NODE"]
    controller = "no controller"
    if metadata.controller is not None:
        controller = f"* is controller ({metadata.controller})"
    lines = [f"Cluster {metadata.cluster_id}: {controller}, {len(metadata.partitions)} partitions"]
    if metadata.without_leader:
        lines.append(f"WITHOUT A LEADER: {_names(metadata.without_leader)}")
    if metadata.under_replicated:
        lines.append(f"under-replicated: {_names(metadata.under_replicated)}")
    for each, node, state, reason in metadata.damaged_logs[:_NAMES_SHOWN]:
        leader = "no node leads" if each.leader < 0 else f"node {each.leader} leads"
        what = "replica under repair" if state == "repairing" else "damaged replica"
        lines.append(f"{what}: {each} on node {node} ({leader}): {reason}")
    for each, node, damaged in metadata.damaged_ranges[:_NAMES_SHOWN]:
        readable = " and ".join(f"{first} to {last}" for first, last in readable_around(damaged))
        lines.append(
            f"damaged range: {each} on node {node}, offsets {damaged.first_offset} to {damaged.last_offset}, "
            f"no other replica can lead; readable: {readable or 'nothing'}: {damaged.reason}"
        )
    lines += [f"node {node}: {reason}" for node, reason in sorted(metadata.disks.full.items())]
    lines += [f"node {node}: {reason}" for node, reason in metadata.slow_nodes]
    lines += _host_sentences(status)
    if status.engine == "headrace" and metadata.transaction_version < _NEWEST_TRANSACTION_VERSION:
        lines.append(f"transaction.version is {metadata.transaction_version}: see docs/transactions.md")
    return lines


def _host_sentences(status: ClusterStatus) -> list[str]:
    """Warn when all nodes share a host, or name partitions whose in-sync replicas share one."""
    assert status.metadata is not None
    shared = status.metadata.same_host
    if not shared:
        return []
    hosts = {address.rpartition(":")[0] for address in status.metadata.addresses.values()}
    if len(hosts) == 1:
        return ["All nodes share one host: losing it loses every replica."]
    return [f"in-sync replicas on one host only: {_names(shared)}"]


def _names(partitions: list[Partition]) -> str:
    names = ", ".join(str(each) for each in partitions[:_NAMES_SHOWN])
    more = len(partitions) - _NAMES_SHOWN
    return f"{len(partitions)} ({names}{f', and {more} more' if more > 0 else ''})"


class LiveView:
    """A context manager; `refresh` can be called often and polls at most once a second."""

    def __init__(self, folder: ClusterFolder, output: Output) -> None:
        self._folder = folder
        self._output = output
        self._states: dict[int, str] = {}
        self._next_look = 0.0
        self._live: Live | None = None

    def __enter__(self) -> LiveView:
        if self._output.terminal and not self._output.as_json:
            from rich.live import Live

            self._live = Live(auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        if time.monotonic() < self._next_look:
            return
        status = read_status(self._folder, often=True)
        if self._live is None:
            self._print_changes(status)
        else:
            self._paint(status)
        self._next_look = time.monotonic() + _EVERY_S

    def _print_changes(self, status: ClusterStatus) -> None:
        for node in status.nodes:
            before, self._states[node.node_id] = self._states.get(node.node_id), node.state
            if before == node.state:
                continue
            if self._output.as_json:
                self._output.json_line({"node": node.node_id, "state": node.state, "pid": node.pid})
            else:
                self._output.line(f"node {node.node_id}: {node.state}")
        self._output.flush()

    def _paint(self, status: ClusterStatus) -> None:
        from rich.text import Text

        from headrace.cli.groups.view import TerminalFrame

        assert self._live is not None
        frame = TerminalFrame()
        show_status(status, Output(stdout=frame))
        help_line = "Ctrl-C stops it; in another terminal: headrace cluster kill|start|stop NODE"
        self._live.update(Text.from_ansi(frame.getvalue()) + Text(help_line, "dim"), refresh=True)
