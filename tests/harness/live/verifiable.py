# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's VerifiableProducer and VerifiableConsumer as a load, from its jars.

They say as JSON lines what was acknowledged and what was consumed; both must agree, and with what a reader of
ours finds in the end. Read next: kill_loop.py (who runs it).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import IO, Any

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.types import TopicPartition
from tests.harness.history import Anomaly
from tests.harness.live.kill_loop import GROUP, PARTITIONS, PROGRESS_S, TOPIC, Report
from tests.harness.live.load import read_all
from tests.harness.waiting import poll, wait_until

_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
_TIMEOUT_S = 90
_CATCH_UP_S = 60

Position = tuple[int, int]
"""Partition and offset."""


def check_verifiable(report: Report) -> None:
    """VerifiableProducer sends every record once: what a failover refuses is an error, and stays unknown."""
    assert report.anomalies == [], report.figures()
    assert report.sends["ok"] > 20 * report.sends.get("info", 0), report.figures()
    assert report.read >= report.sends["ok"], report.figures()
    assert report.commits > 0


class VerifiableLoad:
    """Use it where kill_loop takes a load."""

    def __init__(self, kafka: KafkaEngine, bootstrap: str, folder: Path, *, per_second: int = 300) -> None:
        self._kafka = kafka
        self._bootstrap = bootstrap
        self._folder = folder
        self._per_second = per_second
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> VerifiableLoad:
        common = ("--bootstrap-server", self._bootstrap, "--topic", TOPIC)
        self._launch("producer", _PRODUCER, *common, "--throughput", str(self._per_second), "--acks", "-1")
        self._launch("consumer", _CONSUMER, *common, "--group-id", GROUP, "--verbose")
        return self

    def __exit__(self, *_: object) -> None:
        """The producer first, then the consumer when it has read what was acknowledged."""
        self._end("producer")
        acknowledged = len(self._acknowledged())
        poll(lambda: len(self._consumed()) >= acknowledged, timeout_s=_CATCH_UP_S, poll_s=0.5)
        self._end("consumer")
        for file in self._files:
            file.close()

    def wait_started(self) -> None:
        wait_until(
            lambda: self._acknowledged() and self._consumed(), self._tail, timeout_s=_TIMEOUT_S, poll_s=0.2
        )

    def wait_progress(self) -> None:
        """In partitions of its producer's choice."""
        goal = len(self._acknowledged()) + PARTITIONS
        wait_until(
            lambda: len(self._acknowledged()) >= goal,
            lambda: f"acknowledgements\n{self._tail()}",
            timeout_s=PROGRESS_S,
            poll_s=0.2,
        )

    def judge(self, report: Report) -> None:
        acknowledged, consumed = self._acknowledged(), self._consumed()
        failed = sum(line["name"] == "producer_send_error" for line in self._lines("producer"))
        stored = self._stored()
        report.sends = {"ok": len(acknowledged), **({"info": failed} if failed else {})}
        report.read = len(consumed)
        report.commits = sum(line["name"] == "offsets_committed" for line in self._lines("consumer"))
        for position, value in acknowledged.items():
            if consumed.get(position) != value:
                report.anomalies.append(_anomaly("not-consumed", position, value, consumed.get(position)))
            if stored.get(position) != value:
                report.anomalies.append(_anomaly("lost-write", position, value, stored.get(position)))
        doubled = len(stored) - len(set(stored.values()))
        if doubled:
            report.anomalies.append(_anomaly("duplicate", (0, 0), f"{doubled} values", "twice"))

    def _acknowledged(self) -> dict[Position, str]:
        return {
            (line["partition"], line["offset"]): line["value"]
            for line in self._lines("producer")
            if line["name"] == "producer_send_success"
        }

    def _consumed(self) -> dict[Position, str]:
        return {
            (line["partition"], line["offset"]): line["value"]
            for line in self._lines("consumer")
            if line["name"] == "record_data"
        }

    def _stored(self) -> dict[Position, str]:
        return {
            (index, offset): value.decode()
            for index in range(PARTITIONS)
            for offset, value in read_all(self._bootstrap, TopicPartition(TOPIC, index)).records
        }

    def _launch(self, name: str, *arguments: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        out, errors = (self._folder / f"{name}.{kind}" for kind in ("jsonl", "log"))
        self._files += [out.open("wb"), errors.open("wb")]
        spawn = self._kafka.spawn_tool
        self._processes[name] = spawn(*arguments, stdout=self._files[-2], stderr=self._files[-1])

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """Whole lines only: the last one may still be written."""
        text = (self._folder / f"{name}.jsonl").read_text(errors="replace")
        return [json.loads(line) for line in text.split("\n")[:-1] if line.startswith("{")]

    def _tail(self) -> str:
        logs = (self._folder / f"{name}.log" for name in ("producer", "consumer"))
        return "\n".join(log.read_text(errors="replace")[-1500:] for log in logs)


def _anomaly(kind: str, position: Position, value: str, found: str | None) -> Anomaly:
    partition, offset = position
    detail = f"{value} was acknowledged at {offset}, and {found} is there"
    return Anomaly(kind=kind, partition=TopicPartition(TOPIC, partition), detail=detail)
