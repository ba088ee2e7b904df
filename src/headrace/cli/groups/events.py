# SPDX-License-Identifier: Apache-2.0
"""`headrace groups events`: prints recorded group events, or changes seen by polling.

Events come from client/tools/group_events.py, their text from event_text.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import typer

from headrace.cli.groups.event_text import STYLES, sentence
from headrace.cli.output import Output, iso_time
from headrace.cli.start_position import parse_start
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.group_events import NOT_SEEN, GroupEvent, recorded_events, watched_events
from headrace.client.tools.groups import Groups
from headrace.types import EVENTS_TOPIC

POLL_INTERVAL_MS = 500
DEFAULT_SINCE = "1h"
_MOMENT = "2026-01-31T12:00:00Z"


def print_events(
    output: Output, bootstrap: str | Cluster, group_id: str, *, follow: bool, since: str | None
) -> None:
    since_ms = _since_ms(since or DEFAULT_SINCE)
    groups = Groups(bootstrap)
    events = recorded_events(
        bootstrap, groups, group_id, since_ms=since_ms, follow=follow, on_pause=output.flush
    )
    if events is None:
        _watch(output, groups, group_id, follow=follow)
        return
    printed = _print_all(output, group_id, events)
    if printed == 0 and not output.as_json:
        groups.describe_group(group_id)  # raises when there is no such group
        output.note(f"No events since {since or DEFAULT_SINCE}; try a longer time: --from 7d")


def _watch(output: Output, groups: Groups, group_id: str, *, follow: bool) -> None:
    if not follow:
        groups.describe_group(group_id)  # raises when there is no such group
        raise ClientError(
            f"this cluster does not record group events (it has no topic {EVENTS_TOPIC})",
            next_step=f"watch from now on: headrace groups events {group_id} --follow",
        )
    output.note(
        f"This cluster records no group events (there is no topic {EVENTS_TOPIC}); "
        f"shown are changes seen by polling every {POLL_INTERVAL_MS} ms. "
        f"Missing: {'; '.join(NOT_SEEN)}."
    )
    for event in watched_events(groups, group_id, every_ms=POLL_INTERVAL_MS):
        if event is None:
            output.flush()
        else:
            _print(output, group_id, event)


def _print_all(output: Output, group_id: str, events: Iterable[GroupEvent]) -> int:
    count = 0
    for event in events:
        _print(output, group_id, event)
        count += 1
    return count


def _print(output: Output, group_id: str, event: GroupEvent) -> None:
    at = iso_time(event.at_ms)
    if output.as_json:
        document = {"at": at, "kind": event.kind, "group": group_id, "details": event.details}
        output.json_line(document)
        return
    if output.terminal:
        style = STYLES.get(event.kind, "")
        output.styled((f"{at}", "dim"), ("  ", ""), (f"{event.kind:<12}", style), (sentence(event), ""))
    else:
        output.row(at, event.kind, sentence(event))


def _since_ms(text: str) -> int:
    now_ms = int(time.time() * 1000)
    start = parse_start(text, now_ms)
    if start.kind in ("offset", "last"):
        raise typer.BadParameter(
            f"{text!r} is not a time: use beginning, end, 2h or {_MOMENT}", param_hint="--from"
        )
    return {"beginning": 0, "end": now_ms}.get(start.kind, start.value)
