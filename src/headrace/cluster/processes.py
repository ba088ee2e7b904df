# SPDX-License-Identifier: Apache-2.0
"""Node processes found by their pid files, so that a command can signal a node another command started.

The pid file also holds the start time of the process, because the kernel reuses pids.
Read next: supervisor.py.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.cluster.engines.engine import SpawnedNode, answers
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.plan import Member

_PID_FILE = "node.pid"
_READY_FILE = "ready.json"
_POLL_S = 0.02
_SECURE_TIMEOUT_MS = 2_000
"""Of a TLS handshake, a login and a request."""

NodeState = Literal["running", "starting", "paused", "stopped", "killed", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """The process of a node; `began` is its start time as the kernel reports it."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        return self.began == began(self.pid) and not _has_ended(self.pid)

    @property
    def paused(self) -> bool:
        return _state(self.pid) == "T"

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL for the node and its child processes."""
        if self.alive:
            for pid in read_process_tree(self.pid).pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.wait_end(10_000)

    def wait_end(self, timeout_ms: int) -> bool:
        """Whether the process ended before the timeout."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def write_pid_file(folder: Path, node: SpawnedNode) -> NodeProcess:
    process = NodeProcess(pid=node.pid, began=began(node.pid))
    (folder / _PID_FILE).write_text(json.dumps({"pid": process.pid, "began": process.began}) + "\n")
    return process


def find_process(folder: Path) -> NodeProcess | None:
    """The running process of a node, whichever command started it; None if there is none."""
    try:
        document = json.loads((folder / _PID_FILE).read_text())
        process = NodeProcess(pid=int(document["pid"]), began=str(document["began"]))
    except (FileNotFoundError, ValueError, TypeError, LookupError):
        return None
    return process if process.alive else None


def ready_file(folder: Path) -> Path:
    """Where a core's ready line goes; empty while it starts."""
    return folder / _READY_FILE


def read_ready(folder: Path) -> dict[str, Any] | None:
    """The ready line of a core; None as long as it is not ready, or when it has ended."""
    try:
        document = json.loads(ready_file(folder).read_text())
    except (OSError, ValueError):
        return None
    return document if find_process(folder) is not None else None


def core_state(member: Member, folder: Path) -> NodeState:
    """Like `state_of`, without a connection: a core's listeners may ask for logins that nobody has here."""
    process = find_process(folder)
    if process is None or process.paused:
        return state_of(member, process)
    return "running" if read_ready(folder) is not None else "starting"


def state_of(
    member: Member, process: NodeProcess | None, security: SecuritySettings = NO_SECURITY
) -> NodeState:
    if process is None:
        return "crashed" if member.wanted == "up" else member.wanted
    if process.paused:
        return "paused"
    timeout_ms = 500 if security == NO_SECURITY else _SECURE_TIMEOUT_MS
    ready = answers(member.host, member.port, timeout_ms=timeout_ms, security=security)
    return "running" if ready else "starting"


def began(pid: int) -> str:
    """Start time in clock ticks since boot (Linux); "unknown" on other systems."""
    fields = _stat(pid)
    return fields[19] if fields else "unknown"


def _has_ended(pid: int) -> bool:
    """A killed process stays a zombie, with its locks and ports, until its other threads have ended."""
    fields = _stat(pid)
    return _state(pid) in ("Z", "X", "") and not (fields and int(fields[17]) > 1)


def _state(pid: int) -> str:
    fields = _stat(pid)
    if fields:
        return fields[0]
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "" if Path("/proc/self/stat").exists() else "R"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name, which may contain any character."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
