# SPDX-License-Identifier: Apache-2.0
"""Incremental fetch sessions (KIP-227): the partitions a client reads, so that messages carry only changes.

Pure book-keeping without partitions and sockets. Read next: handlers/fetch.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from uuid import UUID

from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.fetch import FetchPartition, FetchRequest, FetchResult

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
_KEEP_IDLE_S = 120.0
"""A session that was used within this time is not evicted for another."""
MOST_ENTRIES = 300_000
"""Of all sessions together; beyond them clients get no session and send full requests."""

TopicKey = str | UUID


@dataclass(slots=True, eq=False)
class FetchEntry:
    """A partition that a client reads, and the offsets that the last reply contained."""

    name: str | None
    topic_id: UUID | None
    partition: FetchPartition
    sent_high_watermark: int = -1
    log_start_offset: int = -1

    @property
    def topic_key(self) -> TopicKey | None:
        return self.name if self.topic_id is None else self.topic_id


class FetchSession:
    def __init__(self, session_id: int, entries: Iterable[FetchEntry], by_id: bool, now: float) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.by_id = by_id
        self.used_at = now
        self._entries = {(entry.topic_key, entry.partition.index): entry for entry in entries}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[FetchEntry]:
        return list(self._entries.values())

    def update(self, request: FetchRequest) -> None:
        for name, topic_id, indexes in request.forgotten:
            for index in indexes:
                self._entries.pop((name if topic_id is None else topic_id, index), None)
        for entry in entries_of(request):
            known = self._entries.setdefault((entry.topic_key, entry.partition.index), entry)
            known.partition = entry.partition

    def note_result(self, entry: FetchEntry, result: FetchResult) -> bool:
        """Remembers what the reply contains; whether it differs from the last one."""
        changed = (
            result.size > 0
            or result.error_code != 0
            or result.diverging is not None
            or result.high_watermark != entry.sent_high_watermark
            or result.log_start_offset != entry.log_start_offset
        )
        entry.sent_high_watermark = result.high_watermark
        entry.log_start_offset = result.log_start_offset
        if result.size:
            self._move_to_end(entry)
        return changed

    def _move_to_end(self, entry: FetchEntry) -> None:
        """A partition that got data goes last, so that a small max_bytes starves no other."""
        key = (entry.topic_key, entry.partition.index)
        if key in self._entries:
            self._entries[key] = self._entries.pop(key)


@dataclass(slots=True, eq=False)
class FetchPlan:
    """What one request reads, and whether its reply contains only changes."""

    entries: list[FetchEntry]
    session: FetchSession | None
    session_id: int
    incremental: bool


def entries_of(request: FetchRequest) -> list[FetchEntry]:
    return [
        FetchEntry(topic.name, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


class FetchSessions:
    def __init__(self, random: Random, slots: int) -> None:
        self._random = random
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._entry_count = 0

    def plan(self, request: FetchRequest, *, by_id: bool, now: float) -> FetchPlan:
        """Raises ApiError when the request continues a session that is unknown or is at another epoch."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._forget(request.session_id)
            entries = entries_of(request)
            session, session_id = None, NO_SESSION
            if request.session_epoch == INITIAL_EPOCH and entries:
                session = self._create(entries, by_id, now)
            if session is not None:
                session_id = session.session_id
            return FetchPlan(entries, session, session_id, incremental=False)
        return self._continue(request, by_id, now)

    def _continue(self, request: FetchRequest, by_id: bool, now: float) -> FetchPlan:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.fetch_session_id_not_found)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.fetch_session_topic_id_error)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.invalid_fetch_session_epoch)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.used_at = now
        self._forget(session.session_id)
        session.update(request)
        if self._entry_count + len(session) > MOST_ENTRIES:
            raise ApiError(ErrorCode.fetch_session_id_not_found)
        self._keep(session)
        return FetchPlan(session.entries, session, session.session_id, incremental=True)

    def _create(self, entries: list[FetchEntry], by_id: bool, now: float) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(now):
            return None
        if self._entry_count + len(entries) > MOST_ENTRIES:
            return None
        session_id = self._random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = self._random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, entries, by_id, now)
        self._keep(session)
        return session

    def _keep(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self._entry_count += len(session)

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._entry_count -= len(session)

    def _evict(self, now: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now - oldest.used_at < _KEEP_IDLE_S:
            return False
        self._forget(oldest.session_id)
        return True
