"""`--exec`: a command of the user's, run once for each record.

The value is on its stdin, the rest in its environment; exit code 0 means done. Knows no console.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from headrace.client.parallel import FatalError, Record, cancelled

_LOOK_UP_S = 0.1
_NOT_RUNNABLE = (126, 127)
"""What a shell answers when there is no such command: no record is to blame for that."""
_ERROR_TEXT_LIMIT = 500
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]+")


class CommandFailed(Exception):
    """A non-zero exit: the record is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    code: int
    stdout: bytes
    stderr: bytes
    took_ms: float

    def check(self) -> None:
        if self.code == 0:
            return
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        said = f": {lines[-1][:_ERROR_TEXT_LIMIT]}" if lines else ""
        if self.code in _NOT_RUNNABLE:
            raise FatalError(f"the command cannot be run (exit code {self.code}){said}")
        ended = f"exit code {self.code}" if self.code > 0 else f"ended by signal {-self.code}"
        raise CommandFailed(ended + said)


def run_command(command: str, record: Record) -> CommandResult:
    """Runs it in a shell and waits; ends it, with all it started, when the record is no longer ours."""
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | command_environment(record),
        start_new_session=True,  # Ctrl-C is for us: the command may finish
    )
    given: bytes | None = record.value or b""
    while True:
        try:
            stdout, stderr = process.communicate(given, timeout=_LOOK_UP_S)
        except subprocess.TimeoutExpired:
            given = None  # is on its way already
            if cancelled():
                _end(process)
        else:
            break
    took_ms = (time.monotonic() - started) * 1000
    return CommandResult(code=process.returncode, stdout=stdout, stderr=stderr, took_ms=took_ms)


def command_environment(record: Record) -> dict[str, str]:
    """What the command is told. Texts that no environment can hold (a zero byte) are left out."""
    headers = [[name, None if value is None else os.fsdecode(value)] for name, value in record.headers]
    told: dict[str, str | None] = {
        "HEADRACE_TOPIC": record.topic,
        "HEADRACE_PARTITION": str(record.partition),
        "HEADRACE_OFFSET": str(record.offset),
        "HEADRACE_ATTEMPT": str(record.attempt),
        "HEADRACE_TIMESTAMP": None if record.timestamp_ms is None else str(record.timestamp_ms),
        "HEADRACE_KEY": None if record.key is None else os.fsdecode(record.key),
        "HEADRACE_KEY_BASE64": None if record.key is None else base64.b64encode(record.key).decode(),
        "HEADRACE_NULL_VALUE": "1" if record.value is None else None,
        "HEADRACE_HEADERS": json.dumps(headers) if headers else None,
    }
    for name, value in headers:
        told[f"HEADRACE_HEADER_{_NOT_IN_NAMES.sub('_', str(name).upper())}"] = value
    return {name: text for name, text in told.items() if text is not None and "\0" not in text}


def _end(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
