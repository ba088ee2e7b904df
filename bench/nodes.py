"""The nodes under test: Apache Kafka, and Headrace with flush policy `os` and with its default `ack`.

Starts and stops them per profile and warms them up; knows nothing of what is measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench.model import ACK, KAFKA, OS, Profile
from headrace.cluster.engines.engine import Engine, PreparedNode, RunningNode
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine

DELETE_SOON = {"log.segment.delete.delay.ms": "1000"}
"""For all of them: a turn's gigabytes that stay in memory for a minute would burden the next turns."""

HEADRACE_SETTINGS = {
    OS: {"headrace.flush.default": "os"},
    ACK: {"headrace.flush.default": "ack"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """An engine with the settings under which it is measured."""

    name: str
    engine: Engine
    settings: Mapping[str, str] = field(default_factory=dict)


def make_variants(names: Sequence[str], kafka: KafkaEngine) -> dict[str, Variant]:
    headrace = HeadraceEngine()
    return {
        name: Variant(
            name=name,
            engine=kafka if name == KAFKA else headrace,
            settings=HEADRACE_SETTINGS.get(name, {}),
        )
        for name in names
    }


class Nodes:
    """The running nodes of one profile at a time; a node that died is started anew."""

    def __init__(self, variants: Mapping[str, Variant], work_dir: Path) -> None:
        self.variants = variants
        self._work_dir = work_dir
        self._numbers = count()
        self._profile: Profile | None = None
        self._running: dict[str, RunningNode] = {}

    def use(self, profile: Profile | None) -> None:
        """Stop what runs under another profile."""
        if profile != self._profile:
            self.stop()
            self._profile = profile

    def start_if_needed(self, variant: str) -> bool:
        """True when the node was not running."""
        running = self._running.get(variant)
        if running is not None and running.process.poll() is None:
            return False
        self._running[variant] = self.prepare(variant).launch()
        return True

    def node(self, variant: str) -> RunningNode:
        self.start_if_needed(variant)
        return self._running[variant]

    def prepare(self, variant: str) -> PreparedNode:
        """A node of its own on an empty data directory."""
        chosen = self.variants[variant]
        settings = {**DELETE_SOON, **(self._profile.settings if self._profile else {}), **chosen.settings}
        return chosen.engine.prepare(self._work_dir / f"{variant}-{next(self._numbers)}", settings)

    def new_folder(self, name: str) -> Path:
        """For what a measure runs by itself; it takes it away."""
        return self._work_dir / f"{name}-{next(self._numbers)}"

    def stop(self) -> None:
        for node in self._running.values():
            node.stop()
            shutil.rmtree(node.log_path.parent, ignore_errors=True)
        self._running.clear()
