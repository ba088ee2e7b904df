# SPDX-License-Identifier: Apache-2.0
"""The state of a cluster at a moment of the past, from its recorded events. No clock, no requests.

Feed it events in their order: a complete `snapshot` record (in parts) sets nodes and topics, each
`group_snapshot` a group, and the others change them. Read next: event_folding.py, observing/past.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.client.tools.lag import Sample, time_behind
from headrace.console.state.event_folding import (
    apply,
    committed_offsets,
    log_ends_of,
    read_partitions,
    remember,
)
from headrace.console.state.folding import find_partition, fold_ends, fold_starts, replica_holders
from headrace.console.state.group_folding import (
    Place,
    fold_behind,
    fold_committed,
    note_assignment,
    sample_lags,
)
from headrace.console.state.group_snapshots import with_group_snapshot
from headrace.console.state.model import Event, NodeState, Snapshot, TopicState
from headrace.console.state.rates import Rates
from headrace.types import INTERNAL_TOPICS, TopicPartition

_WINDOW_MS = 60_000
_SAMPLE_MS = 10_000
_MOST_SAMPLES = 40
_NOT_RECORDED = "Sizes on disk, positions between commits, and configs of the past are not recorded."
_NO_SNAPSHOT = (
    "No snapshot of the cluster is kept for this moment: what did not change since the oldest recorded "
    "event is missing."
)


class Replay:
    def __init__(self, *, engine: str = "headrace") -> None:
        self._state = Snapshot(at_ms=0, live=False, engine=engine, records_events=True)
        self._parts: dict[tuple[str, str], dict[int, Event]] = {}
        self._ends = Rates[TopicPartition](_WINDOW_MS)
        self._commits = Rates[Place](_WINDOW_MS)
        self._samples: dict[TopicPartition, list[Sample]] = {}
        self._sampled_ms = 0
        self.has_snapshot = False
        """Whether a complete snapshot record was read."""

    @property
    def at_ms(self) -> int:
        """The time of the newest event so far."""
        return self._state.at_ms

    def take(self, event: Event) -> None:
        self._state = replace(self._fold(event), at_ms=max(self._state.at_ms, event.at_ms))
        if event.at_ms - self._sampled_ms >= _SAMPLE_MS:
            self._sampled_ms = event.at_ms
            self._state = sample_lags(self._state, event.at_ms)

    def snapshot(self, at_ms: int) -> Snapshot:
        unknown = (_NOT_RECORDED,) if self.has_snapshot else (_NOT_RECORDED, _NO_SNAPSHOT)
        behind = {
            group_id: {
                where: time
                for where, known in group.progress.items()
                if (time := self._behind(where, known.committed, at_ms)) is not None
            }
            for group_id, group in self._state.groups.items()
        }
        return replace(fold_behind(self._state, behind), at_ms=at_ms, unknown=unknown)

    def _behind(self, where: TopicPartition, committed: int | None, at_ms: int) -> Any:
        partition = find_partition(self._state, where)
        if partition is None or partition.end is None or committed is None:
            return None
        return time_behind(self._samples.get(where, ()), committed, partition.end, at_ms)

    def _fold(self, event: Event) -> Snapshot:
        if event.kind in ("snapshot", "group_snapshot"):
            return self._with_part(event)
        if event.kind == "log_ends":
            return self._with_ends(event)
        after = remember(apply(self._state, event), event)
        if event.kind == "commit" and event.group is not None:
            offsets = {event.group: committed_offsets(event)}
            after = fold_committed(after, offsets, event.at_ms, self._commits, whole=False)
        return after

    def _with_ends(self, event: Event) -> Snapshot:
        found = log_ends_of(event)
        for where, (_, end) in found.items():
            samples = self._samples.setdefault(where, [])
            samples.append(Sample(end, event.at_ms))
            del samples[:-_MOST_SAMPLES]
        after = fold_starts(self._state, {where: start for where, (start, _) in found.items()})
        return fold_ends(after, {where: end for where, (_, end) in found.items()}, event.at_ms, self._ends)

    def _with_part(self, event: Event) -> Snapshot:
        """The state as before until the last part of a record came."""
        try:
            key = (event.group or "", str(event.details["id"]))
            parts = self._parts.setdefault(key, {})
            parts[int(event.details["part"])] = event  # type: ignore[call-overload]
            if len(parts) < int(event.details["parts"]):  # type: ignore[call-overload]
                return self._state
            del self._parts[key]
            whole = [parts[number] for number in sorted(parts)]
            if event.group is None:
                after = with_cluster_snapshot(self._state, whole)
                self.has_snapshot = True
                return after
            after = with_group_snapshot(self._state, event.group, whole)
            return note_assignment(after, event.group, event.at_ms)
        except (KeyError, TypeError, ValueError, AttributeError):
            return self._state  # a newer release's form


def with_cluster_snapshot(before: Snapshot, parts: Sequence[Event]) -> Snapshot:
    """Nodes and topics as all parts of a `snapshot` record describe them."""
    first: Mapping[str, Any] = parts[0].details
    topics: dict[str, TopicState] = {}
    for entry in (entry for part in parts for entry in _listed(part)):
        name, topic_id = str(entry["topic"]), str(entry["topic_id"])
        old = before.topics.get(name)
        known = topics.get(name) or TopicState(name=name, topic_id=topic_id, internal=name in INTERNAL_TOPICS)
        offsets = old if old is not None and old.topic_id == topic_id else None
        more = read_partitions(int(entry["first"]), entry["partitions"], offsets)
        topics[name] = replace(known, partitions={**known.partitions, **more})
    controller = first.get("controller")
    return replace(
        before,
        cluster_id=str(first.get("cluster_id") or before.cluster_id),
        controller=None if controller is None or int(controller) < 0 else int(controller),
        nodes=_nodes(before, first["nodes"], topics),
        topics=dict(sorted(topics.items())),
    )


def _listed(part: Event) -> Any:
    return part.details["topics"] or ()


def _nodes(before: Snapshot, listed: Any, topics: Mapping[str, TopicState]) -> Mapping[int, NodeState]:
    found: dict[int, NodeState] = {}
    for entry in listed or ():
        node_id = int(entry["node"])
        old = before.nodes.get(node_id)
        up = bool(entry["up"])
        found[node_id] = NodeState(
            node_id=node_id,
            host=str(entry.get("host") or (old.host if old else "")),
            port=int(entry.get("port") or (old.port if old else 0)),
            rack=entry.get("rack"),
            up=up,
            since_ms=old.since_ms if old and old.up == up else None,
            disk_problem="its disk is full" if entry.get("full") else None,
        )
    for node_id in replica_holders(topics) - found.keys():
        found[node_id] = before.nodes.get(node_id) or NodeState(node_id=node_id, host="", port=0, up=False)
    return dict(sorted(found.items()))
