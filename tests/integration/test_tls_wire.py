# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire of a TLS connection: no byte of a record in clear, whatever the size."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.cluster.engines.engine import free_ports
from tests.harness.live.certificates import Authority
from tests.harness.live.node import NodeProcess
from tests.harness.live.tls_node import create_topic

MARK = b"in-clear"
SMALL = pa.table({"value": [MARK * 10] * 20})
LARGE = pa.table({"value": [MARK * 1_000] * 2_000})  # 16 MB, sent from files in many pieces


class Recorder:
    """Passes bytes on between clients and a node, and keeps them."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", port))
        self._lock = threading.Lock()
        self._streams: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def take(self) -> list[bytes]:
        """What passed since the last call, a stream for each direction of each connection."""
        with self._lock:
            taken = [bytes(stream) for stream in self._streams]
            for stream in self._streams:
                stream.clear()
        return taken

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                outer = self._server.accept()[0]
                inner = socket.create_connection(("127.0.0.1", self._target))
                for source, target in ((outer, inner), (inner, outer)):
                    stream = bytearray()
                    self._streams.append(stream)
                    threading.Thread(target=self._pass_on, args=(source, target, stream), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, stream: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    stream += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class Recorded:
    """A node whose two listeners are reached through recorders."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(5)
        self.authority = Authority(directory / "ca")
        self.node = NodeProcess(
            directory,
            listeners=[
                f"main=127.0.0.1:{ports[0]}",
                f"plain=127.0.0.1:{ports[1]},advertise=localhost:{ports[2]}",
                f"tls=127.0.0.1:{ports[3]},advertise=localhost:{ports[4]},protocol=SSL",
            ],
            port=ports[0],
            settings={"ssl.keystore.location": str(self.authority.issue("node"))},
        )
        self.plain, self.tls = Recorder(ports[2], ports[1]), Recorder(ports[4], ports[3])
        self.plain_address, self.tls_address = f"localhost:{ports[2]}", f"localhost:{ports[4]}"
        self.security = headrace.Security(tls=self.authority.client_context())


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    recorded = Recorded(tmp_path)
    with recorded.node:
        yield recorded
    recorded.plain.close()
    recorded.tls.close()


def drop_page_cache(data: Path) -> None:
    for path in data.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def check_in_clear(streams: list[bytes], at_least: int, *, expected: bool) -> None:
    assert sum(map(len, streams)) > at_least
    assert any(MARK in stream for stream in streams) is expected


@pytest.mark.parametrize(("table", "size"), [(SMALL, 1_000), (LARGE, 16_000_000)], ids=["small", "large"])
def test_records_are_encrypted_both_ways(recorded: Recorded, table: pa.Table, size: int) -> None:
    create_topic(recorded.node.bootstrap, "t")
    options = {"bootstrap": recorded.tls_address, "security": recorded.security}
    assert headrace.write(table, "t", compression="none", **options).records == len(table)
    check_in_clear(recorded.tls.take(), size, expected=False)
    for drop in (False, True):
        if drop:
            drop_page_cache(recorded.node.data)
        back = headrace.topic("t", **options).select("value").to_arrow()
        assert back["value"].to_pylist() == table["value"].to_pylist()
        check_in_clear(recorded.tls.take(), size, expected=False)
    # The same over the plain listener is found in clear: the check above would notice it.
    assert len(headrace.topic("t", bootstrap=recorded.plain_address).to_arrow()) == len(table)
    check_in_clear(recorded.plain.take(), size, expected=True)
