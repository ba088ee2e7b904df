# SPDX-License-Identifier: Apache-2.0
"""State of a classic group: members, leader, generation and protocol.

The durable part is the GroupMetadata record; `load` applies it, live and on start (R33). Everything else
(pending requests and members) is lost with the coordinator. Decisions are made in classic/group.py.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.machines.groups.events import JoinedMember, JoinProtocol
from headrace.machines.machine import ReplyToken
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from headrace.wire.coordinator.group_records import NO_TIMESTAMP, GroupMetadata, MemberMetadata
from headrace.wire.error_codes import ErrorCode


class GroupState(enum.Enum):
    """Kafka's names. Dead: there is no such group (any more)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """In no generation yet: it sends no heartbeats, and a pending request does not extend its session."""
    joined_bytes: int = field(init=False)
    """What it supplied when it joined."""
    protocol_names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.supports(self.protocols)

    def supports(self, protocols: tuple[JoinProtocol, ...]) -> None:
        """Of a member of a group, called by its ClassicState."""
        self.protocols = protocols
        self.joined_bytes = supplied_bytes(protocols, self.member_id, self.instance_id, self.client_id)
        self.protocol_names = tuple([protocol.name for protocol in protocols])

    def metadata(self, protocol: str | None) -> bytes | None:
        for found in self.protocols:
            if found.name == protocol:
                return found.metadata
        return None

    def is_that_of(self, record: MemberMetadata) -> bool:
        """Whether the record says the same of it, but for protocols and assignment."""
        return (
            self.instance_id == record.group_instance_id
            and self.client_id == record.client_id
            and self.client_host == record.client_host
            and self.rebalance_timeout_ms == record.rebalance_timeout_ms
            and self.session_timeout_ms == record.session_timeout_ms
        )


def supplied_bytes(protocols: Iterable[JoinProtocol], *texts: str | None) -> int:
    """Memory that a member's request takes, as far as the member decides it."""
    return sum([len(text) for text in texts if text]) + sum(
        [len(protocol.name) + len(protocol.metadata) for protocol in protocols]
    )


