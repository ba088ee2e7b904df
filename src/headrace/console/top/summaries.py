# SPDX-License-Identifier: Apache-2.0
"""The sentences above the tables: a cluster, a topic and a group at a glance. Pure. Read next: detail.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.console.top import values
from headrace.console.top.tables import Document, member_names


def cluster_line(document: Document) -> str:
    nodes = document["nodes"]
    down = sum(node["state"] != "up" for node in nodes)
    parts = [
        f"{values.counted(len(nodes), 'node')}{f' ({down} down)' if down else ''}",
        f"controller {values.printable(document['controller'])}",
        f"{values.count(document['topics'])} topics",
        f"{values.count(document['partitions'])} partitions",
        f"{values.count(document['under_replicated'])} under-replicated",
        f"{values.count(document['without_leader'])} without leader",
        f"{values.count(document['groups'])} groups",
        f"{values.rate(document['rate_in'])} records/s",
    ]
    return _joined(parts)


def topics_line(document: Document) -> str:
    return f"{values.count(document['total'])} topics"


def groups_line(document: Document) -> str:
    return f"{values.count(document['total'])} groups"


def topic_lines(document: Document) -> list[str]:
    topic = document["topic"]
    first = [
        values.counted(len(document["partitions"]), "partition"),
        f"replication {values.count(topic['replication'])}",
        f"{values.count(document['records'])} records",
        values.size(document["size_bytes"]),
        f"{values.rate(document['rate_in'])} records/s in",
    ]
    return [_joined(first)]


def group_lines(document: Document) -> list[str]:
    group, totals = document["group"], document["totals"]
    epoch = "" if group["epoch"] is None else f", epoch {group['epoch']}"
    coordinator = values.printable(group["coordinator"])
    assignor = f"assignor {values.printable(group['assignor'])}"
    state = [
        values.printable(group["state"]),
        f"{group['type']} protocol{epoch}",
        assignor,
        f"coordinator {coordinator}",
        values.counted(len(document["members"]), "consumer"),
    ]
    lag = [
        f"lag {values.count(totals['lag'])} records",
        f"{values.duration(totals['behind'])} behind",
        f"{values.rate(totals['rate_in'])}/s in, {values.rate(totals['rate_out'])}/s out",
        values.trend(totals["trend"]),
    ]
    if totals["clear_in"] is not None and totals["lag"]:
        lag.append(f"clear in {values.duration(totals['clear_in'])}")
    lines = [_joined(state), _joined(lag), slowest(document), last_rebalance(document)]
    if document["what_if"]:
        lines.append(f"One consumer more: {values.printable(document['what_if']['text'])}")
    return lines


def slowest(document: Document) -> str:
    names = member_names(document["members"])
    for member in document["members"]:
        if member["slow"]:
            name = values.printable(names[member["member_id"]])
            lag = f"{values.count(member['lag'])} records behind"
            since = member["behind_since"]
            return f"Slowest: {name}, {lag}" + ("" if since is None else f", since {values.moment(since)}")
    return "Slowest: no consumer is falling behind"


def last_rebalance(document: Document) -> str:
    rebalances = document["rebalances"]
    if not rebalances:
        return "Last rebalance: none is known"
    latest: Mapping[str, Any] = rebalances[0]
    text = f"Last rebalance: {values.moment(latest['at'])}, {values.printable(latest['text'])}"
    return text + ("" if latest["took"] is None else f" (took {values.duration(latest['took'])})")


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(parts)
