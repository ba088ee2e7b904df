"""One group as the coordinator knows it, and what a driver drives: members by either protocol, and offsets.

A driver keeps a Group per group id for each partition of `__consumer_offsets` that its node leads: it makes
one at the first record or request of that id, and may drop it when `is_gone`. Records go to the part they
belong to; transaction markers to every group of the partition. Each part says in its own head what it does.

Which protocol: whoever has members. An empty group of one protocol is deleted by the first member of the
other. Gap: members of both protocols in one group (online upgrade and downgrade); a member of the other
protocol is refused with INCONSISTENT_GROUP_PROTOCOL (JoinGroup) or GROUP_ID_NOT_FOUND (heartbeat), which is
what Kafka answers under group.consumer.migration.policy=disabled.
Read next: group_classic.py, group_consumer.py, offsets.py, machine.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import ApiError
from headrace.machines.classic_membership import GROUP_TYPE as CLASSIC
from headrace.machines.classic_rebalance import ClassicGroupSettings
from headrace.machines.consumer_checks import check_request
from headrace.machines.consumer_events import (
    ConfigChanged,
    ConsumerGroupConfig,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    MetadataChanged,
    RegexResolved,
)
from headrace.machines.consumer_member import JOIN_EPOCH
from headrace.machines.consumer_protocol import PROTOCOL_TYPE
from headrace.machines.group_classic import ClassicGroup
from headrace.machines.group_consumer import ConsumerGroup
from headrace.machines.group_events import (
    NO_MEMBER_ID,
    DeleteGroup,
    ErrorReply,
    GroupDescription,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RetentionCheck,
    TopicsDeleted,
)
from headrace.machines.group_records import (
    CommittedOffset,
    GroupMetadataRecord,
    OffsetCommitRecord,
    TransactionMarkerRecord,
)
from headrace.machines.machine import BaseMachine, Event, Loaded, Record, ReplyToken, Step, TimerFired
from headrace.machines.offsets import Membership, Offsets, OffsetsSettings, PartitionCheck
from headrace.types import ClusterView
from headrace.wire.error_codes import ErrorCode

CONSUMER = "Consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    classic: ClassicGroupSettings = field(default_factory=ClassicGroupSettings)
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    offsets: OffsetsSettings = field(default_factory=OffsetsSettings)


class ConsumerMembership:
    """What offsets may know of a KIP-848 group (offsets.Membership)."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    @property
    def exists(self) -> bool:
        return self._group.state.exists

    def check_offset_commit(self, commit: OffsetCommit) -> PartitionCheck | None:
        return self._group.check_offset_commit(commit)

    def committed(self, step: Step, commit: OffsetCommit) -> None:
        """No sign of life: KIP-848 members have heartbeats for that."""

    def check_offset_fetch(self, fetch: OffsetFetch) -> None:
        self._group.check_offset_fetch(fetch)

    def check_offset_delete(self) -> None:
        """Topics that are subscribed to are refused one by one."""

    def subscribes_to(self, topic: str) -> bool:
        return self._group.subscribes_to(topic)

    def retention_starts(self, committed: CommittedOffset) -> int | None:
        """No record says when such a group became empty."""
        return committed.commit_timestamp


