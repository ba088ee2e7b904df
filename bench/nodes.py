# SPDX-License-Identifier: Apache-2.0
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
from bench.secured import Certificates, SecuredNode, add_user, make_certificates, secure, secured_settings
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
        self._certificates: Certificates | None = None
        self._secured: dict[int, SecuredNode] = {}
        """By the port of the plain listener."""

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
        node = self._running[variant] = self.prepare(variant).launch()
        if self._profile is not None and self._profile.secured:
            add_user(node.bootstrap)
        return True

    def node(self, variant: str) -> RunningNode:
        self.start_if_needed(variant)
        return self._running[variant]

    def prepare(self, variant: str, profile: Profile | None = None) -> PreparedNode:
        """A node of its own on an empty data directory; of the profile in use when none is given."""
        chosen, profile = self.variants[variant], profile or self._profile
        settings = {**DELETE_SOON, **(profile.settings if profile else {}), **chosen.settings}
        folder = self.new_folder(variant)
        if profile is None or not profile.secured:
            return chosen.engine.prepare(folder, settings)
        certificates = self._made_certificates()
        settings |= secured_settings(certificates, chosen.engine.name)
        prepared, secured = secure(chosen.engine.prepare(folder, settings), certificates)
        self._secured[prepared.port] = secured
        return prepared

    def secured(self, node: RunningNode) -> SecuredNode:
        """The guarded listeners of a node whose profile has them."""
        return self._secured[node.port]

    def _made_certificates(self) -> Certificates:
        if self._certificates is None:
            self._certificates = make_certificates(self._work_dir / "certificates")
        return self._certificates

    def new_folder(self, name: str) -> Path:
        """For what a measure runs by itself; it takes it away."""
        return self._work_dir / f"{name}-{next(self._numbers)}"

    def stop(self) -> None:
        for node in self._running.values():
            node.stop()
            shutil.rmtree(node.log_path.parent, ignore_errors=True)
        self._running.clear()
