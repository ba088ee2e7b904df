# SPDX-License-Identifier: Apache-2.0
"""Links between nodes on the loopback as proxies that can be cut one way, where there are no namespaces (T8).

Each node is reached through a proxy in front of it, by clients and by its peers; who calls is known by the
client id of the first request. What goes over a cut link waits until it is mended, as TCP would send it
again. Read next: lan.py (the same with real networks), network_cuts.py.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from dataclasses import replace

from headrace.broker.replication.peers import PEER_CLIENT
from headrace.cluster.engines.engine import PreparedNode, free_ports
from headrace.cluster.plan import HOST, Member
from tests.harness.live.lan import OUTSIDE
from tests.harness.waiting import poll

_HEADER_BYTES = 14
"""Of a request up to the length of its client id, with the length of the frame."""


class ProxiedLinks:
    """Hosts are named as on a Lan. Use as a context manager."""

    def __init__(self, hosts: list[str]) -> None:
        self._hosts = hosts
        self._ports = dict(zip(hosts, free_ports(len(hosts)), strict=True))
        self._servers = {host: socket.create_server((HOST, 0)) for host in hosts}
        self._sockets: list[socket.socket] = []
        self._cuts: set[tuple[str, str]] = set()
        self._stopping = False
        for host in hosts:
            self._spawn(self._accept, host)

    def __enter__(self) -> ProxiedLinks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        for each in (*self._servers.values(), *self._sockets):
            _end(each)
            each.close()

    def place(self, member: Member) -> Member:
        return replace(member, port=self._front(self._hosts[member.node_id]))

    def dress(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        host = self._hosts[node_id]
        front = f"{HOST}:{self._front(host)}"
        behind = f"main={HOST}:{self._ports[host]},advertise={front}"
        return replace(
            prepared, command=tuple(behind if part == f"main={front}" else part for part in prepared.command)
        )

    def cut(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def heal_all(self) -> None:
        self._cuts.clear()

    # -- private -------------------------------------------------------------------------------------------

    def _front(self, host: str) -> int:
        port: int = self._servers[host].getsockname()[1]
        return port

    def _spawn(self, target: object, *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self, host: str) -> None:
        while not self._stopping:
            try:
                near, _ = self._servers[host].accept()
            except OSError:
                return
            self._sockets.append(near)
            self._spawn(self._serve, near, host)

    def _serve(self, near: socket.socket, host: str) -> None:
        try:
            first = near.recv(1 << 16)
            while 0 < len(first) < _HEADER_BYTES:
                first += near.recv(1 << 16)
            caller = _caller(first)
            self._wait_for((caller, host))
            far = socket.create_connection((HOST, self._ports[host]))
            self._sockets.append(far)
            far.sendall(first)
        except OSError:
            _end(near)
            return
        self._spawn(self._pump, near, far, (caller, host))
        self._pump(far, near, (host, caller))

    def _pump(self, source: socket.socket, sink: socket.socket, link: tuple[str, str]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._wait_for(link)
                sink.sendall(data)
        self._wait_for(link)
        for each in (source, sink):
            _end(each)

    def _wait_for(self, link: tuple[str, str]) -> None:
        poll(lambda: link not in self._cuts or self._stopping, timeout_s=math.inf)


def _caller(request: bytes) -> str:
    """The host that a request comes from: nodes say who they are."""
    size = max(int.from_bytes(request[_HEADER_BYTES - 2 : _HEADER_BYTES], "big", signed=True), 0)
    client_id = request[_HEADER_BYTES : _HEADER_BYTES + size].decode(errors="replace")
    number = client_id.removeprefix(PEER_CLIENT)
    return f"node{number}" if client_id.startswith(PEER_CLIENT) and number.isdigit() else OUTSIDE


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
