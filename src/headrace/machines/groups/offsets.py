# SPDX-License-Identifier: Apache-2.0
"""Committed offsets of one group: commit, fetch, delete, expire.

A part of a group (group.py), which says who may commit and what is subscribed to (`Membership`). Lasting
state is the fold of OffsetCommit records and transaction markers, live and at load (R33). Offsets of a
transaction under way wait beside the others for its marker. Of several commits of a partition the one whose
record is the last in the log wins, whenever their markers come: compaction keeps that one. Retention counts
from when the group became empty, or from the commit where nobody is a member. Whether a producer may commit
at all (its epoch, its transaction) is checked before the step, by who drives the group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from headrace.errors import ApiError
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
)
from headrace.machines.machine import Step
from headrace.types import NO_TOPIC_ID, TopicId
from headrace.wire.coordinator.commit_records import CommitPartitions, OffsetCommitsRecord
from headrace.wire.coordinator.group_records import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetCommitRecord,
    TransactionMarkerRecord,
)
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode

COMMIT_LINE_INTERVAL_MS = 1_000
_OFFSETS_LOGGED = 20
"""At most one commit event per member in this time."""
_LAST_MS = 2**63 - 1
"""The last moment that a record can say."""

PartitionCheck = Callable[[str, TopicId, int], None]
"""(topic, its id, partition) of one offset to commit; raises ApiError for the whole request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSettings:
    """Kafka's offset.metadata.max.bytes and offsets.retention.minutes."""

    metadata_max_bytes: int = 4_096
    retention_ms: int = 7 * 24 * 3_600_000


class Membership(Protocol):
    """What offsets need to know about their group; checks raise ApiError."""

    @property
    def exists(self) -> bool: ...

    def check_offset_commit(self, commit: OffsetCommit) -> PartitionCheck | None:
        """None: every partition may be committed; else each has to pass what is returned."""

    def committed(self, step: Step, commit: OffsetCommit) -> None:
        """Called for every accepted commit."""

    def check_offset_fetch(self, fetch: OffsetFetch) -> None: ...

    def check_offset_delete(self) -> None: ...

    def subscribes_to(self, topic: str) -> bool: ...

    def retention_starts(self, committed: CommittedOffset) -> int | None:
        """When an offset's retention starts; None: it does not expire."""


