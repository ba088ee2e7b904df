# SPDX-License-Identifier: Apache-2.0
"""`headrace console` as a process beside the demo: one address, whichever cluster the story is about.

A scene with a cluster of its own is watched while it plays; then the console shows the shared node again. The
page in the browser finds the new process by itself. Read next: playing.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

from headrace.cluster.engines.engine import free_ports
from headrace.demo.scene import SceneFailed

HOST = "127.0.0.1"
_PACKAGES = ("starlette", "uvicorn")
_READY_WITHIN_S = 30.0
_POLL_S = 0.1


def missing() -> str | None:
    """None when the console can be started."""
    absent = [name for name in _PACKAGES if find_spec(name) is None]
    if absent:
        return f"Python packages are missing ({', '.join(absent)}); pip install 'headrace[console]'"
    return None


def has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class ConsoleBeside:
    """Shows one cluster at a time, always at the same address."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "console.log"
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._watched: list[str] = []

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._port}/"

    @contextmanager
    def watching(self, bootstrap: str) -> Iterator[None]:
        """Show this cluster inside of the block, and the one before it afterwards."""
        self._watched.append(bootstrap)
        try:
            self._show(bootstrap)
            yield
        finally:
            self._watched.pop()
            self._stop()
            if self._watched:
                self._show(self._watched[-1])

    def open_browser(self) -> None:
        if has_display():
            webbrowser.open(self.address)

    def _show(self, bootstrap: str) -> None:
        self._stop()
        command = [sys.executable, "-m", "headrace.cli.main", "console", "--bootstrap", bootstrap]
        with self._log.open("ab") as log:
            self._process = _start([*command, "--port", str(self._port)], log)
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SceneFailed(f"the console did not start: {self._last_line()}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.address}api/session", timeout=_READY_WITHIN_S) as reply:
                return bool(reply.status == 200)
        except (URLError, OSError):
            return False

    def _last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """In a group of its own, so that Ctrl-C reaches the demo first."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
