# SPDX-License-Identifier: Apache-2.0
"""What changed in the cluster, newest first, in sentences. The events: docs/cluster.md, docs/groups.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.console.state.model import Event, Snapshot
from headrace.console.views.durations import duration
from headrace.console.views.view import Document

MOST_CHANGES = 200
MOST_ISR_CHANGES = 50
"""A dead node leaves the in-sync replicas of all its partitions, which must not hide who leads them now."""


def changes(snapshot: Snapshot) -> list[Document]:
    newest = sorted(snapshot.events, key=lambda event: event.at_ms, reverse=True)
    isr = [event for event in newest if event.kind == "isr"][:MOST_ISR_CHANGES]
    others = [event for event in newest if event.kind != "isr"][: MOST_CHANGES - len(isr)]
    return [change_document(e) for e in sorted([*isr, *others], key=lambda e: e.at_ms, reverse=True)]


def change_document(event: Event) -> Document:
    details: Mapping[str, Any] = event.details
    return {
        "at": event.at_ms,
        "kind": event.kind,
        "text": change_text(event),
        "topic": event.topic,
        "partition": event.partition,
        "node": event.node,
        "from": _node(details.get("leader_before", details.get("node_before"))),
        "to": _node(details.get("leader")) if event.kind == "leader" else None,
        "took": details.get("took_ms"),
    }


def _node(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def change_text(event: Event) -> str:
    """A sentence; of a kind that is not known here, its name."""
    text = _TEXTS.get(event.kind)
    try:
        return text(event) if text else f"{event.kind} {event.topic or ''}".strip()
    except (KeyError, TypeError, ValueError):
        return event.kind


def _leader(event: Event) -> str:
    details: Mapping[str, Any] = event.details
    where = f"{event.topic} {event.partition}"
    new, old = _node(details.get("leader")), _node(details.get("leader_before"))
    if new is None:
        return f"{where} has no leader any more"
    text = f"Node {new} leads {where}"
    if old is not None:
        text += f" in place of node {old}"
    if details.get("took_ms") is not None:
        text += f", {duration(details['took_ms'])} after that was found dead"
    return text + (" (unclean election: records may be lost)" if details.get("unclean") else "")


def _isr(event: Event) -> str:
    details: Mapping[str, Any] = event.details
    now, before = set(details["isr"]), set(details["isr_before"])
    where = f"{event.topic} {event.partition}"
    words = [f"node {node} fell out of the in-sync replicas of {where}" for node in sorted(before - now)]
    words += [f"node {node} is in sync with {where} again" for node in sorted(now - before)]
    text = "; ".join(words) or f"the replicas of {where} changed"
    return text[0].upper() + text[1:]


def _node_down(event: Event) -> str:
    return f"Node {event.node} " + ("was stopped" if event.details.get("orderly") else "is down")


def _partitions(event: Event) -> str:
    count = event.details["count"]
    return "1 partition" if count == 1 else f"{count} partitions"


def _disk_full(event: Event) -> str:
    return f"The disk of node {event.node} is full: {event.details.get('reason') or 'no room is left'}"


_TEXTS: Mapping[str, Callable[[Event], str]] = {
    "leader": _leader,
    "isr": _isr,
    "node_up": lambda event: f"Node {event.node} is up",
    "node_down": _node_down,
    "controller": lambda event: f"Node {event.node} is the controller now",
    "disk_full": _disk_full,
    "disk_room": lambda event: f"The disk of node {event.node} has room again",
    "topic_created": lambda event: f"Topic {event.topic} was created: {_partitions(event)}",
    "topic_deleted": lambda event: f"Topic {event.topic} was deleted",
    "partitions_added": lambda event: f"Topic {event.topic} has {_partitions(event)} now",
    "unclean": lambda event: f"Unclean election of {event.topic} {event.partition}: records may be lost",
    "given_up": lambda event: f"Records of {event.topic} {event.partition} were given up",
    "offline": lambda event: (
        f"The log of {event.topic} {event.partition} on node {event.node} is damaged: "
        f"{event.details.get('reason')}"
    ),
    "online": lambda event: f"The log of {event.topic} {event.partition} on node {event.node} is repaired",
}
