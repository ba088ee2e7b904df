# SPDX-License-Identifier: Apache-2.0
"""View `pipelines` (`q`): Spark queries, and groups that may be queries which do not report.

    reported: whether any query reports its progress (topic `__headrace_pipelines`)
    total (that match), pipelines: those that failed or are silent first, then by name, at most 200:
        [{name, id, run, state: "running"|"idle"|"failed"|"stopped"|"silent", at (of its last report),
          silent_for, started, driver, batch (its number), batch_at, batch_ms, batch_parts: {part: ms}, rows,
          rows_in, rows_out (per second), state_rows, state_bytes, late, watermark, lag (offsets, as of the
          batch), max_lag (of a partition), sources: [{description, rows, lag, max_lag,
          behind: [{topic, partition, lag}]}], sink, error, group, group_lag (as of now),
          recent: [[at, batch, rows, ms], …]}]      recent: oldest first, at most 100 batches
    groups: [{id, lag, topics: [names]}]    without members, whose offsets moved lately: a query is no member

silent: no report for 45 s although the query neither ended nor failed.
"""

from __future__ import annotations

from headrace.console.state.model import GroupState, Snapshot
from headrace.console.views.admin_document import command, document, matching
from headrace.console.views.pipelines.reported_pipelines import (
    HOW_TO_REPORT,
    group_lag,
    pipeline_alarms,
    pipeline_document,
    reports_of,
)
from headrace.console.views.view import Document, Params, Source, View

_REFRESH_S = 2.0
_MOST = 200
_FIRST = {"failed": 0, "silent": 1, "running": 2, "idle": 2}


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    reports = await source.run(reports_of(source).update)
    wanted = params.get("q", "")
    found = [pipeline_document(each, snapshot) for each in reports or ()]
    chosen = [each for each in found if matching(wanted, each["name"], each["group"])]
    chosen.sort(key=lambda each: (_FIRST.get(each["state"], 3), each["name"]))
    reported = {each["group"] for each in found}
    parts = {
        "reported": bool(found),
        "total": len(chosen),
        "pipelines": chosen[:_MOST],
        "groups": [
            _group(group, snapshot)
            for group in sorted(snapshot.groups.values(), key=lambda group: group.group_id)
            if group.group_id not in reported and _may_be_a_query(group) and matching(wanted, group.group_id)
        ][:_MOST],
    }
    commands = [
        command("Run pipelines that report their progress", "pipeline", "run", "pipelines.toml", "--report"),
        command("How a pipeline stands, from its checkpoint", "pipeline", "status", "pipelines.toml"),
    ]
    unknown = () if found else (HOW_TO_REPORT,)
    alarms = pipeline_alarms(found)
    return document("pipelines", snapshot, parts, unknown=unknown, alarms=alarms, commands=commands)


def _may_be_a_query(group: GroupState) -> bool:
    return not group.members and any((each.rate_out or 0) > 0 for each in group.progress.values())


def _group(group: GroupState, snapshot: Snapshot) -> Document:
    return {
        "id": group.group_id,
        "lag": group_lag(group, snapshot),
        "topics": sorted({where.topic for where in group.progress}),
    }


VIEW = View(name="pipelines", build=build, refresh_s=_REFRESH_S)
