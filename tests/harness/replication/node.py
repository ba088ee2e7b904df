# SPDX-License-Identifier: Apache-2.0
"""A node of the replication model: one log in memory, which remembers what was synced, and one role.

Decides nothing. Read next: model.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from headrace.log.epochs import EpochHistory
from headrace.machines.replication.follower import FetchFrom, Follower
from headrace.machines.replication.leader import IsrProposal, Leader


class Violation(AssertionError):
    """A promise was broken; the message says which, the seed shows how."""


class ModelLog:
    def __init__(self) -> None:
        self.values: list[tuple[int, str]] = []
        self.synced = 0
        self.epochs = EpochHistory(cast(Any, None), Path("unused"))

    @property
    def end(self) -> int:
        return len(self.values)

    def append(self, epoch: int, value: str) -> None:
        self.epochs.assign(epoch, self.end)
        self.values.append((epoch, value))

    def truncate(self, end: int) -> None:
        del self.values[end:]
        self.synced = min(self.synced, end)
        self.epochs.truncate_from_end(end)

    def value_at(self, offset: int) -> str | None:
        return self.values[offset][1] if offset < self.end else None


@dataclass(slots=True, kw_only=True)
class ModelNode:
    node_id: int
    log: ModelLog = field(default_factory=ModelLog)
    alive: bool = True
    epoch: int = 0
    lost_power: bool = False
    paused: bool = False
    checkpoint: int = 0
    shown: int = 0
    """The high watermark that readers of this role have seen."""
    role: Leader | Follower | None = None
    waiting: list[tuple[int, str]] = field(default_factory=list)
    proposed: IsrProposal | None = None
    asked: FetchFrom | None = None

    @property
    def high_watermark(self) -> int:
        return self.checkpoint if self.role is None else self.role.high_watermark

    def drop_role(self) -> None:
        self.checkpoint = max(self.checkpoint, min(self.high_watermark, self.log.end))
        self.forget_role()

    def forget_role(self) -> None:
        self.role = None
        self.shown = 0
        self.waiting.clear()
        self.proposed = None
        self.asked = None
