"""Node processes by their pid files, so that any command can find and signal a node that another started.

A pid alone may belong to somebody else by now; with the time at which the process began it cannot.
Read next: supervisor.py.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.cluster.engines.engine import RunningNode, answers
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.plan import Member

_PID_FILE = "node.pid"
_POLL_S = 0.02

NodeState = Literal["running", "starting", "paused", "stopped", "killed", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """A process that was started for a node; `began` is the kernel's word for when."""

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
        """SIGKILL for the node and whatever it started."""
        if self.alive:
            for pid in read_process_tree(self.pid).pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.wait_end(10_000)

    def wait_end(self, timeout_ms: int) -> bool:
        """Whether it has ended in time."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True


def remember(folder: Path, node: RunningNode) -> NodeProcess:
    process = NodeProcess(pid=node.pid, began=began(node.pid))
    (folder / _PID_FILE).write_text(json.dumps({"pid": process.pid, "began": process.began}) + "\n")
    return process


def find(folder: Path) -> NodeProcess | None:
    """The live process of a node, whoever started it."""
    try:
        document = json.loads((folder / _PID_FILE).read_text())
        process = NodeProcess(pid=int(document["pid"]), began=str(document["began"]))
    except (FileNotFoundError, ValueError, TypeError, LookupError):
        return None
    return process if process.alive else None


def state_of(member: Member, process: NodeProcess | None) -> NodeState:
    if process is None:
        return "crashed" if member.wanted == "up" else member.wanted
    if process.paused:
        return "paused"
    return "running" if answers(member.host, member.port, timeout_ms=500) else "starting"


def began(pid: int) -> str:
    """Clock ticks from the boot to its start (Linux); elsewhere the pid has to do."""
    fields = _stat(pid)
    return fields[19] if fields else "unknown"


def _has_ended(pid: int) -> bool:
    """A killed process is a zombie while its other threads still end, with its locks and ports held."""
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
    """The fields of /proc/PID/stat behind the command's name, which may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
