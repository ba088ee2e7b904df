# SPDX-License-Identifier: Apache-2.0
"""A scene of the demo, what it requires, and what it is given to play.

Read next: playing.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.cluster.plan import EngineName
from headrace.demo.chart import Chart, as_svg
from headrace.demo.screen import Screen
from headrace.demo.spark_start import SparkStart
from headrace.errors import HeadraceError

_POLL_S = 0.02


class SceneFailed(HeadraceError):
    """Something that a scene waited for did not happen."""


class Console(Protocol):
    """Shows one cluster at a time: console_beside.py."""

    def watching(self, bootstrap: str) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a scene plays on."""

    screen: Screen
    bootstrap: str
    """A running node that scenes share; topics and groups are each scene's own."""
    folder: Path
    """An empty directory of the scene, removed afterwards."""
    engine: EngineName = "headrace"
    spark: SparkStart | None = None
    pictures: Path | None = None
    """Where to save pictures; None: nowhere."""
    console: Console | None = None
    """What shows the cluster in a browser meanwhile."""

    def draw(self, name: str, chart: Chart) -> None:
        """Print a chart, and save it where pictures are wanted."""
        self.screen.draw(chart, f"{name}.svg")
        if self.pictures is not None:
            self.pictures.mkdir(parents=True, exist_ok=True)
            (self.pictures / f"{name}.svg").write_text(as_svg(chart), encoding="utf-8")

    def wait(self, what: str, true: Callable[[], bool], *, timeout_s: float = 30) -> None:
        """Wait for a condition; SceneFailed names it."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > deadline:
                raise SceneFailed(f"waited {timeout_s:.0f} s in vain until {what}")
            time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Something that must be installed."""

    name: str
    missing: Callable[[], str | None]
    """None when it is there; otherwise what is missing and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    name: str
    title: str
    play: Callable[[Stage], None]
    needs: tuple[Requirement, ...] = ()
    on_kafka: bool = True
    """Whether it can be played on Apache Kafka, too."""
    own_nodes: bool = False
    """It starts nodes of its own instead of using the shared one."""
    varies: tuple[str, ...] = ()
    """Regular expressions of output that differs from run to run, besides times, sizes and ports."""

    def why_left_out(self, engine: EngineName) -> str | None:
        if engine == "kafka" and not self.on_kafka:
            return "it shows a part of Headrace"
        return next((reason for need in self.needs if (reason := need.missing()) is not None), None)
