"""Compaction of one log: keeps the last record of each key (R29, R29b)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """File names and limits for the worker process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What the worker wrote."""


def compact(plan: CompactionPlan) -> CompactionResult:
    raise NotImplementedError
