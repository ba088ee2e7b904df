# SPDX-License-Identifier: Apache-2.0
"""Plays scenes one after the other and says at the end what held, what broke and what was left out.

Read next: scene.py, scenes/catalog.py.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from headrace.client.client_config import VARIABLE
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.plan import EngineName
from headrace.demo.console_beside import ConsoleBeside
from headrace.demo.requirements import SPARK
from headrace.demo.scene import Scene, Stage
from headrace.demo.screen import Promise, Recording, Screen
from headrace.demo.spark_start import SparkStart
from headrace.errors import HeadraceError

NODE_SETTINGS = {
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
"""Consumers learn of changes sooner than by default, which would be long for a demo."""
_FAILURES = (HeadraceError, KafkaException, OSError, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One scene and what came of it."""

    scene: Scene
    recording: Recording
    left_out: str | None = None
    """Why it was not played."""

    @property
    def broken(self) -> list[Promise]:
        return [promise for promise in self.recording.promises if not promise.held]


@dataclass(slots=True, kw_only=True)
class Outcome:
    played: list[Played] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def left_out(self) -> list[Played]:
        return [each for each in self.played if each.left_out is not None]

    @property
    def all_held(self) -> bool:
        return not any(each.broken for each in self.played)

    def verdict(self) -> list[str]:
        """The last lines of the demo; the last one is about the whole."""
        lines = [f"✗ {each.scene.name}: {promise.text}" for each in self.played for promise in each.broken]
        lines += [f"Left out: {each.scene.name}. {each.left_out}." for each in self.left_out]
        promises = sum(len(each.recording.promises) for each in self.played)
        scenes = len(self.played) - len(self.left_out)
        count = f"{scenes} scene{'s' * (scenes != 1)}, {promises} promises, {self.took_s:.1f} s"
        if not self.all_held:
            broken = sum(len(each.broken) for each in self.played)
            return [*lines, f"NOT as promised: {broken} of {promises} broken ({count})."]
        if self.left_out:
            names = ", ".join(each.scene.name for each in self.left_out)
            return [*lines, f"What was played held ({count}); left out: {names}."]
        return [*lines, f"All as promised ({count})."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    screen: Screen
    engine: EngineName = "headrace"
    pictures: Path | None = None
    with_console: bool = False
    """Start a console beside the story."""

    def play(self, scenes: Sequence[Scene]) -> Outcome:
        started = time.monotonic()
        outcome = Outcome()
        reasons = {scene.name: scene.why_left_out(self.engine) for scene in scenes}
        possible = [scene for scene in scenes if reasons[scene.name] is None]
        with ExitStack() as open_things:
            folder = Path(open_things.enter_context(_temporary_folder()))
            spark = open_things.enter_context(_spark(possible, folder))
            console = ConsoleBeside(folder) if self.with_console else None
            bootstrap = open_things.enter_context(self._shared_node(possible, folder))
            open_things.enter_context(self._watched(console, bootstrap))
            for scene in scenes:
                stage = Stage(
                    screen=self.screen,
                    bootstrap=bootstrap,
                    folder=folder / scene.name,
                    engine=self.engine,
                    spark=spark,
                    pictures=self.pictures,
                    console=console,
                )
                outcome.played.append(self._play_one(scene, stage, reasons[scene.name]))
            outcome.took_s = time.monotonic() - started
            if console is not None:
                self.screen.wait_for_enter(f"The console stays at {console.address} until you press Enter.")
        return outcome

    def _play_one(self, scene: Scene, stage: Stage, left_out: str | None) -> Played:
        recording = self.screen.begin(scene.title)
        if left_out is not None:
            self.screen.note(f"Left out: {left_out}.")
            return Played(scene=scene, recording=recording, left_out=left_out)
        stage.folder.mkdir()
        with _bootstrap_in_environment(stage.bootstrap):
            try:
                scene.play(stage)
            except _FAILURES as error:
                self.screen.check(f"the scene '{scene.name}' came to its end ({error})", False)
        return Played(scene=scene, recording=recording)

    @contextmanager
    def _shared_node(self, scenes: Sequence[Scene], folder: Path) -> Iterator[str]:
        """The address of a node; empty when no scene needs one."""
        if all(scene.own_nodes for scene in scenes) and not self.with_console:
            yield ""
            return
        engine = KafkaEngine() if self.engine == "kafka" else HeadraceEngine()
        with engine.start(folder / "node", NODE_SETTINGS) as node:
            name = "Apache Kafka" if self.engine == "kafka" else "A node"
            self.screen.note(f"{name} is ready at {node.bootstrap} after {node.ready_after_ms:.0f} ms.")
            yield node.bootstrap

    @contextmanager
    def _watched(self, console: ConsoleBeside | None, bootstrap: str) -> Iterator[None]:
        with nullcontext() if console is None else console.watching(bootstrap):
            if console is not None:
                self.screen.note(f"The console beside this story: {console.address}")
                console.open_browser()
            yield


@contextmanager
def _spark(scenes: Sequence[Scene], folder: Path) -> Iterator[SparkStart | None]:
    if not any(SPARK in scene.needs for scene in scenes):
        yield None
        return
    start = SparkStart(folder)
    try:
        yield start
    finally:
        start.stop()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True)


@contextmanager
def _bootstrap_in_environment(bootstrap: str) -> Iterator[None]:
    """Commands of the scene find their node by HEADRACE_BOOTSTRAP; it has plain listeners."""
    before = {name: os.environ.pop(name, None) for name in ("HEADRACE_BOOTSTRAP", VARIABLE)}
    os.environ["HEADRACE_BOOTSTRAP"] = bootstrap
    try:
        yield
    finally:
        del os.environ["HEADRACE_BOOTSTRAP"]
        os.environ.update({name: value for name, value in before.items() if value is not None})
