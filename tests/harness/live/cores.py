# SPDX-License-Identifier: Apache-2.0
"""`headrace serve --cores` as a real process: its cores by their pid files, its one HTTP endpoint.

Read next: node.py (a single node), load.py (clients).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.cluster.engines.engine import free_ports
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.processes import find_process
from tests.harness.waiting import poll, wait_until

HOST = "127.0.0.1"
READY_S, STOP_S = 60, 60
_LOG_LINES_SHOWN = 40


class LiveCores:
    """Keeps its data directory and ports over restarts. Use as a context manager."""

    def __init__(
        self, directory: Path, cores: int = 2, arguments: Sequence[str] = (), protocol: str | None = None
    ) -> None:
        self.data = directory / "data"
        self.cores = cores
        self.port = _consecutive_ports(cores)
        self._arguments = arguments
        self._protocol = protocol
        self._log, self._ready_path = directory / "serve.log", directory / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        """The ready line."""

    def start(self) -> LiveCores:
        """Returns when the ready line was printed."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log, self._ready_path.open("wb") as ready:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=ready, stderr=log, start_new_session=True
            )
        poll(lambda: self._is_ready() or not self.alive, timeout_s=READY_S)
        assert self._is_ready(), f"not ready:\n{self.log_tail()}"
        self.ready = json.loads(self._ready_path.read_text())
        return self

    def run_to_end(self) -> subprocess.CompletedProcess[str]:
        """Of a start that is expected to be refused."""
        return subprocess.run(self._command(), capture_output=True, text=True, timeout=READY_S, check=False)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        process = self._running()
        process.terminate()
        return process.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL of the supervisor alone."""
        process = self._running()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def __enter__(self) -> LiveCores:
        return self if self.alive else self.start()

    def __exit__(self, *_: object) -> None:
        if self.alive:
            for pid in filter(None, self.pids()):
                os.kill(pid, signal.SIGCONT)
            self.stop()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    @property
    def addresses(self) -> list[str]:
        return self.bootstrap.split(",")

    @property
    def node_ids(self) -> list[int]:
        return [int(each["node_id"]) for each in self.ready["cores"]]

    def pids(self) -> list[int | None]:
        """Of each core; None: it does not run."""
        folder = ClusterFolder(self.data)
        found = [find_process(folder.node(member.node_id)) for member in folder.read().members]
        return [None if process is None else process.pid for process in found]

    def signal(self, core: int, number: signal.Signals) -> None:
        pid = self.pids()[core]
        assert pid is not None, f"core {core} does not run:\n{self.log_tail()}"
        os.kill(pid, number)

    def wait_ready(self) -> None:
        wait_until(lambda: self.get("/readyz")[0] == 200, lambda: self.get("/readyz")[1], timeout_s=READY_S)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text from the HTTP endpoint."""
        url = str(self.ready["metrics"]).removesuffix("/metrics") + path
        try:
            with urllib.request.urlopen(url, timeout=15) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def restarts(self, core: int) -> int:
        found = re.search(rf'headrace_core_restarts_total{{core="{core}",.*}} (\d+)', self.get("/metrics")[1])
        assert found is not None
        return int(found[1])

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-_LOG_LINES_SHOWN:])

    def _is_ready(self) -> bool:
        return self._ready_path.read_bytes().endswith(b"\n")

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "headrace.cli.main", "serve", "--cores", str(self.cores), "--json"]
        listen = ["--port", str(self.port)]
        if self._protocol is not None:
            listen = ["--listener", f"{HOST}:{self.port},protocol={self._protocol}"]
        return [*command, "--data", str(self.data), *listen, *self._arguments]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process


def _consecutive_ports(count: int) -> int:
    """The first of so many free ones."""
    while True:
        (port,) = free_ports(1)
        with contextlib.suppress(OSError, OverflowError), contextlib.ExitStack() as stack:
            for index in range(count):
                stack.enter_context(socket.create_server((HOST, port + index)))
            return port
