# SPDX-License-Identifier: Apache-2.0
"""The interface of an engine, which starts and measures one broker process.

Independent of a broker's settings. Two engines implement it: kafka.py and headrace.py; users are `bench`, the
compatibility tests and `headrace cluster` (supervisor.py).
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.errors import HeadraceError

_POLL_SECONDS = 0.002
_LOG_LINES_SHOWN = 15


class EngineError(HeadraceError):
    """A broker is not installed, did not start, or died; the message says what to do."""


class Engine(Protocol):
    """Starts one node. `settings` are broker settings by their Kafka (or Headrace) names."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def prepare(self, data_dir: Path, settings: Mapping[str, str]) -> PreparedNode:
        """Configure and format the node, once before its first start."""

    def start(self, data_dir: Path, settings: Mapping[str, str]) -> RunningNode:
        """Prepare, launch, and return when the node answers requests."""


class SpawnedNode(Protocol):
    """What a supervisor needs of a process that it has started."""

    @property
    def process(self) -> subprocess.Popen[bytes]: ...

    @property
    def pid(self) -> int: ...

    def wait_ready(self, timeout_ms: int) -> None:
        """Raises EngineError when it ends before it is ready, or takes longer."""


class Spawnable(Protocol):
    def spawn(self) -> SpawnedNode: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNode:
    """A node that can be launched repeatedly on the same data directory."""

    engine: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    data_dir: Path
    log_path: Path
    host: str
    port: int
    security: SecuritySettings = NO_SECURITY
    """How to connect to it."""

    def launch(self, *, ready_timeout_ms: int = 60_000) -> RunningNode:
        """Start the process; returns as soon as it has answered a first Metadata request."""
        started = time.monotonic()
        node = self.spawn()
        node.wait_ready(ready_timeout_ms)
        node.ready_after_ms = (time.monotonic() - started) * 1000
        return node

    def spawn(self) -> RunningNode:
        """Start the process without waiting: a node may need the others to become ready."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal must not reach the broker
            )
        return RunningNode(prepared=self, process=process)


@dataclass(slots=True, kw_only=True)
class RunningNode:
    """One live broker process."""

    prepared: PreparedNode
    process: subprocess.Popen[bytes]
    ready_after_ms: float = field(default=0.0)
    """From the launch of the process to its first reply."""

    @property
    def engine(self) -> str:
        return self.prepared.engine

    @property
    def host(self) -> str:
        return self.prepared.host

    @property
    def port(self) -> int:
        return self.prepared.port

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self.prepared.data_dir

    @property
    def log_path(self) -> Path:
        return self.prepared.log_path

    @property
    def pid(self) -> int:
        return self.process.pid

    def pids(self) -> tuple[int, ...]:
        return read_process_tree(self.pid).pids

    def cpu_seconds(self) -> float:
        return read_process_tree(self.pid).cpu_seconds

    def rss_bytes(self) -> int:
        return read_process_tree(self.pid).rss_bytes

    def wait_ready(self, timeout_ms: int) -> None:
        deadline = time.monotonic() + timeout_ms / 1000
        while not answers(self.host, self.port, security=self.prepared.security):
            if self.process.poll() is not None:
                raise EngineError(
                    f"{self.engine} ended with exit code {self.process.returncode} before it was ready; "
                    f"the end of {self.log_path}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise EngineError(
                    f"{self.engine} did not answer on {self.bootstrap} within {timeout_ms / 1000:.0f} s; "
                    f"the end of {self.log_path}:\n{self.log_tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def log_tail(self) -> str:
        if not self.log_path.exists():
            return "(no log)"
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES_SHOWN:])

    def stop(self, timeout_ms: int = 30_000) -> None:
        """Shut it down cleanly; kill it after the timeout."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL for the node and its child processes."""
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def __enter__(self) -> RunningNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_ports(count: int) -> list[int]:
    """Currently unused ports on the loopback address."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def command_environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **extra}


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def write_private(path: Path, text: str) -> None:
    """Replaces the file by one of mode 0600."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def first_line(command: Sequence[str]) -> str | None:
    """The first line that a program prints, or None when it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else None


_API_VERSIONS_V0 = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"ready")
_METADATA_V1_NO_TOPICS = struct.pack(">ihhih5si", 19, 3, 1, 2, 5, b"ready", 0)


def answers(
    host: str, port: int, *, timeout_ms: int = 2000, security: SecuritySettings = NO_SECURITY
) -> bool:
    """True when a broker there answers ApiVersions and its Metadata names at least one broker."""
    if security != NO_SECURITY:
        return _answers_securely(host, port, timeout_ms, security)
    try:
        with socket.create_connection((host, port), timeout=timeout_ms / 1000) as connection:
            connection.sendall(_API_VERSIONS_V0)
            _read_frame(connection)
            connection.sendall(_METADATA_V1_NO_TOPICS)
            reply = _read_frame(connection)
    except OSError:
        return False
    (brokers,) = struct.unpack_from(">i", reply, 4)  # after the correlation id
    return bool(brokers > 0)


def _answers_securely(host: str, port: int, timeout_ms: int, security: SecuritySettings) -> bool:
    from headrace.client.cluster import Cluster
    from headrace.client.errors import ClientError
    from headrace.client.sasl import AuthenticationFailed
    from headrace.client.tools.brokers import Brokers, run

    async def ask() -> bool:
        target = Cluster(bootstrap=f"{host}:{port}", security=security)
        async with Brokers(target, timeout_ms=timeout_ms) as brokers:
            return bool(await brokers.node_ids())

    try:
        return run(ask())
    except AuthenticationFailed:
        return True  # it serves, and a password that was changed is no reason to wait
    except ClientError:
        return False


def _read_frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _read_exactly(connection, 4))
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("closed before the reply was complete")
        received += chunk
    return bytes(received)
