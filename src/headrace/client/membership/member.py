"""What a member of a group is told to do, and whom it tells what it was given. Plain data and one seam.

Read next: classic.py and modern.py (the two protocols), coordinator.py (whom they talk to).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.errors import ClientError
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
    """These two of the classic protocol: in KIP-848 the broker sets them."""
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


class Holder(Protocol):
    """Who reads the partitions. A member calls it in turn, never twice at a time, from its event loop."""

    async def assigned(self, partitions: Partitions) -> None:
        """These are the member's own from now on."""

    async def revoked(self, partitions: Partitions, *, lost: bool) -> None:
        """Returns when they are given up. Lost: others may have them already, so nothing is waited for."""

    def absent_ms(self) -> float:
        """How long the reader has not asked for more; 0 while it waits."""

    async def present(self) -> None:
        """Returns when the reader asks for more."""


class Member(Protocol):
    async def run(self) -> None:
        """Joins and stays until cancelled. Raises ClientError when the group will not have it."""

    async def leave(self) -> None:
        """After `run` has ended. Static members of classic groups stay, as they are meant to come back."""

    @property
    def metadata(self) -> GroupMetadata: ...


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found
