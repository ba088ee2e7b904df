# SPDX-License-Identifier: Apache-2.0
"""ZooKeeper servers for tests and trials: one server, or an ensemble on this machine.

A production cluster runs its own ensemble on several hosts. Read next: zookeeper_jars.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cluster.engines.engine import EngineError, command_environment, free_ports, write_properties
from headrace.cluster.engines.zookeeper_jars import ZooKeeperJars, find_zookeeper_jars

_JVM_OPTIONS = (
    "-Xmx256M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dlog4j2.level=INFO",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_POLL_SECONDS = 0.05
_LOG_LINES_SHOWN = 15
_LOOPBACK = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class ZooKeeperServer:
    """One server process and its directory, on which it can be restarted."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path
    port: int
    host: str = _LOOPBACK
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def launch(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, timeout_ms: int = 30_000) -> None:
        """Wait until it serves requests; in an ensemble that needs a quorum."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not serves(self.port, self.host):
            if self.process is None or self.process.poll() is not None:
                raise EngineError(f"ZooKeeper ended before it was ready; its log:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise EngineError(f"ZooKeeper did not serve on {self.address}; its log:\n{self._log_tail()}")
            time.sleep(_POLL_SECONDS)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """SIGKILL; idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Returns when it has stopped, not only been told to."""
        self._signal(signal.SIGSTOP)
        if self.process is not None:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            os.kill(self.process.pid, number)

    def _log_tail(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperEnsemble:
    servers: tuple[ZooKeeperServer, ...]

    @property
    def hosts(self) -> str:
        """The addresses for a `zk://` URL."""
        return ",".join(server.address for server in self.servers)

    @property
    def leader(self) -> ZooKeeperServer:
        """The leader of the ensemble."""
        found = [server for server in self.servers if leads(server.port, server.host)]
        if not found:
            raise EngineError(f"none of the ZooKeeper servers {self.hosts} is leader")
        return found[0]

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> ZooKeeperEnsemble:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextmanager
def start_zookeeper(directory: Path, *, port: int | None = None) -> Iterator[ZooKeeperServer]:
    """One server on loopback, ready to serve; killed at the end. EngineError says why there is none.

    `port`: default a free one. `address` of the server makes the `zk://` URL.
    """
    if port is not None and serves(port):
        raise EngineError(f"a ZooKeeper serves on {_LOOPBACK}:{port} already: stop it, or take another port")
    address = _LOOPBACK, port or free_ports(1)[0]
    server = _prepare_server(directory, 1, address, {}, {}, find_zookeeper_jars())
    try:
        server.start()
        yield server
    finally:
        server.kill()


def prepare_zookeeper(
    directory: Path,
    *,
    servers: int = 1,
    settings: Mapping[str, str] | None = None,
    jars: ZooKeeperJars | None = None,
    hosts: Sequence[str] | None = None,
) -> ZooKeeperEnsemble:
    """Configuration files for `servers` processes; `settings` by their names in zoo.cfg.

    `hosts`: the address of each; default: loopback.
    """
    jars = jars or find_zookeeper_jars()
    hosts = hosts or [_LOOPBACK] * servers
    ports = free_ports(3 * servers)
    members = {
        f"server.{n + 1}": f"{host}:{ports[3 * n]}:{ports[3 * n + 1]};{host}:{ports[3 * n + 2]}"
        for n, host in enumerate(hosts)
    }
    return ZooKeeperEnsemble(
        servers=tuple(
            _prepare_server(
                directory / f"server-{n + 1}", n + 1, (host, ports[3 * n + 2]), members, settings or {}, jars
            )
            for n, host in enumerate(hosts)
        )
    )


def _prepare_server(
    folder: Path,
    number: int,
    address: tuple[str, int],
    members: Mapping[str, str],
    settings: Mapping[str, str],
    jars: ZooKeeperJars,
) -> ZooKeeperServer:
    host, port = address
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    alone = len(members) <= 1
    own = (
        {"clientPort": str(port), "clientPortAddress": host}
        if alone
        else {"initLimit": "20", "syncLimit": "10", **members}
    )
    defaults = {
        "dataDir": str(data),
        "tickTime": "500",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
        "maxClientCnxns": "0",
    }
    (data / "myid").write_text(f"{number}\n")
    write_properties(folder / "zoo.cfg", {**defaults, **own, **settings})
    return ZooKeeperServer(
        command=(jars.java, *_JVM_OPTIONS, _MAIN_CLASS, str(folder / "zoo.cfg")),
        environment=command_environment({"CLASSPATH": jars.class_path}),
        log_path=folder / "server.log",
        host=host,
        port=port,
    )


def serves(port: int, host: str = _LOOPBACK) -> bool:
    """True when the server replies to `srvr` with its mode, which needs a quorum."""
    return b"Mode:" in _ask_srvr(port, host)


def leads(port: int, host: str = _LOOPBACK) -> bool:
    """True when the server is the leader of its ensemble."""
    return b"Mode: leader" in _ask_srvr(port, host)


def _ask_srvr(port: int, host: str) -> bytes:
    """The reply to `srvr`; empty without one."""
    answer = bytearray()
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return b""
    return bytes(answer)
