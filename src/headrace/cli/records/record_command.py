# SPDX-License-Identifier: Apache-2.0
"""`consume --exec`: runs the user's command once per record.

The value is on its stdin, the rest in its environment; exit code 0 means success.
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

from headrace.cli.output import iso_time
from headrace.client.parallel import FatalError, Record, cancelled

_LOOK_UP_S = 0.1
_NOT_RUNNABLE = (126, 127)
"""Exit codes of a shell that cannot run the command: an error of the command, not of the record."""
_ERROR_TEXT_LIMIT = 500
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]+")


class CommandFailed(Exception):
    """A non-zero exit code: the record is retried."""


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
    """Run the command in a shell; kill its process group when the partition is revoked."""
    started = time.monotonic()
    process = subprocess.Popen(  # noqa: S602
        command,
        shell=True,  # the command is the operator's own; a record reaches it by stdin and variables only
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | command_environment(record),
        start_new_session=True,  # Ctrl-C must not reach the command
    )
    given: bytes | None = record.value or b""
    while True:
        try:
            stdout, stderr = process.communicate(given, timeout=_LOOK_UP_S)
        except subprocess.TimeoutExpired:
            given = None  # already ending
            if cancelled():
                _end(process)
        else:
            break
    took_ms = (time.monotonic() - started) * 1000
    return CommandResult(code=process.returncode, stdout=stdout, stderr=stderr, took_ms=took_ms)


def command_environment(record: Record) -> dict[str, str]:
    """Environment of the command. Values with a zero byte are left out."""
    headers = [[name, None if value is None else os.fsdecode(value)] for name, value in record.headers]
    variables: dict[str, str | None] = {
        "HEADRACE_TOPIC": record.topic,
        "HEADRACE_PARTITION": str(record.partition),
        "HEADRACE_OFFSET": str(record.offset),
        "HEADRACE_ATTEMPT": str(record.attempt),
        "HEADRACE_TIMESTAMP": None if record.timestamp_ms is None else str(iso_time(record.timestamp_ms)),
        "HEADRACE_KEY": None if record.key is None else os.fsdecode(record.key),
        "HEADRACE_KEY_BASE64": None if record.key is None else base64.b64encode(record.key).decode(),
        "HEADRACE_NULL_VALUE": "1" if record.value is None else None,
        "HEADRACE_HEADERS": json.dumps(headers) if headers else None,
    }
    for name, value in headers:
        variables[f"HEADRACE_HEADER_{_NOT_IN_NAMES.sub('_', str(name).upper())}"] = value
    return {name: text for name, text in variables.items() if text is not None and "\0" not in text}


def _end(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
