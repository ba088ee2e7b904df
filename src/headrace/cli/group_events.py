"""`headrace groups events`: a group's story, line by line, from what was written down or from looking on.

What happened comes from client/group_events.py, the sentences from event_words.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import datetime

from headrace.cli.durations import parse_duration_ms
from headrace.cli.event_words import STYLES, sentence
from headrace.cli.group_reset import parse_moment_ms
from headrace.cli.output import Output
from headrace.client.errors import ClientError
from headrace.client.group_events import NOT_SEEN, GroupEvent, recorded_events, watched_events
from headrace.client.groups import Groups
from headrace.types import EVENTS_TOPIC

LOOK_EVERY_MS = 500
DEFAULT_SINCE = "1h"


def tell(output: Output, bootstrap: str, group_id: str, *, follow: bool, since: str | None) -> None:
    groups = Groups(bootstrap)
    since_ms = _since_ms(since or DEFAULT_SINCE)
    events = recorded_events(
        bootstrap, groups, group_id, since_ms=since_ms, follow=follow, on_pause=output.flush
    )
    if events is None:
        _watch(output, groups, group_id, follow=follow)
        return
    told = _print_all(output, group_id, events)
    if told == 0 and not output.as_json:
        groups.describe_group(group_id)  # says so when there is no such group
        output.note(f"Nothing is written down since {since or DEFAULT_SINCE}; look further back: --since 7d")


def _watch(output: Output, groups: Groups, group_id: str, *, follow: bool) -> None:
    if not follow:
        groups.describe_group(group_id)  # says so when there is no such group
        raise ClientError(
            f"this cluster does not write down what happens in groups (it has no topic {EVENTS_TOPIC})",
            next_step=f"look on from now: headrace groups events {group_id} --follow",
        )
    output.note(
        f"No group events are written down here (there is no topic {EVENTS_TOPIC}); "
        f"told is what looking every {LOOK_EVERY_MS} ms shows. "
        f"Missing: {'; '.join(NOT_SEEN)}."
    )
    for event in watched_events(groups, group_id, every_ms=LOOK_EVERY_MS):
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
    if output.as_json:
        document = {"at": event.at_ms, "kind": event.kind, "group": group_id, "details": event.details}
        output.json_line(document)
        return
    moment = datetime.fromtimestamp(event.at_ms / 1000).astimezone()
    if output.terminal:
        style = STYLES.get(event.kind, "")
        shown = moment.strftime("%H:%M:%S.") + f"{event.at_ms % 1000:03d}"
        output.styled((shown, "dim"), ("  ", ""), (f"{event.kind:<12}", style), (sentence(event), ""))
    else:
        output.row(moment.isoformat(timespec="milliseconds"), event.kind, sentence(event))


def _since_ms(text: str) -> int:
    if re.match(r"\d{4}-", text):
        return parse_moment_ms(text, "--since")
    return int(time.time() * 1000) - parse_duration_ms(text, "--since")
