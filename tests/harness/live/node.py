# SPDX-License-Identifier: Apache-2.0
"""A live node for tests: `headrace serve` as a real process that can be killed and started again.

Knows the command line and the process table, nothing of the broker's inside. Fixtures: tests/conftest.py.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.cluster.engines.engine import answers, free_ports
from tests.harness.waiting import poll

HOST = "127.0.0.1"
_LOG_LINES_SHOWN = 40


class NodeFailed(AssertionError):
    """The node did not start, or ended by itself; carries the end of its log."""


class NodeProcess:
    """Keeps its data directory and port over restarts. Use as a context manager, or call `stop`."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: Sequence[str] = (),
        arguments: Sequence[str] = (),
        descriptor_limit: int | None = None,
        port: int | None = None,
    ) -> None:
        """`port` is that of the listener on 127.0.0.1 that tests talk to; a free one when not given."""
        self.data = directory / "data"
        self.log_path = directory / "serve.log"
        self.port = free_ports(1)[0] if port is None else port
        self.settings = dict(settings or {})
        self._listeners = listeners or [f"main={HOST}:{self.port}"]
        self._arguments = arguments
        self._descriptor_limit = descriptor_limit
        self._process: subprocess.Popen[bytes] | None = None

    # -- start and stop ------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "headrace.cli.main", "serve", "--data", str(self.data)]
        for listener in self._listeners:
            command += ["--listener", listener]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        command += self._arguments
        if self._descriptor_limit is not None:
            command = ["sh", "-c", f'ulimit -n {self._descriptor_limit}; exec "$0" "$@"', *command]
        return command

    def start(self, *, timeout_ms: int = 20_000) -> NodeProcess:
        """Returns when the node answers requests."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if not poll(self._answers, timeout_s=timeout_ms / 1000):
            self.kill()
            raise NodeFailed(f"the node was not ready within {timeout_ms} ms:\n{self.log_tail()}")
        return self

    def _answers(self) -> bool:
        if answers(HOST, self.port):
            return True
        if self._process is not None and not self.alive:
            raise NodeFailed(f"the node ended with {self._process.returncode}:\n{self.log_tail()}")
        return False

    def run_to_end(self, *, timeout_ms: int = 20_000) -> subprocess.CompletedProcess[str]:
        """Starts a node that is expected to refuse; its output is returned, not logged."""
        return subprocess.run(
            self.command(), capture_output=True, text=True, timeout=timeout_ms / 1000, check=False
        )

    def kill(self) -> None:
        """SIGKILL for the node's own process; what it started has to notice by itself."""
        process = self._running()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self, *, timeout_ms: int = 20_000) -> int:
        """Asks for a clean shutdown and returns the exit code."""
        process = self._running()
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"no clean stop within {timeout_ms} ms:\n{self.log_tail()}") from None

    def restart(self, *, timeout_ms: int = 60_000) -> NodeProcess:
        if self.alive:
            self.stop()
        return self.start(timeout_ms=timeout_ms)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise NodeFailed("the node was not started")
        return self._process

    def __enter__(self) -> NodeProcess:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.stop()

    # -- looks ---------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._running().pid

    def rss_bytes(self) -> int:
        """Resident memory of the node's own process."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * resource.getpagesize()

    def peak_bytes(self) -> int:
        """The most resident memory since the last call, or since the start."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def log_tail(self) -> str:
        if not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])

    def disk_bytes(self) -> int:
        """What the data directory takes on disk, as `du` counts."""
        total = 0
        for folder, _, names in os.walk(self.data):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
        return total
