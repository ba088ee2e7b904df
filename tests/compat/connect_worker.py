# SPDX-License-Identifier: Apache-2.0
"""Kafka Connect, unmodified: a distributed worker in a process of its own, and connectors of files."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.cluster.engines.engine import free_ports, write_properties
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_process import JavaProcess


class Worker:
    """One distributed worker and its REST interface."""

    def __init__(
        self,
        engine: KafkaEngine,
        class_path: str,
        bootstrap: str,
        folder: Path,
        *,
        replicas: int = 1,
        more: Mapping[str, str] = {},
    ) -> None:
        """`replicas`: of its own topics; `more`: settings of the worker."""
        (self.port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{self.port}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect-cluster",
            "listeners": self._url,
            "plugin.discovery": "only_scan",
            "scheduled.rebalance.max.delay.ms": "1000",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "offset.flush.interval.ms": "500",
        }
        for side in ("key", "value"):
            settings[f"{side}.converter"] = "org.apache.kafka.connect.storage.StringConverter"
        for storage in ("offset", "config", "status"):
            settings[f"{storage}.storage.topic"] = f"connect-{storage}s"
            settings[f"{storage}.storage.replication.factor"] = str(replicas)
        write_properties(folder / "worker.properties", {**settings, **more})
        self.process = JavaProcess(
            engine.jars.java,
            class_path,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(folder / "worker.properties"),
        )

    def call(self, path: str, body: object | None = None) -> Any:
        request = urllib.request.Request(self._url + path, headers={"Content-Type": "application/json"})
        if body is not None:
            request.method, request.data = "PUT", json.dumps(body).encode()
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        try:
            self.call("/connectors")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def runs(self, connector: str) -> bool:
        try:
            status = self.call(f"/connectors/{connector}/status")
        except (urllib.error.URLError, OSError):
            return False
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        return len(states) == 2 and set(states) == {"RUNNING"}

    def shown(self) -> object:
        return self.process.lines[-40:]


def connector(kind: str, file: Path, topic: str) -> dict[str, str]:
    side = "topic" if kind == "Source" else "topics"
    return {
        "connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector",
        "tasks.max": "1",
        "file": str(file),
        side: topic,
    }
