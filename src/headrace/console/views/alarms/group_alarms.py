# SPDX-License-Identifier: Apache-2.0
"""What needs attention in a group: it stands still, falls behind, keeps rebalancing, or nobody reads."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from headrace.console.state.model import GroupState, Snapshot
from headrace.console.views.admin_document import alarm
from headrace.console.views.durations import duration
from headrace.console.views.lag_figures import LagFigures, group_figures
from headrace.console.views.paths import group_path
from headrace.console.views.view import Document

_STUCK_MS = 60_000
_BEHIND_MS = 60_000
_STORM = 5
_STORM_MS = 5 * 60_000


def group_alarms(snapshot: Snapshot, group: GroupState) -> list[Document]:
    figures = group_figures(snapshot, group)
    return [*_progress(snapshot, group, figures), *_storm(snapshot, group)]


def _progress(snapshot: Snapshot, group: GroupState, figures: LagFigures) -> Iterator[Document]:
    if not figures.lag:
        return
    since, path = figures.behind_since, group_path(group.group_id)
    describe = f"headrace groups describe {shlex.quote(group.group_id)}"
    waited = _without_commit(snapshot, group)
    if not group.members:
        if figures.trend == "growing":
            yield alarm(
                "info",
                f"Group {group.group_id} has no consumers, and {figures.lag} records wait",
                "Start its consumers, or delete the group if nobody needs it any more.",
                command=describe,
                since=since,
                path=path,
            )
    elif figures.rate_out == 0 and waited is not None and waited >= _STUCK_MS:
        yield alarm(
            "error",
            f"Group {group.group_id} stands still: {figures.lag} records wait, and nothing was committed for "
            f"{duration(waited)}",
            "Look at the logs of its consumers: a record that fails again and again, or one that hangs.",
            command=describe,
            since=since,
            path=path,
        )
    elif figures.trend == "growing" and (figures.behind or 0) >= _BEHIND_MS:
        yield alarm(
            "warning",
            f"Group {group.group_id} falls behind: {figures.lag} records, {duration(figures.behind or 0)}",
            "See which consumer is the slowest, and what one consumer more would change.",
            command=f"headrace plan TOPIC --group {shlex.quote(group.group_id)}",
            since=since,
            path=path,
        )


def _without_commit(snapshot: Snapshot, group: GroupState) -> int | None:
    """For how long the lag was only seen to grow or stay, by its samples: nobody commits then."""
    samples = snapshot.lag_history.get(group.group_id, ())
    if not samples:
        return None
    newest = last = samples[-1]
    for earlier in reversed(samples[:-1]):
        if earlier[1] > last[1] or earlier[1] == 0:
            break
        last = earlier
    return newest[0] - last[0]


def _storm(snapshot: Snapshot, group: GroupState) -> Iterator[Document]:
    events = snapshot.group_events.get(group.group_id, ())
    recent = [
        event
        for event in events
        if event.kind in ("assigned", "target") and snapshot.at_ms - event.at_ms < _STORM_MS
    ]
    kinds = [sum(event.kind == kind for event in recent) for kind in ("assigned", "target")]
    if max(kinds) >= _STORM:
        yield alarm(
            "warning",
            f"Group {group.group_id} rebalanced {max(kinds)} times in the last 5 minutes",
            "The reasons are on its page. Often consumers take longer than max.poll.interval.ms for a batch, "
            "or their sessions time out: give them group.instance.id, smaller batches or longer timeouts.",
            command=f"headrace groups events {shlex.quote(group.group_id)}",
            since=recent[0].at_ms,
            path=group_path(group.group_id),
        )
