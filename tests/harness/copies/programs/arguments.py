# SPDX-License-Identifier: Apache-2.0
"""What every copier is told, in this order, on its command line."""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class CopyArguments:
    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str
    partitions: str
    """Its own, for a client that cannot take part in a group exactly once: `0,2`."""
    timeout_ms: str
    """How long a transaction may be open."""
    size: str
    """Most records of one transaction."""

    def words(self) -> tuple[str, ...]:
        return astuple(self)

    @classmethod
    def given(cls) -> CopyArguments:
        return cls(*sys.argv[1:])

    @property
    def own_partitions(self) -> list[int]:
        return [int(number) for number in self.partitions.split(",")]