class Group(BaseMachine):
    def __init__(self, group_id: str, settings: GroupSettings, view: ClusterView) -> None:
        super().__init__()
        self.group_id = group_id
        self._settings = settings
        self._view = view
        self.classic = ClassicGroup(group_id, settings.classic)
        self.offsets = Offsets(group_id, settings.offsets)
        self._consumer: ConsumerGroup | None = None

    @property
    def consumer(self) -> ConsumerGroup:
        if self._consumer is None:
            self._consumer = ConsumerGroup(self.group_id, config=self._settings.consumer, view=self._view)
        return self._consumer

    @property
    def _is_consumer_group(self) -> bool:
        return self._consumer is not None and self._consumer.state.exists

    @property
    def membership(self) -> Membership:
        if self._is_consumer_group:
            return ConsumerMembership(self.consumer)
        return self.classic.membership

    @property
    def is_gone(self) -> bool:
        """Nothing is left that a new Group would not have."""
        return not self.membership.exists and not self.offsets.exist

    # What a driver needs.

    def apply(self, record: Record) -> None:
        match record:
            case OffsetCommitRecord() | TransactionMarkerRecord():
                self.offsets.apply(record)
            case GroupMetadataRecord():
                self.classic.apply(record)
            case _:
                self.consumer.apply(record)

    def snapshot(self) -> Any:
        consumer = self.consumer.snapshot() if self._is_consumer_group else None
        return self.classic.snapshot(), consumer, self.offsets.snapshot()

    def open_tokens(self) -> Iterable[ReplyToken]:
        return self.classic.open_tokens()

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case Heartbeat():  # by far the most frequent
                self.classic.decide(event, step)
            case OffsetCommit() | OffsetFetch() | OffsetDelete():
                self.offsets.decide(event, step, self.membership)
            case JoinGroup():
                self._join(event, step)
            case ConsumerGroupHeartbeat():
                self._consumer_heartbeat(event, step)
            case TimerFired() | Loaded():
                self._tell_both(event, step)
            case MetadataChanged() | RegexResolved() | ConfigChanged():
                self._surroundings(event, step)
            case DeleteGroup():
                step.reply(event.token, ErrorReply(error=self._delete(step)))
            case TopicsDeleted():
                self.offsets.delete_topics(event.topics, step)
            case RetentionCheck():
                if self.offsets.expire(step, self.membership):
                    self._delete_members_part(step)
            case _:
                self.classic.decide(event, step)

    def _tell_both(self, event: Event, step: Step) -> None:
        self.classic.decide(event, step)
        if self._consumer is not None:
            self._consumer.decide(event, step)

    def _surroundings(self, event: Event, step: Step) -> None:
        if isinstance(event, MetadataChanged):
            self._view = event.view
        if self._consumer is not None:
            self._consumer.decide(event, step)

    def _join(self, event: JoinGroup, step: Step) -> None:
        newcomer = event.member_id == NO_MEMBER_ID
        if self._is_consumer_group and newcomer and self.consumer.delete(step) is not ErrorCode.none:
            inconsistent = ErrorCode.inconsistent_group_protocol
            step.reply(event.token, JoinGroupReply(member_id=NO_MEMBER_ID, error=inconsistent))
        else:
            self.classic.decide(event, step)

    def _consumer_heartbeat(self, event: ConsumerGroupHeartbeat, step: Step) -> None:
        if self.classic.membership.exists and not self._make_way(event, step):
            message = f"Group {self.group_id} is not a consumer group."
            reply = ConsumerGroupHeartbeatReply(error=ErrorCode.group_id_not_found, error_message=message)
            step.reply(event.token, reply)
        else:
            self.consumer.decide(event, step)

    def _make_way(self, event: ConsumerGroupHeartbeat, step: Step) -> bool:
        """An empty classic group ends when a member joins by the other protocol; else nothing is changed."""
        try:
            check_request(event, self._settings.consumer)
        except ApiError:
            return True  # will be refused for what it is
        return event.member_epoch == JOIN_EPOCH and self.classic.delete(step) is ErrorCode.none

    def _delete(self, step: Step) -> ErrorCode:
        if self.is_gone:
            return ErrorCode.group_id_not_found
        error = self._delete_members_part(step) if self.membership.exists else ErrorCode.none
        if error is ErrorCode.none:
            self.offsets.delete_all(step)
        return error

    def _delete_members_part(self, step: Step) -> ErrorCode:
        part = self.consumer if self._is_consumer_group else self.classic
        return part.delete(step)

    # Reading.

    def describe(self) -> GroupDescription:
        """For ListGroups and DescribeGroups; a group that has offsets and never had members is Empty."""
        if self._is_consumer_group:
            return GroupDescription(
                group_id=self.group_id,
                state=self.consumer.state.state,
                group_type=CONSUMER,
                protocol_type=PROTOCOL_TYPE,
                protocol="",
                members=(),
            )
        description = self.classic.membership.describe()
        if self.classic.membership.exists or not self.offsets.exist:
            return description
        return GroupDescription(
            group_id=self.group_id,
            state="Empty",
            group_type=CLASSIC,
            protocol_type="",
            protocol="",
            members=(),
        )

    def describe_consumer_group(self) -> ConsumerGroupDescription | None:
        """For ConsumerGroupDescribe; None: not a KIP-848 group."""
        return self.consumer.describe() if self._is_consumer_group else None
