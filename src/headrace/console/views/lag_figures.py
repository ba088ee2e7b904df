# SPDX-License-Identifier: Apache-2.0
"""Lag, rates, trend and time to clear, of one partition and of several together. Pure arithmetic.

`clear_in` of partitions that share a consumer is a common one: it divides its time as it likes.
Read next: client/tools/lag.py, groups/groups.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.console.state.folding import find_partition
from headrace.console.state.group_folding import partition_lag
from headrace.console.state.model import GroupState, ProgressState, Snapshot
from headrace.console.views.view import Document
from headrace.types import TopicPartition

_STEADY = 0.05
"""Rates are measured over different times: a difference below this share is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagFigures:
    lag: int | None = None
    behind: int | None = None
    behind_at_least: bool = False
    behind_since: int | None = None
    rate_in: float | None = None
    rate_out: float | None = None

    @property
    def trend(self) -> str | None:
        """growing, shrinking, steady, none (no lag), or None where rates are not known yet."""
        if self.lag is None:
            return None
        if self.lag == 0:
            return "none"
        if self.rate_in is None or self.rate_out is None:
            return None
        closing = self.rate_out - self.rate_in
        if abs(closing) <= _STEADY * max(self.rate_in, self.rate_out):
            return "steady"
        return "shrinking" if closing > 0 else "growing"

    @property
    def clear_in(self) -> int | None:
        """Milliseconds until the lag is gone at these rates; None while it does not shrink."""
        if self.lag == 0:
            return 0
        if self.trend != "shrinking":
            return None
        return round((self.lag or 0) / ((self.rate_out or 0.0) - (self.rate_in or 0.0)) * 1000)

    def document(self) -> Document:
        return {
            "lag": self.lag,
            "behind": self.behind,
            "rate_in": rounded(self.rate_in),
            "rate_out": rounded(self.rate_out),
            "clear_in": self.clear_in,
            "trend": self.trend,
        }


def figures_of(snapshot: Snapshot, where: TopicPartition, progress: ProgressState) -> LagFigures:
    partition = find_partition(snapshot, where)
    lag = partition_lag(snapshot, where, progress)
    return LagFigures(
        lag=lag,
        behind=0 if lag == 0 else progress.behind_ms,
        behind_at_least=progress.behind_at_least and lag != 0,
        behind_since=progress.behind_since_ms if lag else None,
        rate_in=partition.rate_in if partition else None,
        rate_out=progress.rate_out,
    )


def together(parts: Iterable[LagFigures]) -> LagFigures:
    """Of several partitions: sums, and the longest time behind. What is not known of one does not count."""
    known = [part for part in parts if part.lag is not None]
    if not known:
        return LagFigures()
    worst = max(known, key=lambda part: part.behind or 0)
    behind = [part.behind for part in known if part.behind is not None]
    return LagFigures(
        lag=sum(part.lag or 0 for part in known),
        behind=max(behind, default=None),
        behind_at_least=worst.behind_at_least,
        behind_since=min(
            (part.behind_since for part in known if part.behind_since is not None), default=None
        ),
        rate_in=_sum(part.rate_in for part in known),
        rate_out=_sum(part.rate_out for part in known),
    )


def group_figures(snapshot: Snapshot, group: GroupState) -> LagFigures:
    return together(figures_of(snapshot, where, known) for where, known in group.progress.items())


def rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
