# SPDX-License-Identifier: Apache-2.0
"""Spark in processes of its own: one session each, kept warm between turns, with its CPU time and memory.

Read next: program.py (what runs inside), environment.py (which Python and jars).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.spark.environment import connector_jars, peer_python
from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.java import find_java

_PROGRAM = "bench.spark.program"
_ROOT = Path(__file__).resolve().parents[2]
_LOG = Path("build/bench/spark.log")
_LOG_BYTES_SHOWN = 3000
_STOP_S = 20
_SAMPLES_EVERY_S = 0.05

OLD, NEW = "4.0.0", "4.3.0"
"""The versions of PySpark: the one that the peer can be had for, and this environment's."""


class SparkProcess:
    """A driver with a session. `version` says which PySpark."""

    def __init__(self, version: str, *, connector: bool = False) -> None:
        python = str(peer_python()) if version == OLD else sys.executable
        jars = ",".join(map(str, connector_jars())) if connector else ""
        _LOG.parent.mkdir(parents=True, exist_ok=True)
        with _LOG.open("ab") as log:
            self._process = subprocess.Popen(
                [python, "-m", _PROGRAM, jars],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_environment(python),
                start_new_session=True,
            )
        self._answer()

    def call(self, name: str, side: str = "", options: dict[str, Any] | None = None, **arguments: Any) -> Any:
        request = {"do": name, "side": side, "options": options or {}, "with": arguments}
        print(json.dumps(request), file=self._pipe(self._process.stdin), flush=True)
        return self._answer()

    def cpu_seconds(self) -> float:
        return read_process_tree(self._process.pid).cpu_seconds

    @contextmanager
    def peak_memory(self) -> Iterator[Peak]:
        """Of the driver, its JVM and all Python workers together, while the block runs."""
        peak = Peak()
        done = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(peak, done))
        sampler.start()
        try:
            yield peak
        finally:
            done.set()
            sampler.join()

    def stop(self) -> None:
        """The session goes with its driver; the JVM ends when the driver is gone."""
        pids = read_process_tree(self._process.pid).pids
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            for pid in pids:
                _kill(pid)
            self._process.wait()
        self._pipe(self._process.stdout).close()

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise EngineError(f"Spark ended; the end of {_LOG}:\n{_log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"the query failed in Spark:\n{answer['error'][-_LOG_BYTES_SHOWN:]}")
        return answer

    def _sample(self, peak: Peak, done: threading.Event) -> None:
        while not done.wait(_SAMPLES_EVERY_S):
            pids = read_process_tree(self._process.pid).pids
            peak.bytes = max(peak.bytes, sum(map(_proportional_bytes, pids)))

    @staticmethod
    def _pipe(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


def _environment(python: str) -> dict[str, str]:
    """Either PySpark finds `bench` in this repository."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": python, "PYTHONPATH": path}


@dataclass(slots=True)
class Peak:
    bytes: int = 0


@dataclass(slots=True)
class SparkProcesses:
    """Those that stay warm: started when first asked for, stopped at the end of the run."""

    _running: dict[tuple[str, bool], SparkProcess] = field(default_factory=dict)

    def get(self, version: str, *, connector: bool = False) -> SparkProcess:
        place = (version, connector)
        if place not in self._running:
            self._running[place] = SparkProcess(version, connector=connector)
        return self._running[place]

    def stop(self) -> None:
        for process in self._running.values():
            process.stop()
        self._running.clear()


def _proportional_bytes(pid: int) -> int:
    """Pages that forked workers share are counted once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def _log_tail() -> str:
    return _LOG.read_bytes()[-_LOG_BYTES_SHOWN:].decode(errors="replace")
