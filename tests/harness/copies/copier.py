# SPDX-License-Identifier: Apache-2.0
"""Programs that copy a topic to another in transactions, as processes that are killed and started again.

Five clients: a kind is the command that starts one. Read next: copy_loop.py (who uses it).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.copies.programs.arguments import CopyArguments

_PROGRAMS = Path(__file__).parent / "programs"
_PYTHON = ("confluent", "aiokafka", "transform")
_STOP_S = 20
_LINES_SHOWN = 30
_BACKOFF_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


CopierKind = Callable[[CopyArguments], Command]


def python_copier(name: str) -> CopierKind:
    """One of confluent, aiokafka, transform."""
    assert name in _PYTHON

    def command(plan: CopyArguments) -> Command:
        return Command(words=[sys.executable, str(_PROGRAMS / f"with_{name}.py"), *plan.words()])

    return command


def java_copier(kafka: KafkaEngine) -> CopierKind:
    """Apache Kafka's TransactionalMessageCopier, as a member of a group, one transaction in three aborted."""

    def command(plan: CopyArguments) -> Command:
        flags = {
            "--broker-list": plan.bootstrap,
            "--input-topic": plan.source,
            "--input-partition": "-1",
            "--output-topic": plan.target,
            "--consumer-group": plan.group,
            "--transactional-id": plan.transactional_id,
            "--transaction-timeout": plan.timeout_ms,
            "--transaction-size": plan.size,
        }
        words = [word for flag in flags.items() for word in flag]
        switches = ["--group-mode", "--use-group-metadata", "--enable-random-aborts"]
        return Command(
            words=[kafka.jars.java, "-Xmx128M", "-XX:TieredStopAtLevel=1", _JAVA_COPIER, *words, *switches],
            environment={"CLASSPATH": kafka.jars.class_path},
        )

    return command


_JAVA_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


def go_copier(program: Path) -> CopierKind:
    """franz-go's GroupTransactSession, one transaction in sixteen aborted."""

    def command(plan: CopyArguments) -> Command:
        flags = {
            "mode": "copy",
            "bootstrap": plan.bootstrap,
            "topic": plan.source,
            "target": plan.target,
            "group": plan.group,
            "transactional-id": plan.transactional_id,
            "transaction-timeout": f"{plan.timeout_ms}ms",
            "count": plan.size,
        }
        return Command(words=[str(program), *(f"-{name}={value}" for name, value in flags.items())])

    return command


class Copier:
    """One of them, which comes back under its transactional id whenever it has ended."""

    def __init__(self, kind: CopierKind, plan: CopyArguments, log: Path) -> None:
        self.plan = plan
        self._command = kind(plan)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self.ends: Counter[int] = Counter()
        """By exit code; -9 for those that a test killed."""
        self._keeper = threading.Thread(target=self._keep, name=plan.transactional_id)
        self._keeper.start()

    def start(self) -> None:
        self._wanted.set()

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does; it comes back."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def pause(self) -> None:
        """SIGKILL, and it stays away until `start`."""
        self._wanted.clear()
        self.kill()
        self._wait_away()

    def stop(self) -> None:
        """As a service manager does, for good."""
        self._wanted.clear()
        self._closing.set()
        with self._lock:
            if self._process is not None:
                self._process.terminate()
        self._keeper.join(_STOP_S)
        if self._keeper.is_alive():
            self.kill()
            self._keeper.join()

    def said(self) -> str:
        if not self._log.exists():
            return "(nothing)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LINES_SHOWN:])

    def _keep(self) -> None:
        while not self._closing.is_set():
            if not self._wanted.wait(_BACKOFF_S):
                continue
            process = self._launch()
            if process is None:
                continue
            code = process.wait()
            with self._lock:
                self.ends[code] += 1
                self._process = None
            self._closing.wait(_BACKOFF_S)

    def _launch(self) -> subprocess.Popen[bytes] | None:
        with self._lock, self._log.open("ab") as log:
            if self._closing.is_set() or not self._wanted.is_set():
                return None
            self._process = subprocess.Popen(
                self._command.words,
                env={**os.environ, **self._command.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            return self._process

    def _wait_away(self) -> None:
        while True:
            with self._lock:
                process = self._process
            if process is None:
                return
            process.wait()
            self._closing.wait(0.01)
