# SPDX-License-Identifier: Apache-2.0
"""Events and replies exchanged between handlers and group state machines.

Events carry the request's version where Kafka's behaviour depends on it; replies are free of versions.
Both protocols share the classic requests, because a consumer group serves members that still speak them.
Nothing changes an event or a reply once it is made, but the token of a request that repeats; they are not
frozen, because a frozen dataclass takes twice the time to make, and most requests of a member make two.
Read next: classic/group.py, consumer/group.py, offsets.py, machines/machine.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.principal import ANONYMOUS, Principal
from headrace.types import NO_TOPIC_ID
from headrace.wire.coordinator.commit_records import CommitPartitions
from headrace.wire.coordinator.group_records import NO_EPOCH, NO_PRODUCER_ID, CommittedOffset
from headrace.wire.error_codes import ErrorCode

NO_TOKEN = ReplyToken(0)
"""Of an event that is not `numbered` yet."""
NO_MEMBER_ID = ""
NO_GENERATION = -1


class JoinProtocol(NamedTuple):
    """One assignor a member supports, with its opaque subscription."""

    name: str
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class GroupRequest(Event):
    """Base of every request that waits for a reply."""

    token: ReplyToken
    version: int

    def numbered(self, token: ReplyToken) -> Self:
        """This event, of the request with that token: a heartbeat that repeats needs no event of its own."""
        self.token = token
        return self


@dataclass(slots=True, kw_only=True)
class JoinGroup(GroupRequest):
    """`fresh_member_id`: an unused member id, in case the member needs one.

    Kafka's form is `<group instance id, else client id>-<uuid>`.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    fresh_member_id: str
    reason: str | None = None
    principal: Principal = ANONYMOUS

    @property
    def requires_known_member_id(self) -> bool:
        return self.version >= 4  # KIP-394

    @property
    def supports_skipping_assignment(self) -> bool:
        return self.version >= 9  # KIP-814

    @property
    def join_timeout_ms(self) -> int:
        """How long a rebalance may wait for this member; version 0 had one timeout for both."""
        return self.session_timeout_ms if self.version == 0 else self.rebalance_timeout_ms


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class JoinGroupReply(ReplyBody):
    """`members` is filled only for the leader."""

    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(slots=True, kw_only=True)
class SyncGroup(GroupRequest):
    """`protocol_type` and `protocol`: None before version 5, required since."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True, kw_only=True)
class SyncGroupReply(ReplyBody):
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Heartbeat(GroupRequest):
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(slots=True, kw_only=True)
class ErrorReply(ReplyBody):
    """The reply to requests with only an error code: Heartbeat, DeleteGroup."""

    error: ErrorCode = ErrorCode.none


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class LeaveGroup(GroupRequest):
    """Before version 3 a list of one member, whose error is the reply's error."""

    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(slots=True, kw_only=True)
class LeaveGroupReply(ReplyBody):
    members: tuple[LeftMember, ...] = ()
    error: ErrorCode = ErrorCode.none


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None
    topic_id: uuid.UUID = NO_TOPIC_ID


@dataclass(slots=True, kw_only=True)
class OffsetCommit(GroupRequest):
    """`generation` is the member epoch for KIP-848 members, −1 for a consumer without membership.

    `retention_ms` is -1 but for versions 2 to 4. A transactional commit (TxnOffsetCommit) has a producer id
    and epoch; its records are appended in a transactional batch of that producer.
    """

    partitions: CommitPartitions
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    generation: int = NO_GENERATION
    retention_ms: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    @classmethod
    def of(cls, offsets: Sequence[OffsetToCommit], **fields: Any) -> OffsetCommit:
        """From one value per partition."""
        return cls(
            partitions=CommitPartitions(
                (each.topic, each.partition, each.metadata, each.topic_id) for each in offsets
            ),
            offsets=tuple(each.offset for each in offsets),
            leader_epochs=tuple(each.leader_epoch for each in offsets),
            **fields,
        )

    @property
    def transactional(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


@dataclass(slots=True, kw_only=True)
class OffsetCommitReply(ReplyBody):
    """`errors` in the order of the request's offsets; `error` is set when the whole request is refused."""

    errors: tuple[ErrorCode, ...] = ()
    error: ErrorCode = ErrorCode.none


@dataclass(slots=True, kw_only=True)
class OffsetFetch(GroupRequest):
    """`partitions` None: all committed offsets. Members of KIP-848 groups set member id and epoch."""

    partitions: tuple[tuple[str, int], ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    """`committed` is None without a committed offset (replied as −1 without an error)."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.none


@dataclass(slots=True, kw_only=True)
class OffsetFetchReply(ReplyBody):
    offsets: tuple[FetchedOffset, ...] = ()
    error: ErrorCode = ErrorCode.none


@dataclass(slots=True, kw_only=True)
class OffsetDelete(GroupRequest):
    partitions: tuple[tuple[str, int], ...]


@dataclass(slots=True, kw_only=True)
class OffsetDeleteReply(ReplyBody):
    """`errors` in the order of the request's partitions."""

    errors: tuple[ErrorCode, ...] = ()
    error: ErrorCode = ErrorCode.none


@dataclass(slots=True, kw_only=True)
class DeleteGroup(GroupRequest):
    """The reply is an ErrorReply."""


@dataclass(slots=True, kw_only=True)
class TopicsDeleted(Event):
    """Topics (name and id) were deleted: their committed offsets are removed.

    Offsets committed since for a new topic of that name remain.
    """

    topics: Mapping[str, uuid.UUID]


@dataclass(slots=True, kw_only=True)
class RetentionCheck(Event):
    """Sent every offsets.retention.check.interval.ms: removes expired offsets, and empty groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """DescribeGroups and ListGroups; `state` and `group_type` in Kafka's spelling."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
