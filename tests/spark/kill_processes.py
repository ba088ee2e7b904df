# SPDX-License-Identifier: Apache-2.0
"""A Spark program as its processes: the driver's Python and Java, executors, and the workers of each.

All are in one session of processes. Knows signals, and nothing of what the program does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.harness.waiting import wait_until

TIMEOUT_S = 900
_EXECUTOR = "CoarseGrainedExecutorBackend"
_WORKER = "pyspark.daemon"
_SHOWN = 6000


class Program:
    """Use it as a context manager: at the end nothing of it is left."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as output:
            self._driver = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL)
        self._driver.wait(TIMEOUT_S)

    def wait_until(self, happened: Callable[[], bool]) -> None:
        def happened_or_ended() -> bool:
            lives = self._driver.poll() is None  # before the look: it may have happened at the very end
            if happened():
                return True
            assert lives, self.output()
            return False

        wait_until(happened_or_ended, self.output, timeout_s=TIMEOUT_S, poll_s=0.05)

    def ended(self) -> int:
        return self._driver.wait(TIMEOUT_S)

    def output(self) -> str:
        lines = self._log.read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-_SHOWN:]

    def signal(self, number: signal.Signals) -> None:
        """To all of it."""
        _send(number, self._processes())

    def kill_driver(self) -> None:
        """Executors have to notice by themselves."""
        processes = self._processes()
        executors = [process for process in processes if _is_executor(process)]
        spared = {each.pid for executor in executors for each in _with_children(executor)}
        _send(signal.SIGKILL, (process for process in processes if process.pid not in spared))
        self._driver.wait(TIMEOUT_S)

    def kill_executor_of(self, pid: int) -> None:
        """The one that a worker belongs to, with all its workers."""
        (executor,) = filter(_is_executor, psutil.Process(pid).parents())
        _send(signal.SIGKILL, _with_children(executor))

    def kill_workers(self) -> int:
        """The Python processes that run tasks; how many there were."""
        workers = [process for process in self._processes() if _runs(process, _WORKER)]
        _send(signal.SIGKILL, workers)
        return len(workers)

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self._driver.pid:
                    found.append(process)
            except ProcessLookupError:
                continue
        return found


def _is_executor(process: psutil.Process) -> bool:
    return _runs(process, _EXECUTOR)


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        return any(program in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _send(number: signal.Signals, processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
