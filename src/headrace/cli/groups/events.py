"""`headrace groups events`: prints recorded group events, or changes seen by polling.

Events come from client/tools/group_events.py, their text from event_text.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from headrace.cli.durations import parse_duration_ms
from headrace.cli.groups.event_text import STYLES, sentence
from headrace.cli.groups.reset import parse_moment_ms
from headrace.cli.output import Output, iso_time
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.group_events import NOT_SEEN, GroupEvent, recorded_events, watched_events
from headrace.client.tools.groups import Groups
from headrace.types import EVENTS_TOPIC

POLL_INTERVAL_MS = 500
DEFAULT_SINCE = "1h"


def print_events(
    output: Output, bootstrap: str | Cluster, group_id: str, *, follow: bool, since: str | None
) -> None:
    groups = Groups(bootstrap)
    since_ms = _since_ms(since or DEFAULT_SINCE)
    events = recorded_events(
        bootstrap, groups, group_id, since_ms=since_ms, follow=follow, on_pause=output.flush
    )
    if events is None:
        _watch(output, groups, group_id, follow=follow)
        return
    printed = _print_all(output, group_id, events)
    if printed == 0 and not output.as_json:
        groups.describe_group(group_id)  # raises when there is no such group
        output.note(f"No events since {since or DEFAULT_SINCE}; try a longer time: --since 7d")


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
    if re.match(r"\d{4}-", text):
        return parse_moment_ms(text, "--since")
    return int(time.time() * 1000) - parse_duration_ms(text, "--since")
