# SPDX-License-Identifier: Apache-2.0
"""Programs that a scene runs as processes of their own, as in a terminal each."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping

_STOP_S = 30


class Program:
    """`python -m MODULE …`, whose output lines are collected while it runs."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait until it has ended by itself; its exit code."""
        code = self._process.wait(_STOP_S)
        self._reader.join(_STOP_S)
        return code

    def stop(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        self._process.terminate()
        self.wait()

    def kill(self) -> None:
        """End it at once, without a chance to commit or say good-bye."""
        self._process.kill()
        self.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
