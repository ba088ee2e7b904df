# SPDX-License-Identifier: Apache-2.0
"""What offsets a group is to get, parsed from the body of a request, and the same as a command. Pure.

    {"group", "topics": [{"topic", "partitions": [0, 1] | null}],
     "strategy": {"kind": "earliest"|"latest"|"offset"|"time"|"shift"|"set", "value": number,
                  "offsets": [{"topic", "partition", "offset"}] (of "set")}}

`topics` null or left out: all partitions for which the group has committed. Read next: offsets.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.tools.reset import Kind, OffsetChange, Strategy
from headrace.console.messages.commands import command, iso_time, partition_list
from headrace.console.views.view import ViewError
from headrace.types import TopicPartition

_KINDS: dict[str, Kind] = {
    "earliest": "earliest",
    "latest": "latest",
    "offset": "offset",
    "time": "time",
    "shift": "shift",
    "set": "file",
}
_MOST_PARTITIONS = 10_000
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    group: str
    strategy: Strategy
    topics: Mapping[str, tuple[int, ...] | None] | None
    """None: what the group has committed; None of a topic: all its partitions."""


def parse_request(body: Mapping[str, Any]) -> ResetRequest:
    group = body.get("group")
    if not isinstance(group, str) or not group:
        raise _wrong("group", "give the group's name")
    return ResetRequest(
        group=group, strategy=_strategy(body.get("strategy")), topics=_topics(body.get("topics"))
    )


def reset_command(request: ResetRequest, changes: Sequence[OffsetChange], cluster: Cluster) -> str:
    words = ["groups", "reset", request.group]
    for topic, partitions in sorted((request.topics or {}).items()):
        words += ["--topic", topic if partitions is None else f"{topic}:{partition_list(partitions)}"]
    match request.strategy.kind:
        case "earliest" | "latest":
            words.append(f"--to-{request.strategy.kind}")
        case "offset":
            words += ["--to-offset", str(request.strategy.value)]
        case "time":
            words += ["--to-datetime", str(iso_time(request.strategy.value))]
        case "shift":
            words += ["--shift-by", str(request.strategy.value)]
        case _:
            lines = [
                f"{change.partition.topic},{change.partition.partition},{change.new}" for change in changes
            ]
            words += ["--from-file", "/dev/stdin", "--execute"]
            given = shlex.join(["printf", "%s\\n", *lines])
            return f"{given} | {command(cluster, *words)}"
    return command(cluster, *words, "--execute")


def _strategy(given: Any) -> Strategy:
    if not isinstance(given, Mapping) or given.get("kind") not in _KINDS:
        raise _wrong("strategy", f"its kind is one of {', '.join(_KINDS)}")
    kind = _KINDS[given["kind"]]
    if kind == "file":
        return Strategy(kind=kind, from_file=_offsets(given.get("offsets")))
    if kind in ("earliest", "latest"):
        return Strategy(kind=kind)
    lowest = -_LARGEST if kind == "shift" else 0
    return Strategy(kind=kind, value=_whole(given.get("value"), "strategy's value", lowest))


def _offsets(given: Any) -> dict[TopicPartition, int]:
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_PARTITIONS:
        raise _wrong("list of offsets", f"give 1 to {_MOST_PARTITIONS:,} of them")
    found = {}
    for each in given:
        if not isinstance(each, Mapping) or not isinstance(each.get("topic"), str):
            raise _wrong("list of offsets", 'each is {"topic", "partition", "offset"}')
        where = TopicPartition(each["topic"], _whole(each.get("partition"), "partition", 0))
        found[where] = _whole(each.get("offset"), f"offset of {where}", 0)
    return found


def _topics(given: Any) -> dict[str, tuple[int, ...] | None] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_PARTITIONS:
        raise _wrong("list of topics", "give at least one, or null for all that the group has committed")
    found: dict[str, tuple[int, ...] | None] = {}
    for each in given:
        if not isinstance(each, Mapping) or not isinstance(each.get("topic"), str) or not each["topic"]:
            raise _wrong("list of topics", 'each is {"topic", "partitions"}')
        found[each["topic"]] = _numbers(each.get("partitions"))
    return found


def _numbers(given: Any) -> tuple[int, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_PARTITIONS:
        raise _wrong("list of partitions", "give their numbers, or null for all")
    return tuple(sorted({_whole(each, "partition", 0) for each in given}))


def _whole(value: Any, name: str, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= _LARGEST:
        raise _wrong(name, f"give a whole number{'' if lowest < 0 else ' from 0'}")
    return value


def _wrong(name: str, next_step: str) -> ViewError:
    return ViewError(f"the {name} is not as it should be", next_step=next_step, status=400)
