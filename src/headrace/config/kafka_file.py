# SPDX-License-Identifier: Apache-2.0
"""A `server.properties` written for Apache Kafka: leaves out what only concerns Kafka's own processes.

The quorum, its listener, thread counts and the like are left out with a note; what decides about data or
access stays, and the loader refuses it. Must not know where a file is. Read next: several_nodes.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.config.node_settings import split_listener_key
from headrace.config.not_served import NO_QUORUM, may_be_ignored, reason_not_served
from headrace.config.properties import Entry


class KafkaFile(NamedTuple):
    entries: list[Entry]
    """The settings that a node of ours has, or must refuse."""
    left_out: dict[str, str]
    notes: tuple[str, ...]


def leave_out_kafkas_own(entries: Sequence[Entry]) -> KafkaFile:
    left_out = {entry.key: entry.value for entry in entries if may_be_ignored(entry.key, entry.value)}
    controllers = listener_names(left_out.get("controller.listener.names", ""))
    kept = [
        entry._replace(value=without_listeners(entry.value, controllers))
        if entry.key in ("listeners", "advertised.listeners")
        else entry
        for entry in entries
        if entry.key not in left_out and not _of_listener(entry.key, controllers)
    ]
    reasons: dict[str, list[str]] = {}
    for name in left_out:
        reasons.setdefault(str(reason_not_served(name)), []).append(name)
    if controllers:
        reasons[NO_QUORUM].append(f"listener {', '.join(sorted(controllers))}")
    notes = tuple(f"ignored {', '.join(names)}: {reason}" for reason, names in reasons.items())
    return KafkaFile(kept, left_out, notes)


def listener_names(text: str) -> frozenset[str]:
    return frozenset(name.strip().upper() for name in text.split(",") if name.strip())


def without_listeners(text: str, names: frozenset[str]) -> str:
    """`NAME://host:port,…` without the listeners of these names."""
    entries = (entry.strip() for entry in text.split(",") if entry.strip())
    return ",".join(entry for entry in entries if entry.partition("://")[0].upper() not in names)


def _of_listener(key: str, names: frozenset[str]) -> bool:
    of_listener = split_listener_key(key)
    return of_listener is not None and of_listener[0] in names
