# SPDX-License-Identifier: Apache-2.0
"""Documents as the views make them, for tests of the terminal: one cluster with a hostile name in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from headrace.console.views.view import Document, ViewError

AT_MS = 1_767_225_600_000
HOSTILE = "evil\x1b[2J[bold]name[/]"
COMMON: dict[str, Any] = {"at": AT_MS, "live": True, "engine": "headrace", "unknown": [], "problem": None}
COMMON |= {"alarms": [], "commands": []}


def node(number: int, **changes: Any) -> dict[str, Any]:
    found = {"id": number, "host": "127.0.0.1", "port": 9092 + number, "rack": None, "state": "up"}
    found |= {"since": None, "controller": number == 0, "leaders": 4, "replicas": 12, "out_of_sync": 0}
    found |= {"records_in": 12.5, "disk_used": 2048, "disk_free": None, "disk_total": None, "problem": None}
    return found | {"tiles": [], "tiles_more": 0} | changes


def topic_entry(name: str, **changes: Any) -> dict[str, Any]:
    found = {"name": name, "internal": False, "partitions": 4, "replication": 3, "records": 1000}
    found |= {"size_bytes": 4096, "rate_in": 10.0, "under_replicated": 0, "without_leader": 0, "groups": 1}
    return found | {"lag": 5, "range_partitioned": False} | changes


def group_entry(name: str, **changes: Any) -> dict[str, Any]:
    found = {"id": name, "type": "classic", "state": "Stable", "members": 2, "topics": ["orders"], "lag": 7}
    found |= {"behind": 1500, "rate_in": 10.0, "rate_out": 9.0, "trend": "steady", "clear_in": None}
    return found | changes


def member(name: str, *partitions: int, **changes: Any) -> dict[str, Any]:
    found = {"member_id": f"{name}-id", "instance_id": None, "client_id": name, "host": "127.0.0.1"}
    found |= {"partitions": [{"topic": "orders", "partition": number} for number in partitions]}
    found |= {"lag": 3, "rate_out": 5.0, "slow": False, "behind_since": None, "joined": AT_MS}
    return found | {"last_commit": AT_MS} | changes


def group_partition(number: int, owner: str | None, **changes: Any) -> dict[str, Any]:
    found = {"topic": "orders", "partition": number, "member_id": owner, "start": 0, "end": 100}
    found |= {"committed": 90, "position": 95, "lag": 10, "behind": 1500, "behind_at_least": False}
    return found | {"rate_in": 5.0, "rate_out": 5.0, "clear_in": None, "trend": "steady"} | changes


def cluster() -> Document:
    document = {"controller": 0, "cluster_id": "c", "partitions": 12, "under_replicated": 3}
    document |= {"without_leader": 0, "topics": 3, "groups": 2, "rate_in": 25.0, "changes": []}
    return COMMON | document | {"view": "cluster", "nodes": [node(0), node(1, state="down", records_in=None)]}


def topics() -> Document:
    entries = [
        topic_entry("orders", rate_in=99.0),
        topic_entry("payments"),
        topic_entry(HOSTILE, rate_in=1.0),
    ]
    return COMMON | {"view": "topics", "total": 3, "topics": entries}


def groups() -> Document:
    entries = [
        group_entry("billing", lag=70_000, trend="growing"),
        group_entry("mail", lag=None),
        group_entry("audit"),
    ]
    return COMMON | {"view": "groups", "total": 3, "groups": entries}


def topic() -> Document:
    details = {"name": "orders", "id": "t", "internal": False, "replication": 3, "configs": {}}
    found = {"partition": 0, "leader": 0, "leader_epoch": 1, "replicas": [0, 1, 2], "isr": [0, 2]}
    found |= {"offline": [], "start": 0, "end": 1000, "last_stable": 990, "size_bytes": 4096, "rate_in": 10.0}
    found |= {"key_range": None, "segments": None, "retention_edge": None, "open_transactions": [{}]}
    found |= {"producers": None, "readers": []}
    reading = {"id": "billing", "state": "Stable", "lag": 10, "behind": 1500, "trend": "growing"}
    document = {"view": "topic", "topic": details, "records": 2000, "rate_in": 20.0, "size_bytes": 8192}
    partitions = [found, found | {"partition": 1, "leader": None}]
    return COMMON | document | {"partitions": partitions, "groups": [reading]}


def group() -> Document:
    details = {"id": "billing", "type": "classic", "state": "Stable", "epoch": None, "assignor": "range"}
    members = [member("a", 0, 1), member("b", 2, lag=6000, slow=True, behind_since=AT_MS)]
    totals = {"lag": 6003, "behind": 90_000, "rate_in": 10.0, "rate_out": 9.0, "clear_in": None}
    rebalance = {"at": AT_MS, "reason": "b joined", "took": 250, "before": [], "after": [], "moved": []}
    rebalance |= {"given": 0, "taken": 0, "text": "because b joined; orders-2 moved from a to b"}
    what_if = {"text": "orders-1 would move to it", "members_now": 2, "members_then": 3, "idle": 0}
    return COMMON | {
        "view": "group",
        "group": details | {"coordinator": 0},
        "members": members,
        "partitions": [
            group_partition(0, "a-id"),
            group_partition(2, "b-id", lag=6000, trend="growing", behind=90_000, behind_at_least=True),
            group_partition(10, None, lag=None, behind=None, trend=None),
        ],
        "totals": totals | {"trend": "growing", "history": []},
        "rebalances": [rebalance],
        "timeline": [],
        "what_if": what_if | {"moves": [], "after": []},
    }


class CannedDocuments:
    """Stands in for an Observer: each view has one document, and what was asked for is remembered."""

    def __init__(self, **documents: Document) -> None:
        made = {
            "cluster": cluster(),
            "topics": topics(),
            "groups": groups(),
            "topic": topic(),
            "group": group(),
        }
        self.documents: dict[str, Document] = made | documents
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.open = 0

    async def subscribe(self, name: str, params: Mapping[str, str]) -> AsyncIterator[Document]:
        self.asked.append((name, dict(params)))
        if name not in self.documents:
            raise ViewError(f"there is no {name}", next_step="create it")
        self.open += 1
        try:
            yield self.documents[name]
            await _for_ever()
        finally:
            self.open -= 1


async def _for_ever() -> None:
    import asyncio

    await asyncio.Event().wait()
