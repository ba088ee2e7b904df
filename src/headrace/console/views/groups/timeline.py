# SPDX-License-Identifier: Apache-2.0
"""The life of a group as a list of events in words, oldest first. Kinds: docs/groups.md, Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.console.state.model import Event, GroupState, Snapshot
from headrace.console.views.durations import duration
from headrace.console.views.view import Document

MOST_EVENTS = 300
_MOST_COMMITS = 150
"""Commits come every second: they must not displace what is rare."""


def timeline(snapshot: Snapshot, group: GroupState) -> list[Document]:
    events = snapshot.group_events.get(group.group_id, ())
    commits = [event for event in events if event.kind == "commit"][-_MOST_COMMITS:]
    others = [event for event in events if event.kind != "commit"]
    chosen = sorted([*others, *commits], key=lambda event: event.at_ms)[-MOST_EVENTS:]
    names = _names(events, group)
    return [_document(event, names) for event in chosen]


def _names(events: tuple[Event, ...], group: GroupState) -> dict[str, str]:
    """Client ids by member id: most events have only the member's."""
    found: dict[str, str] = {}
    for event in events:
        member, client = event.details.get("member_id"), event.details.get("client_id")
        if member and client:
            found[str(member)] = str(client)
    return found | {member.member_id: member.client_id for member in group.members}


def _document(event: Event, names: Mapping[str, str]) -> Document:
    member = event.details.get("member_id")
    return {
        "at": event.at_ms,
        "kind": event.kind,
        "member_id": None if member is None else str(member),
        "client_id": names.get(str(member)),
        "text": event_text(event, names.get(str(member), "")),
    }


def event_text(event: Event, client: str) -> str:
    text = _TEXTS.get(event.kind)
    try:
        return text(client or "a member", event.details) if text else event.kind
    except (KeyError, TypeError, ValueError):
        return event.kind


def _because(details: Mapping[str, Any]) -> str:
    return f": {details['reason']}" if details.get("reason") else ""


def _count(partitions: Any) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def _assigned(_: str, details: Mapping[str, Any]) -> str:
    took = details.get("took_ms")
    words = "the rebalance is complete" + (f" after {duration(took)}" if took is not None else "")
    moved = details.get("moved_count")
    return words + (f", {_count(moved)} moved" if moved else "") + _because(details)


_TEXTS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "join": lambda client, _: f"{client} joined",
    "rejoin": lambda client, _: f"{client} came back under a new member id",
    "leave": lambda client, details: f"{client} left{_because(details)}",
    "rebalance": lambda _, details: f"a rebalance began{_because(details)}",
    "target": lambda _, details: f"a new assignment was computed, {details.get('moved_count', 0)} moved",
    "reconcile": lambda client, _: f"{client} takes a step towards its new assignment",
    "assigned": _assigned,
    "first_fetch": lambda client, details: f"{client} began to read {_count(details.get('count', 1))}",
    "commit": lambda client, details: f"{client} committed {_count(details.get('partitions', 0))}",
    "empty": lambda _, __: "the group has no members",
    "deleted": lambda _, __: "the group was deleted",
    "upgrade": lambda _, __: "the group changed to the new protocol (KIP-848)",
    "downgrade": lambda _, __: "the group changed back to the classic protocol",
    "offsets_reset": lambda _, details: f"offsets of {details['partitions']} partitions were reset",
    "offsets_deleted": lambda _, details: f"offsets of {details['partitions']} partitions were deleted",
    "offsets_expired": lambda _, details: f"offsets of {details['partitions']} partitions expired",
}
