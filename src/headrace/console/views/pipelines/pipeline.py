# SPDX-License-Identifier: Apache-2.0
"""View `pipeline` (`name`): one Spark query, as in view `pipelines`.

pipeline: {…}   the fields of an entry of `pipelines`
"""

from __future__ import annotations

from headrace.console.state.model import Snapshot
from headrace.console.views.admin_document import command, document
from headrace.console.views.pipelines.reported_pipelines import (
    HOW_TO_REPORT,
    pipeline_alarms,
    pipeline_document,
    reports_of,
)
from headrace.console.views.view import Document, Interest, Params, Source, View, ViewError

_REFRESH_S = 1.0


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    name = params.get("name", "")
    reports = await source.run(reports_of(source).update)
    for report in reports or ():
        found = pipeline_document(report, snapshot)
        if name in (found["name"], report.key):
            alarms = pipeline_alarms([found])
            return document(
                "pipeline", snapshot, {"pipeline": found}, alarms=alarms, commands=_commands(found)
            )
    next_step = "choose one of the list" if reports else HOW_TO_REPORT
    raise ViewError(f"no query {name!r} reports its progress", next_step=next_step)


def _commands(found: Document) -> list[Document]:
    if found["group"] is None:
        return [command("How it stands, from its checkpoint", "pipeline", "offsets", "CHECKPOINT")]
    return [
        command("Its lag, as a group", "groups", "describe", found["group"]),
        command("Its offsets, from its checkpoint", "pipeline", "offsets", "CHECKPOINT"),
    ]


def _interest(params: Params) -> Interest:
    return Interest(groups=frozenset({params["name"]}) if params.get("name") else frozenset())


VIEW = View(name="pipeline", build=build, refresh_s=_REFRESH_S, interest=_interest)
