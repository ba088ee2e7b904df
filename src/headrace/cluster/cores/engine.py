# SPDX-License-Identifier: Apache-2.0
"""Starts the process of a core, which ends with its supervisor: a pipe to its standard input tells it.

Through the same pipe it first gets the token of its own HTTP endpoint. Its ready line goes to a file, its log
to the standard error of the supervisor. Read next: cli/cores/run.py, cli/cores/as_core.py (the other end).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.cluster.engines.engine import EngineError, command_environment
from headrace.cluster.plan import ClusterPlan, Member
from headrace.cluster.processes import ready_file
from headrace.secret import Secret

_POLL_S = 0.005


class CoreEngine:
    def __init__(self, command_of: Callable[[Member], tuple[str, ...]], token: Secret) -> None:
        self._command_of = command_of
        self._token = token

    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> PreparedCore:
        return PreparedCore(
            node_id=member.node_id, command=self._command_of(member), folder=folder, token=self._token
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCore:
    node_id: int
    command: tuple[str, ...]
    folder: Path
    token: Secret

    def spawn(self) -> RunningCore:
        path = ready_file(self.folder)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as ready:
            process = subprocess.Popen(
                self.command,
                env=command_environment({}),
                stdin=subprocess.PIPE,
                stdout=ready,
                start_new_session=True,  # Ctrl-C in the terminal is for the supervisor
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `wait_ready` or the next round finds
            process.stdin.write(f"{self.token.reveal()}\n".encode())
            process.stdin.flush()  # and it stays open: its end is the end of the supervisor
        return RunningCore(node_id=self.node_id, process=process, ready=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCore:
    node_id: int
    process: subprocess.Popen[bytes]
    ready: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, timeout_ms: int) -> None:
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.ready.read_bytes().endswith(b"\n"):
            if self.process.poll() is not None:
                raise EngineError(
                    f"node {self.node_id} ended with exit code {self.process.returncode} before it was "
                    "ready; the lines above say why"
                )
            if time.monotonic() > deadline:
                self.process.kill()
                raise EngineError(f"node {self.node_id} was not ready within {timeout_ms / 1000:.0f} s")
            time.sleep(_POLL_S)
