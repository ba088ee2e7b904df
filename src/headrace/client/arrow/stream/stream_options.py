# SPDX-License-Identifier: Apache-2.0
"""Options of a stream, checked. No network. Read next: stream.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from headrace.client.arrow.read.decode import check_columns
from headrace.client.arrow.read.prefetch import DEFAULT_BUDGET
from headrace.client.arrow.read.reader import DEFAULT_TIMEOUT_MS
from headrace.client.arrow.read.typed import Format, Rejects, TypedDecoder
from headrace.client.arrow.stream.start import Start, check_start
from headrace.client.arrow.stream.stream_core import StreamSettings
from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.client_config import chosen_security
from headrace.client.membership.member import MemberSettings, ProtocolName
from headrace.client.membership.topic_watch import Topics, as_list
from headrace.client.security import Security
from headrace.types import TopicPartition

Listener = Callable[[list[TopicPartition]], Any]


class StreamOptions(TypedDict, total=False):
    """What `stream` explains."""

    bootstrap: str | None
    security: Security | None
    config: str | Path | None
    group: str | None
    columns: Sequence[str] | None
    key: Format
    value: Format
    rejects: Rejects | None
    start: Start | None
    commit: bool
    commit_interval_ms: int
    protocol: ProtocolName | None
    assignor: str | None
    instance_id: str | None
    on_assigned: Listener | None
    on_revoked: Listener | None
    on_lost: Listener | None
    max_pause_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    committed_only: bool
    refresh_ms: int
    budget: int
    timeout_ms: int


class StreamRequest:
    """One stream, its options checked."""

    def __init__(
        self,
        topics: Topics,
        *,
        bootstrap: str | None = None,
        security: Security | None = None,
        config: str | Path | None = None,
        group: str | None = None,
        columns: Sequence[str] | None = None,
        key: Format = "raw",
        value: Format = "raw",
        rejects: Rejects | None = None,
        start: Start | None = None,
        commit: bool = True,
        commit_interval_ms: int = 1_000,
        protocol: ProtocolName | None = None,
        assignor: str | None = None,
        instance_id: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        max_pause_ms: int = 300_000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        committed_only: bool = True,
        refresh_ms: int = 30_000,
        budget: int = DEFAULT_BUDGET,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        check_columns(columns)
        begin: Start = start or ("latest" if group is None else "earliest")
        check_start(begin, has_group=group is not None)
        self.bootstrap = chosen_bootstrap(bootstrap)
        self.security = chosen_security(security, config)
        self._topics = topics
        self._decoding = {"columns": columns, "key": key, "value": value, "rejects": rejects}
        self.listeners: Mapping[str, Listener | None] = {
            "assigned": on_assigned,
            "revoked": on_revoked,
            "lost": on_lost or on_revoked,
        }
        member = None
        if group is not None:
            member = MemberSettings(
                group=group,
                protocol=protocol,
                assignor=assignor,
                instance_id=instance_id,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_pause_ms=max_pause_ms,
                timeout_ms=timeout_ms,
            )
        self.settings = StreamSettings(
            topics=topics,
            member=member,
            start=begin,
            auto_commit=commit,
            commit_interval_ms=commit_interval_ms,
            committed_only=committed_only,
            budget=budget,
            refresh_ms=refresh_ms,
            timeout_ms=timeout_ms,
        )

    def decoder(self, topic: str, *, batch_bytes: int) -> TypedDecoder:
        return TypedDecoder(topic, batch_bytes=batch_bytes, **self._decoding)  # type: ignore[arg-type]

    def __str__(self) -> str:
        names = ", ".join(_shown(topic) for topic in as_list(self._topics))
        return names + (f", group {self.settings.member.group!r}" if self.settings.member else "")


def _shown(topic: str | re.Pattern[str]) -> str:
    return f"/{topic.pattern}/" if isinstance(topic, re.Pattern) else repr(topic)
