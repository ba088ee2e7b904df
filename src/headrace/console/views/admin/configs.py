# SPDX-License-Identifier: Apache-2.0
"""View `configs` (`topic`, `node`, `q`): settings of one topic or node, or what is set anywhere.

    nodes: [ids], target: {kind: "topic"|"node", name} | null
    answer: {state: "ok"|"refused"|"failed"|"off", text, next}
    configs (with a target): [{name, value (null: secret), source: "topic"|"node"|"cluster"|"file"|"default",
             changed, read_only, sensitive, type, doc, set (command) | null}]      changed ones first
    overview (without one): {
        nodes: [{id, changed: [{name, value, source}], problem}],
        differences: [{name, values: [{node, value}]}]      settings that the nodes do not agree on
        topics: [{name, changed: [{name, value, source}]}]  with settings of their own; the first 100 by name
        topics_read, topics_total (that match `q`)}

Where a value comes from: topic (set for it), node (set for that node while it ran), cluster (set for all
nodes), file (the node's file or command line), default.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import defaultdict
from collections.abc import Sequence

from headrace.client.errors import ClientError
from headrace.console.state.model import Snapshot
from headrace.console.views.admin.config_requests import Setting, node_settings, topic_settings
from headrace.console.views.admin_document import asked, command, document, matching
from headrace.console.views.view import Document, Params, Source, View, ViewError

_REFRESH_S = 10.0
_MOST_TOPICS = 100
_MOST_NODES = 20
_OWN = frozenset(
    {"advertised.listeners", "broker.id", "broker.rack", "host.name", "listeners", "log.dir", "log.dirs"}
    | {"headrace.metrics.port", "node.id"}
)
"""Settings in which every node differs from the others."""


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    parts: Document = {
        "nodes": sorted(snapshot.nodes),
        "target": None,
        "answer": {"state": "ok", "text": None, "next": None},
        "configs": [],
        "overview": None,
    }
    wanted = params.get("q", "")
    target = _target(params)
    if target is None:
        parts["overview"] = await _overview(source, snapshot, wanted)
        return document("configs", snapshot, parts, commands=_commands(None))
    kind, name = target
    found, answer = await asked(_settings(source, kind, name))
    chosen = [each for each in found or () if matching(wanted, each.name, each.value, each.doc)]
    chosen.sort(key=lambda each: (not each.changed, each.name))
    parts["target"] = {"kind": kind, "name": name}
    parts["answer"] = answer
    parts["configs"] = [_config(each, kind, name) for each in chosen]
    return document("configs", snapshot, parts, commands=_commands(target))


def _target(params: Params) -> tuple[str, str] | None:
    for kind in ("topic", "node"):
        if params.get(kind):
            return kind, params[kind]
    return None


async def _settings(source: Source, kind: str, name: str) -> list[Setting]:
    if kind == "topic":
        return (await topic_settings(source.network, [name]))[name]
    if not name.isdecimal():
        raise ViewError(f"{name!r} is no id of a node", next_step="take one of the list", status=400)
    return await node_settings(source.network, int(name))


def _commands(target: tuple[str, str] | None) -> list[Document]:
    if target is None:
        return [command("Settings of a topic", "configs", "get", "--topic", "orders", "--all")]
    kind, name = target
    return [command(f"Settings of {kind} {name}", "configs", "get", f"--{kind}", name, "--all")]


def _config(setting: Setting, kind: str, name: str) -> Document:
    change = None
    if not setting.read_only and not setting.sensitive:
        pair = f"{setting.name}={setting.value or ''}"
        change = shlex.join(("headrace", "configs", "set", f"--{kind}", name, pair))
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "changed": setting.changed,
        "read_only": setting.read_only,
        "sensitive": setting.sensitive,
        "type": setting.kind,
        "doc": setting.doc,
        "set": change,
    }


async def _overview(source: Source, snapshot: Snapshot, wanted: str) -> Document:
    up = [node.node_id for node in snapshot.nodes.values() if node.up][:_MOST_NODES]
    answers = await asyncio.gather(*(_of_node(source, node_id) for node_id in sorted(up)))
    names = sorted(topic.name for topic in snapshot.topics.values() if not topic.internal)
    matched = [name for name in names if matching(wanted, name)]
    read = matched[:_MOST_TOPICS]
    found = await topic_settings(source.network, read) if read else {}
    return {
        "nodes": [_node(node_id, settings, problem) for node_id, settings, problem in answers],
        "differences": _differences({node_id: settings for node_id, settings, _ in answers}),
        "topics": [_topic(name, settings) for name, settings in sorted(found.items()) if _own(settings)],
        "topics_read": len(read),
        "topics_total": len(matched),
    }


async def _of_node(source: Source, node_id: int) -> tuple[int, list[Setting], str | None]:
    try:
        return node_id, await node_settings(source.network, node_id), None
    except ClientError as error:
        return node_id, [], str(error)


def _node(node_id: int, settings: Sequence[Setting], problem: str | None) -> Document:
    return {"id": node_id, "changed": [_short(each) for each in settings if each.changed], "problem": problem}


def _topic(name: str, settings: Sequence[Setting]) -> Document:
    return {"name": name, "changed": [_short(each) for each in _own(settings)]}


def _own(settings: Sequence[Setting]) -> list[Setting]:
    """Set for the topic itself; what the nodes set applies to all topics."""
    return [each for each in settings if each.source == "topic"]


def _differences(by_node: dict[int, list[Setting]]) -> list[Document]:
    values: dict[str, dict[int, str | None]] = defaultdict(dict)
    answered = [node_id for node_id, settings in by_node.items() if settings]
    for node_id in answered:
        for each in by_node[node_id]:
            if each.name not in _OWN and not each.sensitive:
                values[each.name][node_id] = each.value
    return [
        {"name": name, "values": [{"node": node, "value": of.get(node)} for node in answered]}
        for name, of in sorted(values.items())
        if len({of.get(node) for node in answered}) > 1
    ]


def _short(setting: Setting) -> Document:
    return {"name": setting.name, "value": setting.value, "source": setting.source}


VIEW = View(name="configs", build=build, refresh_s=_REFRESH_S)
