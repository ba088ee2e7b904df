# SPDX-License-Identifier: Apache-2.0
"""Where snippets run: a shell in a terminal, and a Python program that takes one block after another.

Both keep their state between blocks, as a reader's do. Knows nothing of documents. Read next: page_run.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.harness.waiting import poll

_COLUMNS, _ROWS = 100, 50
_MARK = "\x1e"
_STOP_S = 15
_PYTHON_DRIVER = """
import json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    try:
        exec(compile(block["code"], block["name"], "exec"), names)
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
        status = 1
    print(f"\\x1e{status}\\x1e", end="", flush=True)
"""


class SessionFailed(AssertionError):
    """A block did not end in time, or its session ended; carries what was printed."""


class _Session:
    """A process that is sent blocks and marks the end of each in its output with its status."""

    def __init__(
        self, command: list[str], output: int, ours: int, environment: Mapping[str, str], folder: Path
    ) -> None:
        self._output = ours
        self._printed = ""
        self._closed = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        os.close(output)

    def close(self) -> None:
        """SIGTERM to all that the session runs, then SIGKILL; returns when all of it has ended."""
        if self._closed:
            return
        self._closed = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            if poll(self._has_ended, timeout_s=_STOP_S):
                break
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        os.close(self._output)

    def _has_ended(self) -> bool:
        if self._process.poll() is None:
            return False
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def _read_until(self, complete: Callable[[str], bool], timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while not complete(self._printed):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._output], [], [], left)[0]:
                raise SessionFailed(f"nothing more within {timeout_s:g} s after:\n{self._printed}")
            try:
                data = os.read(self._output, 65536)
            except OSError:  # a terminal whose program has ended
                data = b""
            if not data:
                raise SessionFailed(f"the session ended after:\n{self._printed}")
            self._printed += data.decode(errors="replace").replace("\r\n", "\n")
        return self._printed

    def _result(self, timeout_s: float) -> tuple[int, str]:
        printed, status, self._printed = self._read_until(
            lambda text: text.count(_MARK) >= 2, timeout_s
        ).split(_MARK, 2)
        return int(status), printed


class Shell(_Session):
    """bash in a terminal of 100 columns. The status of a block is that of the last command that failed."""

    def __init__(self, environment: Mapping[str, str], folder: Path, scratch: Path) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        super().__init__(["bash", "--noprofile", "--norc"], theirs, ours, environment, folder)
        self._scratch = scratch
        self._send("set -E -o pipefail; trap '_status=$?' ERR\n")

    def run(self, code: str, *, timeout_s: float) -> tuple[int, str]:
        self._source(code)
        return self._result(timeout_s)

    def start(self, code: str, *, until: Callable[[str], bool], timeout_s: float) -> str:
        """Runs a block that goes on, and returns what it printed once that is complete."""
        self._source(code)
        return self._read_until(until, timeout_s)

    def _source(self, code: str) -> None:
        file = self._scratch / f"block-{time.monotonic_ns()}.sh"
        file.write_text(code)
        self._send(f"_status=0; . {file} </dev/null; printf '\\036%s\\036' $_status\n")


class PythonProgram(_Session):
    """One Python process; a block sees what earlier blocks defined. Standard error goes to `errors`."""

    def __init__(self, python: str, environment: Mapping[str, str], folder: Path, errors: Path) -> None:
        ours, theirs = os.pipe()
        command = ["sh", "-c", f'exec "$0" -u -c "$1" 2>>{errors}', python, _PYTHON_DRIVER]
        super().__init__(command, theirs, ours, environment, folder)

    def run(self, code: str, name: str, *, timeout_s: float) -> tuple[int, str]:
        self._send(json.dumps({"code": code, "name": name}) + "\n")
        return self._result(timeout_s)
