# SPDX-License-Identifier: Apache-2.0
"""Describes where a result comes from: commit, versions, settings, processor, memory."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.nodes import Nodes
from headrace.cluster.engines.kafka import KafkaEngine

_PACKAGES = ("headrace", "uvloop", "kio", "crc32c", "cramjam", "confluent-kafka")


def describe_run(nodes: Nodes, kafka: KafkaEngine, *, rounds: int, scale: float) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "rounds": rounds,
        "scale": scale,
        "versions": {
            "apache-kafka": kafka.version,
            "java": kafka.jars.java_version,
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        "settings": {name: dict(variant.settings) for name, variant in nodes.variants.items()},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        },
        "load_average_at_start": os.getloadavg(),
    }


def _commit() -> str:
    here = Path(__file__).parent
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
