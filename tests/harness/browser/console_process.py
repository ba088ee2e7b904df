# SPDX-License-Identifier: Apache-2.0
"""`headrace console` as a real process against a live cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from headrace.cluster.engines.engine import free_ports
from tests.harness.waiting import poll

HOST = "127.0.0.1"
_START_S = 60.0
_STOP_S = 20.0
_LOG_LINES_SHOWN = 40


class ConsoleProcess:
    """Keeps its port over restarts."""

    def __init__(self, bootstrap: str, log: Path, *arguments: str) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://{HOST}:{self.port}"
        self._log = log
        self._command = [
            *(sys.executable, "-m", "headrace.cli.main", "console"),
            *("--bootstrap", bootstrap, "--port", str(self.port), *arguments),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> ConsoleProcess:
        """Returns when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        process = self._process
        poll(lambda: self._answers() or process.poll() is not None, timeout_s=_START_S, poll_s=0.1)
        assert self._answers(), f"the console does not answer:\n{self.log_tail()}"
        return self

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def get(self, path: str) -> Any:
        """A document below /api, e.g. /views/cluster."""
        with urllib.request.urlopen(f"{self.url}/api{path}", timeout=_START_S) as reply:
            return json.load(reply)

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])

    def _answers(self) -> bool:
        try:
            return "csrf" in self.get("/session")
        except (OSError, urllib.error.URLError, ValueError):
            return False
