# SPDX-License-Identifier: Apache-2.0
"""View `history`: from when to when the past can be shown, and what happened, for the time slider.

recorded (whether events are; null: not known yet), from, to (null: none are kept), marks: [{at, kind, text,
path}], at most 500, oldest first
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.console.state.model import Event, Snapshot
from headrace.console.views.admin_document import document
from headrace.console.views.cluster.changes import change_text
from headrace.console.views.groups.timeline import event_text
from headrace.console.views.paths import group_path, topic_path
from headrace.console.views.view import Document, Params, Source, View

MOST_MARKS = 500
_GROUP_MARKS = ("join", "leave", "assigned", "empty", "deleted", "offsets_reset")


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    marks = sorted(_marks(snapshot), key=lambda mark: int(mark["at"]))[-MOST_MARKS:]
    parts: Document = {
        "recorded": snapshot.records_events,
        "from": snapshot.events_from_ms,
        "to": None if snapshot.events_from_ms is None else snapshot.at_ms,
        "marks": marks,
    }
    return document("history", snapshot, parts, unknown=snapshot.unknown)


def _marks(snapshot: Snapshot) -> Iterator[Document]:
    for event in snapshot.events:
        if event.kind != "isr":
            yield _mark(event, change_text(event), topic_path(event.topic) if event.topic else "/")
    for group_id, events in snapshot.group_events.items():
        for event in events:
            if event.kind in _GROUP_MARKS:
                client = str(event.details.get("client_id") or "")
                yield _mark(event, f"{group_id}: {event_text(event, client)}", group_path(group_id))


def _mark(event: Event, text: str, path: str) -> Document:
    return {"at": event.at_ms, "kind": event.kind, "text": text, "path": path}


VIEW = View(name="history", build=build, refresh_s=2.0)