class ClassicState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.DEAD
        self.previous = GroupState.DEAD
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state_timestamp = NO_TIMESTAMP
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Static members: group instance id to member id."""
        self.subscribed: frozenset[str] | None = None
        """Topics of the generation; None: not a consumer group, or not known."""
        self.recorded: GroupMetadata | None = None
        """The last record: the durable state."""
        self.join_tokens: dict[str, ReplyToken] = {}
        self.sync_tokens: dict[str, ReplyToken] = {}
        self.pending: set[str] = set()
        """Pending member ids that have not joined yet (KIP-394)."""
        self.unsynced: set[str] = set()
        """Members of the generation that have yet to send SyncGroup."""
        # Kept up to date, since every JoinGroup asks, and a group may have thousands of members:
        self._supplied_bytes = 0
        """What all members have joined with, and their assignments."""
        self._protocol_lists: Counter[tuple[str, ...]] = Counter()
        """How many members have which list: of fifty members, nearly always one."""

    def load(self, value: GroupMetadata | None) -> None:
        """Apply a record. Pending requests remain; members missing from the record are removed."""
        self.recorded = value
        if value is None:
            self._forget()
            return
        known = self.members
        self.members = {member.member_id: _member_of(member, value, known) for member in value.members}
        self._count_all()
        self.instances = {
            m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None
        }
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader or next(iter(self.members), None)
        self.move_to(GroupState.STABLE if value.members else GroupState.EMPTY, value.current_state_timestamp)
        self.subscribed = self._subscribed_topics()

    def _forget(self) -> None:
        self.members, self.instances = {}, {}
        self._count_all()
        self.generation = 0
        self.protocol_type = self.protocol = self.leader = self.subscribed = None
        self.move_to(GroupState.DEAD, NO_TIMESTAMP)

    def record(self, wall_ms: int, assignments: Mapping[str, bytes] | None = None) -> GroupMetadata:
        """The present members as a record, with these assignments or with those they have."""
        if assignments is None:
            assignments = {member.member_id: member.assignment for member in self.members.values()}
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=wall_ms,
            members=tuple(
                self._member_record(member, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    def _member_record(self, member: Member, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(self.protocol) or b"",
            assignment=assignment,
        )

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        self.previous, self.state, self.state_timestamp = self.state, state, wall_ms

    def bytes_without(self, member_id: str) -> int:
        """What the other members have supplied, and the assignments."""
        member = self.members.get(member_id)
        own = 0 if member is None else member.joined_bytes + len(member.assignment)
        return self._supplied_bytes - own + sum(map(len, self.pending))

    def _count(self, member: Member, sign: int) -> None:
        self._supplied_bytes += sign * (member.joined_bytes + len(member.assignment))
        self._protocol_lists[member.protocol_names] += sign
        if not self._protocol_lists[member.protocol_names]:
            del self._protocol_lists[member.protocol_names]

    def _count_all(self) -> None:
        members = self.members.values()
        self._supplied_bytes = sum([member.joined_bytes + len(member.assignment) for member in members])
        self._protocol_lists = self._lists_in_order()

    def _lists_in_order(self) -> Counter[tuple[str, ...]]:
        return Counter([member.protocol_names for member in self.members.values()])

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return len(self.join_tokens) == len(self.members) and not self.pending

    @property
    def can_rebalance(self) -> bool:
        return self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id
            if holder != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def supports(self, protocol_type: str, protocols: Iterable[JoinProtocol]) -> bool:
        """Whether these protocols and those of the members have one in common."""
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            return bool(protocol_type) and any(True for _ in protocols)
        if protocol_type != self.protocol_type:
            return False
        wanted = {found.name for found in protocols}
        return bool(wanted.intersection(*self._protocol_lists))

    def select_protocol(self) -> str | None:
        """Each member votes for the first of its protocols that all support; most votes win, then order."""
        lists = self._lists_in_order()
        common = set.intersection(*map(set, lists)) if lists else set()
        votes: Counter[str | None] = Counter()
        for names, voters in lists.items():
            votes[next((name for name in names if name in common), None)] += voters
        return max(votes, key=lambda name: votes[name], default=None)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member, +1)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove and return the member; the caller completes its pending requests."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        return member

    def supply(self, member: Member, protocols: tuple[JoinProtocol, ...]) -> None:
        """The member joins again with these protocols."""
        self._count(member, -1)
        member.supports(protocols)
        self._count(member, +1)

    def clear_assignments(self) -> None:
        for member in self.members.values():
            self._supplied_bytes -= len(member.assignment)
            member.assignment = b""

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """The same member under a new id."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {found.member_id: found for found in self.members.values()}
        if member.instance_id is not None:
            self.instances[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        return member

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else choose a member that has; False when there is none."""
        if self.leader is None:
            return False
        if self.leader not in self.join_tokens:
            joined = next((member_id for member_id in self.members if member_id in self.join_tokens), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def begin_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed = self._subscribed_topics()
        self.unsynced.clear()
        state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.move_to(state, wall_ms)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol) or b"")
            for member in self.members.values()
        )

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol) or b"")
            if found is None:
                return None
            topics |= found
        return frozenset(topics)


def _member_of(record: MemberMetadata, group: GroupMetadata, known: dict[str, Member]) -> Member:
    protocol = JoinProtocol(group.protocol or "", record.subscription)
    before = known.get(record.member_id)
    # A record has only the chosen protocol; a live member keeps its others, too.
    keeps_protocols = before is not None and protocol in before.protocols
    if before is not None and keeps_protocols and before.is_that_of(record):
        before.assignment, before.is_new = record.assignment, False
        return before
    return Member(
        member_id=record.member_id,
        instance_id=record.group_instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        session_timeout_ms=record.session_timeout_ms,
        protocols=before.protocols if before is not None and keeps_protocols else (protocol,),
        assignment=record.assignment,
    )
