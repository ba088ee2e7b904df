# SPDX-License-Identifier: Apache-2.0
"""Search by name over topics, groups and nodes: `[{kind, name, path}]`.

Names that begin with the text come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from headrace.console.state.model import Snapshot
from headrace.console.views.view import Document

MOST_RESULTS = 50


def search(snapshot: Snapshot, q: str) -> list[Document]:
    wanted = q.strip().lower()
    if not wanted:
        return []
    found = [
        *_matching("topic", snapshot.topics, wanted, "/topics/"),
        *_matching("group", snapshot.groups, wanted, "/groups/"),
    ]
    found += [
        {"kind": "node", "name": f"node {node.node_id}", "path": "/"}
        for node in snapshot.nodes.values()
        if wanted in f"node {node.node_id} {node.host}:{node.port}".lower()
    ]
    found.sort(key=lambda each: (not each["name"].lower().startswith(wanted), each["name"]))
    return found[:MOST_RESULTS]


def _matching(kind: str, names: Iterable[str], wanted: str, base: str) -> list[Document]:
    return [
        {"kind": kind, "name": name, "path": base + quote(name, safe="")}
        for name in names
        if wanted in name.lower()
    ]
