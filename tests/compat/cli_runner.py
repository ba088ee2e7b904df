# SPDX-License-Identifier: Apache-2.0
"""Runs `headrace` commands: inside this process as in a pipe, as processes, on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from headrace.cli import main
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess

TIMEOUT_S = 60
COMMAND = [sys.executable, "-m", "headrace.cli.main"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The columns of the lines in a pipe."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def ok(self) -> Ended:
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


class Cli:
    def __init__(self, bootstrap: str, data: Path | None = None) -> None:
        self.data = data
        self.environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap, "TERM": "xterm-256color"}
        self.environment.pop("NO_COLOR", None)
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Ended:
        """As in a pipe, but inside this process: a quarter of the time that a new interpreter takes."""
        out, err = _captured(), _captured()
        given = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin))
        with _streams(given, out, err), _bootstrap(self.bootstrap):
            code = main.run(list(arguments))
        return Ended(code, _text(out), _text(err))

    def prepare(self, *arguments: str, stdin: str | bytes = b"") -> None:
        """What a test needs before it comes to its point."""
        self(*arguments, stdin=stdin).ok()

    def process(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """In a pipe, as a process of its own."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environment,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def on_terminal(
        self, *arguments: str, typed: str = "", piped: bytes | None = None, columns: int = 140
    ) -> Ended:
        """Both streams in `out`; `piped` feeds stdin from a pipe while the output is a terminal."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environment | {"COLUMNS": str(columns), "LINES": "50"},
            stdin=slave if piped is None else subprocess.PIPE,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        if piped is not None:
            assert process.stdin is not None
            process.stdin.write(piped)
            process.stdin.close()
        if typed:
            os.write(master, typed.encode())
        out = _read_until_closed(master)
        os.close(master)
        return Ended(process.wait(TIMEOUT_S), out.replace("\r\n", "\n"), "")


@contextlib.contextmanager
def running_cluster(kind: str, directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cli]:
    """A node of Headrace or of Apache Kafka, and commands that talk to it. What is missing skips by name."""
    if kind == "headrace":
        with NodeProcess(directory, settings=settings) as node:
            yield Cli(node.bootstrap, node.data)
        return
    missing = why_kafka_is_missing()
    if missing:
        leave_out("Apache Kafka", missing)
    with KafkaEngine().start(directory, settings or {}) as kafka:
        yield Cli(kafka.bootstrap, kafka.data_dir)


def plain(text: str) -> str:
    """Without the colours that rich adds."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def wait_for_line(process: subprocess.Popen[bytes], wanted: Callable[[bytes], bool]) -> list[bytes]:
    """Lines of stdout up to the wanted one; the process is killed when it does not come."""
    assert process.stdout is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    lines: list[bytes] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if wanted(line):
                return lines
    finally:
        watchdog.cancel()
    raise AssertionError(f"ended early: {lines}")


def interrupt(process: subprocess.Popen[bytes]) -> Ended:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Ended(process.returncode, out.decode(), err.decode())


@contextlib.contextmanager
def _streams(stdin: TextIO, stdout: TextIO, stderr: TextIO) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _bootstrap(address: str) -> Iterator[None]:
    before = os.environ.get("HEADRACE_BOOTSTRAP")
    os.environ["HEADRACE_BOOTSTRAP"] = address
    try:
        yield
    finally:
        del os.environ["HEADRACE_BOOTSTRAP"]
        if before is not None:
            os.environ["HEADRACE_BOOTSTRAP"] = before


def _captured() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(errors="surrogateescape")


def _read_until_closed(master: int) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    out = b""
    while time.monotonic() < deadline:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if not data:
            break
        out += data
    return out.decode(errors="replace")
