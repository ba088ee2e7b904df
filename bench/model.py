# SPDX-License-Identifier: Apache-2.0
"""The parts of a benchmark: a suite has measures, a measure gives figures, a line is a target for one figure.

Values only. Who runs them: runner.py; who judges them: judge.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.cell import Cell

Figures = dict[str, float]

KAFKA = "kafka"
OS = "headrace-os"
ACK = "headrace-ack"
VARIANTS = (KAFKA, OS, ACK)
VARIANT_TITLES = {KAFKA: "Apache Kafka", OS: "Headrace `os`", ACK: "Headrace `ack`"}


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the table: a figure of a measure, and what its ratio to Apache Kafka must reach."""

    figure: str
    title: str
    unit: str
    better: Better
    target: float | None = None
    goal: float | None = None
    judged: str = OS
    """The variant that the target speaks of."""
    own: bool = False
    """The figure is compared with the target itself, not with Apache Kafka's figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A figure that a measure takes at several sizes; what is told of it is how it grows."""

    figure: str
    title: str
    unit: str
    of: str
    """What there is more and more of."""
    sizes: tuple[int, ...]
    most: float | None = None
    """Of the growth exponent: 1 is linear. None: the figure is no cost, or does not grow."""

    def at(self, size: int) -> str:
        """The name under which the figure at a size is recorded."""
        return f"{self.figure} {size}"

    @property
    def exponent(self) -> str:
        """The name under which its growth is recorded."""
        return f"{self.figure} growth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Nodes that a measure runs on. `settings` go to every engine alike."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    secured: bool = False
    """With guarded listeners besides (bench/secured.py)."""


DEFAULT_PROFILE = Profile(name="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    name: str
    run: Callable[[Cell], Figures]
    lines: tuple[Line, ...]
    profile: Profile | None = DEFAULT_PROFILE
    """None: the measure starts a fresh node of its own in every cell."""
    variants: tuple[str, ...] = VARIANTS
    warm_up: bool = True
    """An unjudged, smaller turn before the rounds; it is in the JSON too."""
    rounds: int | None = None
    """As many at most; None: as many as the suite has."""
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    name: str
    title: str
    measures: tuple[Measure, ...]
    rounds: int = 7
    note: str = ""
    """What a reader of the table must know besides."""
