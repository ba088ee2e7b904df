# SPDX-License-Identifier: Apache-2.0
"""What members of both protocols share: settings, context, and the interfaces of members and listeners.

Read next: classic.py and kip848.py (the two protocols), ../coordinator.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from headrace.client.coordinator import Coordinator
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.membership.topic_watch import TopicWatch
from headrace.types import TopicPartition

NO_GENERATION = -1
LEAVE_WITHIN_MS = 2_000
Partitions = frozenset[TopicPartition]
ProtocolName = Literal["classic", "consumer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    group: str
    protocol: ProtocolName | None = None
    """None: "consumer" (KIP-848) where the broker has it."""
    assignor: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    """Session and heartbeat of the classic protocol: in KIP-848 the broker sets them."""
    max_pause_ms: int = 300_000
    timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if not self.group:
            raise ClientError(
                "the group has no name", next_step="name it, or leave it out to read without one"
            )
        if self.protocol not in (None, "classic", "consumer"):
            raise ClientError(
                f"{self.protocol!r} is not a group protocol", next_step='use "classic" or "consumer"'
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ClientError(
                f"heartbeats every {self.heartbeat_interval_ms} ms are too rare for a session of "
                f"{self.session_timeout_ms} ms",
                next_step="make heartbeat_interval_ms a third of session_timeout_ms",
            )


class RebalanceListener(Protocol):
    """Reads the assigned partitions. A member calls it from its event loop, one call at a time."""

    async def assigned(self, partitions: Partitions) -> None:
        """The member owns these partitions from now on."""

    async def revoked(self, partitions: Partitions, *, lost: bool) -> None:
        """Returns when they are released. `lost`: others may own them already, nothing is committed."""

    def ms_since_poll(self) -> float:
        """How long ago the reader last polled; 0 while it polls."""

    async def wait_for_poll(self) -> None:
        """Returns when the reader polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberContext:
    """The coordinator, the subscription, the reader and the settings of a member of either protocol."""

    coordinator: Coordinator
    watch: TopicWatch
    listener: RebalanceListener
    settings: MemberSettings

    def metadata(self, *, member_id: str, generation: int) -> GroupMetadata:
        return GroupMetadata(
            group=self.settings.group,
            generation=generation,
            member_id=member_id,
            instance_id=self.settings.instance_id,
        )

    @property
    def reader_is_late(self) -> bool:
        """Whether the reader has not polled for max_pause_ms, so that the member must leave the group."""
        return self.listener.ms_since_poll() > self.settings.max_pause_ms


class Member(Protocol):
    async def run(self) -> None:
        """Joins and stays until cancelled. Raises ClientError when the group refuses the member."""

    async def leave(self) -> None:
        """After `run` has ended. Static members of classic groups stay registered."""

    @property
    def metadata(self) -> GroupMetadata: ...


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found