class Offsets:
    def __init__(self, group_id: str, settings: OffsetsSettings | None = None) -> None:
        self._group_id = group_id
        self._settings = settings or OffsetsSettings()
        self._committed: dict[str, dict[int, tuple[Any, ...]]] = {}
        """The fields of a CommittedOffset, which is made when somebody asks."""
        self._pending: dict[tuple[str, int], dict[int, CommittedOffset | None]] = {}
        """Offsets of open transactions, by topic and partition, then by producer id in the order of their
        records. None: something newer was committed meanwhile, the marker changes nothing."""
        self._by_producer: dict[int, dict[tuple[str, int], None]] = {}
        """Partitions with pending offsets, by producer id; in order, so that all nodes list them alike."""
        self._logged_at: dict[str, int] = {}

    # Durable state.

    def apply(self, record: CoordinatorRecord) -> None:
        if isinstance(record, OffsetCommitsRecord):
            self._apply_commit(record)
        elif isinstance(record, OffsetCommitRecord):
            if record.value is None:
                self._remove(record.topic, record.partition)
            elif record.producer_id == NO_PRODUCER_ID:
                if self._pending:
                    self._supersede(record.topic, record.partition)
                self._committed.setdefault(record.topic, {})[record.partition] = record.value
            else:
                self._add_pending(record.producer_id, (record.topic, record.partition), record.value)
        elif isinstance(record, TransactionMarkerRecord):
            self._end_transaction(record)

    def _apply_commit(self, record: OffsetCommitsRecord) -> None:
        if record.producer_id != NO_PRODUCER_ID:
            for each in record.each():
                self.apply(each)
            return
        values = record.values()
        for topic, partitions in record.partitions.by_topic:
            if self._pending:
                for partition in partitions:
                    self._supersede(topic, partition)
            # Partitions first: `zip` takes one more of them, and the next topic's value must not be lost.
            self._committed.setdefault(topic, {}).update(zip(partitions, values, strict=False))

    def _remove(self, topic: str, partition: int) -> None:
        partitions = self._committed.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            self._committed.pop(topic, None)
        for producer_id in list(self._pending.get((topic, partition), ())):
            self._remove_pending(producer_id, (topic, partition))

    def _add_pending(self, producer_id: int, where: tuple[str, int], value: CommittedOffset) -> None:
        pending = self._pending.setdefault(where, {})
        pending.pop(producer_id, None)  # the newest record is the last
        pending[producer_id] = value
        self._by_producer.setdefault(producer_id, {})[where] = None

    def _remove_pending(self, producer_id: int, where: tuple[str, int]) -> None:
        del self._pending[where][producer_id], self._by_producer[producer_id][where]
        if not self._pending[where]:
            del self._pending[where]
        if not self._by_producer[producer_id]:
            del self._by_producer[producer_id]

    def _supersede(self, topic: str, partition: int) -> None:
        pending = self._pending.get((topic, partition))
        if pending:
            self._pending[topic, partition] = dict.fromkeys(pending)

    def _end_transaction(self, marker: TransactionMarkerRecord) -> None:
        for where in list(self._by_producer.get(marker.producer_id, ())):
            value = self._pending[where][marker.producer_id]
            if marker.committed and value is not None:
                self._commit_pending(marker.producer_id, where, value)
            self._remove_pending(marker.producer_id, where)

    def _commit_pending(self, producer_id: int, where: tuple[str, int], value: CommittedOffset) -> None:
        pending = self._pending[where]
        for earlier in pending:
            if earlier == producer_id:
                break
            pending[earlier] = None
        topic, partition = where
        self._committed.setdefault(topic, {})[partition] = value

    def snapshot(self) -> Any:
        return (
            {topic: dict(partitions) for topic, partitions in self._committed.items()},
            {where: tuple(pending.items()) for where, pending in self._pending.items()},
        )

    @property
    def exist(self) -> bool:
        """Whether there are committed or pending offsets."""
        return bool(self._committed or self._pending)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        found = self._committed.get(topic, {}).get(partition)
        return None if found is None else CommittedOffset._make(found)

    def all(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        make = CommittedOffset._make
        for topic, partitions in self._committed.items():
            for partition, value in partitions.items():
                yield topic, partition, make(value)

    def _unstable(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._pending

    def concern(self, topics: Collection[str]) -> bool:
        """Whether any of them has committed or pending offsets."""
        return any(topic in topics for topic in self._committed) or any(
            topic in topics for topic, _ in self._pending
        )

    # Requests.

    def decide(
        self,
        event: OffsetCommit | OffsetFetch | OffsetDelete,
        step: Step,
        membership: Membership,
    ) -> None:
        match event:
            case OffsetCommit():
                self._commit(event, step, membership)
            case OffsetFetch():
                self._fetch(event, step, membership)
            case OffsetDelete():
                self._delete(event, step, membership)

    def _commit(self, event: OffsetCommit, step: Step, membership: Membership) -> None:
        partitions = event.partitions
        try:
            check = self._check_commit(event, membership)
            if check is not None:
                for (topic, partition), topic_id in zip(partitions.names, partitions.topic_ids, strict=True):
                    check(topic, topic_id, partition)
        except ApiError as refused:
            step.reply(event.token, OffsetCommitReply(error=_told_to(event, refused.code)))
            return
        membership.committed(step, event)
        longest = self._settings.metadata_max_bytes
        if partitions.has_metadata and any(_java_length(text) > longest for text in partitions.metadata):
            errors = self._commit_some(event, step, longest)
        else:
            errors = partitions.no_errors
            if errors:
                self._emit_commit(event, partitions, event.offsets, event.leader_epochs, step)
        step.reply(event.token, OffsetCommitReply(errors=errors))
        self._log_commit(event, errors, step, membership)

    def _commit_some(self, event: OffsetCommit, step: Step, longest: int) -> tuple[ErrorCode, ...]:
        """Commit without the partitions whose metadata is too long."""
        metadata = event.partitions.metadata
        places = [place for place, text in enumerate(metadata) if _java_length(text) <= longest]
        if places:
            offsets = tuple(event.offsets[place] for place in places)
            epochs = tuple(event.leader_epochs[place] for place in places)
            self._emit_commit(event, event.partitions.subset(places), offsets, epochs, step)
        return tuple(
            ErrorCode.offset_metadata_too_large if _java_length(text) > longest else ErrorCode.none
            for text in metadata
        )

    def _emit_commit(
        self,
        event: OffsetCommit,
        partitions: CommitPartitions,
        offsets: tuple[int, ...],
        leader_epochs: tuple[int, ...],
        step: Step,
    ) -> None:
        now_ms, retention_ms = step.now.wall_ms, event.retention_ms
        expires = NO_TIMESTAMP if retention_ms == -1 else min(now_ms + retention_ms, _LAST_MS)
        step.emit(
            OffsetCommitsRecord(
                self._group_id,
                partitions,
                offsets,
                leader_epochs,
                now_ms,
                expires,
                event.producer_id,
                event.producer_epoch,
            )
        )

    def _check_commit(self, event: OffsetCommit, membership: Membership) -> PartitionCheck | None:
        if membership.exists or self.exist or event.generation < 0:
            return membership.check_offset_commit(event)
        known_to_client = event.version >= 9 and not event.transactional
        raise ApiError(ErrorCode.group_id_not_found if known_to_client else ErrorCode.illegal_generation)

    def _log_commit(
        self, event: OffsetCommit, errors: tuple[ErrorCode, ...], step: Step, membership: Membership
    ) -> None:
        if event.member_id == NO_MEMBER_ID and membership.exists and not event.transactional:
            offsets = _logged_offsets(event, errors)
            step.log_event("offsets_reset", partitions=len(event.offsets), offsets=offsets)
            return
        now_ms = step.now.monotonic_ms
        last_ms = self._logged_at.get(event.member_id)
        if last_ms is not None and now_ms - last_ms < COMMIT_LINE_INTERVAL_MS:
            return
        recent = now_ms - COMMIT_LINE_INTERVAL_MS
        self._logged_at = {member: at_ms for member, at_ms in self._logged_at.items() if at_ms > recent}
        self._logged_at[event.member_id] = now_ms
        step.log_event(
            "commit",
            member_id=event.member_id,
            partitions=len(event.offsets),
            offsets=_logged_offsets(event, errors),
        )

    def _fetch(self, event: OffsetFetch, step: Step, membership: Membership) -> None:
        try:
            if membership.exists:
                membership.check_offset_fetch(event)
        except ApiError as refused:
            step.reply(event.token, OffsetFetchReply(error=refused.code))
            return
        wanted = event.partitions
        if wanted is None:
            wanted = tuple((topic, partition) for topic, partition, _ in self.all())
        found = tuple(self._fetch_one(topic, partition, event) for topic, partition in wanted)
        step.reply(event.token, OffsetFetchReply(offsets=found))

    def _fetch_one(self, topic: str, partition: int, event: OffsetFetch) -> FetchedOffset:
        if event.require_stable and self._unstable(topic, partition):
            return FetchedOffset(topic, partition, None, ErrorCode.unstable_offset_commit)
        return FetchedOffset(topic, partition, self.get(topic, partition))

    def _delete(self, event: OffsetDelete, step: Step, membership: Membership) -> None:
        try:
            if not membership.exists and not self.exist:
                raise ApiError(ErrorCode.group_id_not_found)
            membership.check_offset_delete()
        except ApiError as refused:
            step.reply(event.token, OffsetDeleteReply(error=refused.code))
            return
        errors, deleted = [], 0
        for topic, partition in event.partitions:
            if membership.subscribes_to(topic):
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            errors.append(ErrorCode.none)
            if self.get(topic, partition) is not None or self._unstable(topic, partition):
                self._emit_tombstone(topic, partition, step)
                deleted += 1
        step.reply(event.token, OffsetDeleteReply(errors=tuple(errors)))
        if deleted:
            step.log_event("offsets_deleted", partitions=deleted, reason="asked for")

    # Removal of offsets without a request.

    def delete_all(self, step: Step) -> None:
        self._delete_where(step, lambda _topic, _value: True)

    def delete_topics(self, topics: Mapping[str, TopicId], step: Step) -> None:
        def is_gone(topic: str, value: CommittedOffset | None) -> bool:
            if topic not in topics or value is None:  # of a superseded one the newer offset decides
                return False
            return value.topic_id in (NO_TOPIC_ID, topics[topic])

        deleted = self._delete_where(step, is_gone)
        if deleted:
            step.log_event("offsets_deleted", partitions=deleted, reason="their topic was deleted")

    def _delete_where(self, step: Step, is_gone: Callable[[str, CommittedOffset | None], bool]) -> int:
        found = {(topic, partition) for topic, partition, value in self.all() if is_gone(topic, value)}
        for where, pending in self._pending.items():
            if any(is_gone(where[0], value) for value in pending.values()):
                found.add(where)
        for topic, partition in sorted(found):
            self._emit_tombstone(topic, partition, step)
        return len(found)

    def expire(self, step: Step, membership: Membership) -> bool:
        """Remove expired offsets; True when none remain."""
        expired = [
            (topic, partition)
            for topic, partition, value in self.all()
            if self._is_expired(topic, partition, value, step.now.wall_ms, membership)
        ]
        for topic, partition in expired:
            self._emit_tombstone(topic, partition, step)
        if expired:
            step.log_event("offsets_expired", partitions=len(expired))
        return not self.exist

    def _is_expired(
        self, topic: str, partition: int, value: CommittedOffset, wall_ms: int, membership: Membership
    ) -> bool:
        starts = membership.retention_starts(value)
        if starts is None or membership.subscribes_to(topic) or self._unstable(topic, partition):
            return False
        if value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= value.expire_timestamp
        return wall_ms - starts >= self._settings.retention_ms

    def _emit_tombstone(self, topic: str, partition: int, step: Step) -> None:
        step.emit(OffsetCommitRecord(self._group_id, topic, partition, None))


def _told_to(event: OffsetCommit, error: ErrorCode) -> ErrorCode:
    """Transactional producers do not know member epochs (KIP-447)."""
    if event.transactional and error is ErrorCode.stale_member_epoch:
        return ErrorCode.illegal_generation
    return error


def _logged_offsets(event: OffsetCommit, errors: tuple[ErrorCode, ...]) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of the first partitions that were committed."""
    committed = (
        (*name, offset)
        for name, offset, error in zip(event.partitions.names, event.offsets, errors, strict=True)
        if error is ErrorCode.none
    )
    return list(islice(committed, _OFFSETS_LOGGED))


def _java_length(text: str) -> int:
    """UTF-16 units: what Apache Kafka counts, whatever the setting's name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
