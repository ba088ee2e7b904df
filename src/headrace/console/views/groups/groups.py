# SPDX-License-Identifier: Apache-2.0
"""View `groups` (`q`, `sort`, `limit`): all groups with their lag, rates, trend and time to clear.

Its document is described in docs/design/console.md. Read next: views/lag_figures.py, group.py.
"""

from __future__ import annotations

from headrace.console.state.model import GroupState, Snapshot
from headrace.console.views.admin_document import bounded_int, command, document, matching
from headrace.console.views.alarms.alarms import cluster_alarms
from headrace.console.views.lag_figures import group_figures
from headrace.console.views.sorting import sorted_rows
from headrace.console.views.view import Document, Params, Source, View

DEFAULT_ROWS, MOST_ROWS = 200, 2_000
_MOST_TOPICS = 50


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    wanted = params.get("q", "")
    found = [
        _group(snapshot, group)
        for group in snapshot.groups.values()
        if matching(wanted, group.group_id, *topics_of(group)[:_MOST_TOPICS])
    ]
    limit = bounded_int(params, "limit", DEFAULT_ROWS, MOST_ROWS)
    parts: Document = {
        "total": len(found),
        "groups": sorted_rows(found, params.get("sort") or "id", "id")[:limit],
    }
    alarms = [each for each in cluster_alarms(snapshot) if (each["path"] or "").startswith("/groups")]
    commands = [command("List the groups", "groups", "list", "--bootstrap", str(source.cluster))]
    return document("groups", snapshot, parts, unknown=snapshot.unknown, alarms=alarms, commands=commands)


def topics_of(group: GroupState) -> list[str]:
    names = {where.topic for where in group.progress}
    names.update(where.topic for member in group.members for where in member.assigned)
    return sorted(names)


def _group(snapshot: Snapshot, group: GroupState) -> Document:
    figures = group_figures(snapshot, group)
    return {
        "id": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "members": len(group.members),
        "topics": topics_of(group)[:_MOST_TOPICS],
        **figures.document(),
    }


VIEW = View(name="groups", build=build)
