# SPDX-License-Identifier: Apache-2.0
"""Formats group events as one sentence each (D21). Pure.

Unknown kinds of events are printed unchanged: a newer broker may write more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.cli.durations import human_ms
from headrace.client.tools.group_events import GroupEvent

_TAIL = re.compile(r"-?([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_LONG_ID = 16
_MOVES_SHOWN = 4
_NO_REASON = "not provided"
"""The coordinator's reason for clients that set none."""
_ONE_SIDED = {"given": "assigned", "taken": "revoked"}

STYLES = {
    "join": "green",
    "rejoin": "green",
    "present": "green",
    "leave": "red",
    "rebalance": "yellow",
    "assigned": "cyan",
    "target": "cyan",
    "first_fetch": "blue",
    "upgrade": "magenta",
    "downgrade": "magenta",
    "empty": "dim",
    "commit": "dim",
    "reconcile": "dim",
}


def short_member(member_id: str) -> str:
    """Shorten the UUID in a member id to its first letters."""
    shortened = _TAIL.sub(r"-\1", member_id).lstrip("-")
    if shortened != member_id:
        return shortened
    return member_id if len(member_id) <= _LONG_ID else f"{member_id[:8]}…"


def sentence(event: GroupEvent) -> str:
    say = _SENTENCES.get(event.kind)
    details = event.details
    if say is None:
        return " ".join([event.kind, *(f"{key}={value}" for key, value in details.items())])
    return say(details)


def _who(details: Mapping[str, Any]) -> str:
    member_id = str(details.get("member_id") or "")
    return short_member(member_id) if member_id else "a consumer without membership"


def _joined(details: Mapping[str, Any]) -> str:
    return f"{_who(details)} joined{_where(details)}"


def _present(details: Mapping[str, Any]) -> str:
    return f"{_who(details)} is in the group{_where(details)}"


def _where(details: Mapping[str, Any]) -> str:
    parts = []
    if details.get("client_host"):
        parts.append(f"from {str(details['client_host']).removeprefix('/')}")
    if details.get("instance_id"):
        parts.append(f"as static member {details['instance_id']}")
    return " " + " ".join(parts) if parts else ""


def _rejoined(details: Mapping[str, Any]) -> str:
    replaces = short_member(str(details.get("replaces", "")))
    return f"{_who(details)} came back as static member {details.get('instance_id')}, replacing {replaces}"


def _left(details: Mapping[str, Any]) -> str:
    reason = details.get("reason")
    given = reason and reason not in (_NO_REASON, "left")
    return f"{_who(details)} left" + (f": {_readable(str(reason))}" if given else "")


def _rebalanced(details: Mapping[str, Any]) -> str:
    return f"rebalance started: {_readable(str(details.get('reason', 'no reason')))}"


def _assigned(details: Mapping[str, Any]) -> str:
    text = f"partitions assigned to {_counted(int(details.get('members', 0)), 'member')}"
    if "took_ms" in details:
        text += f" after {human_ms(int(details['took_ms']))}"
    moves = _moves(details)
    return f"{text}: {moves}" if moves else text


def _target(details: Mapping[str, Any]) -> str:
    return f"new target assignment (epoch {details.get('epoch')}): {_moves(details) or 'nothing moves'}"


def _moves(details: Mapping[str, Any]) -> str:
    parts = []
    moved = list(details.get("moved") or ())
    count = int(details.get("moved_count", len(moved)))
    if count:
        shown = [f"{name} {short_member(a)} → {short_member(b)}" for name, a, b in moved[:_MOVES_SHOWN]]
        rest = f" and {count - len(shown)} more" if count > len(shown) else ""
        parts.append(f"{count} moved ({', '.join(shown)}{rest})" if shown else f"{count} moved")
    parts += [f"{details[key]} {words}" for key, words in _ONE_SIDED.items() if details.get(key)]
    return ", ".join(parts)


def _reconciled(details: Mapping[str, Any]) -> str:
    text = f"{_who(details)} owns {_counted(int(details.get('assigned', 0)), 'partition')}"
    revoking = int(details.get("revoking", 0))
    return text + (f", {revoking} still to revoke" if revoking else "")


def _emptied(details: Mapping[str, Any]) -> str:
    return "the group is empty"


def _committed(details: Mapping[str, Any]) -> str:
    text = f"{_who(details)} committed" if "member_id" in details else "committed"
    text += f" {_offsets(details)}"
    return text + (f", {int(details['records']):+,} records" if "records" in details else "")


def _offsets(details: Mapping[str, Any]) -> str:
    """`orders-0 at 129, orders-1 at 193`; of an older broker's event only the number of partitions."""
    count = int(details.get("partitions", 0))
    named = [f"{topic}-{index} at {offset}" for topic, index, offset in details.get("offsets") or ()]
    shown = named[:_MOVES_SHOWN]
    rest = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + rest if shown else _counted(count, "partition")


def _first_fetch(details: Mapping[str, Any]) -> str:
    if "topic" in details:
        where = f"{details['topic']}-{details['partition']} at offset {details.get('offset')}"
        return f"{_who(details)} fetched first from {where}"
    named = [str(name) for name, _ in details.get("partitions") or ()]
    count = int(details.get("count", len(named)))
    rest = " …" if count > len(named[:_MOVES_SHOWN]) else ""
    shown = f": {', '.join(named[:_MOVES_SHOWN])}{rest}" if named else ""
    return f"{_who(details)} fetched first from {_counted(count, 'partition')}{shown}"


def _upgraded(details: Mapping[str, Any]) -> str:
    return f"the group uses the consumer protocol (KIP-848) now, {_with(details)}"


def _downgraded(details: Mapping[str, Any]) -> str:
    return f"the group uses the classic protocol again, {_with(details)}"


def _with(details: Mapping[str, Any]) -> str:
    return f"with {_counted(int(details.get('members', 0)), 'member')}"


def _deleted(details: Mapping[str, Any]) -> str:
    return "the group was deleted"


def _state(details: Mapping[str, Any]) -> str:
    before, after = details.get("from"), details.get("to")
    if after is None:
        return "the group does not exist" if before is None else "the group was deleted"
    return f"now {after}, was {before}" if before else f"the group is {after}"


def _reset(details: Mapping[str, Any]) -> str:
    count = int(details.get("partitions", 0))
    named = f": {_offsets(details)}" if details.get("offsets") else ""
    return f"offsets of {_counted(count, 'partition')} were reset{named}"


def _offsets_deleted(details: Mapping[str, Any]) -> str:
    count, reason = int(details.get("partitions", 0)), details.get("reason", "no reason")
    return f"offsets of {_counted(count, 'partition')} were deleted: {reason}"


def _expired(details: Mapping[str, Any]) -> str:
    count = int(details.get("partitions", 0))
    return f"offsets of {_counted(count, 'partition')} expired: not used for the retention time"


def _readable(reason: str) -> str:
    """Shorten the member ids within a reason."""
    reason = reason.removesuffix(f"; client reason: {_NO_REASON}")
    return re.sub(r"\S+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", lambda m: short_member(m[0]), reason)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "join": _joined,
    "present": _present,
    "rejoin": _rejoined,
    "leave": _left,
    "rebalance": _rebalanced,
    "assigned": _assigned,
    "target": _target,
    "reconcile": _reconciled,
    "empty": _emptied,
    "commit": _committed,
    "first_fetch": _first_fetch,
    "state": _state,
    "upgrade": _upgraded,
    "downgrade": _downgraded,
    "deleted": _deleted,
    "offsets_reset": _reset,
    "offsets_deleted": _offsets_deleted,
    "offsets_expired": _expired,
}
