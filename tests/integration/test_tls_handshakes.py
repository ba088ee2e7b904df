# SPDX-License-Identifier: Apache-2.0
"""A TLS listener under strain: abandoned handshakes, and certificates that change while clients work."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.broker.network.connections import MOST_HANDSHAKES
from headrace.client.connection import Connection
from headrace.client.security import Security
from headrace.client.tools.brokers import run
from tests.harness.live.certificates import Authority
from tests.harness.live.tls_node import TlsNode
from tests.harness.waiting import wait_until

ABANDONED = 600
CONNECT_WITHIN_S = 2.0
OTHER_DESCRIPTORS = 100


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsNode]:
    with TlsNode(tmp_path, authority=Authority(tmp_path / "ca")) as tls:
        yield tls


def handshake(tls: TlsNode, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that the node shows."""
    with (
        socket.create_connection(("127.0.0.1", tls.port), 10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as client,
    ):
        certificate = client.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_abandoned_handshakes_delay_nobody_and_end(tls: TlsNode) -> None:
    context = tls.authority.client_context(tls.authority.issue("alice"))
    hello = client_hello(context)
    with ExitStack() as stack:
        for number in range(ABANDONED):
            abandoned = stack.enter_context(socket.create_connection(("127.0.0.1", tls.port), 10))
            abandoned.sendall((b"", hello[:50], hello)[number % 3])
        for _ in range(10):
            started = time.monotonic()
            handshake(tls, context)
            assert time.monotonic() - started < CONNECT_WITHIN_S
        assert MOST_HANDSHAKES <= tls.node.descriptors() < MOST_HANDSHAKES + OTHER_DESCRIPTORS
        wait_until(lambda: tls.node.descriptors() < OTHER_DESCRIPTORS, "the deadline ends them")
    assert "closing connection" in tls.node.log_path.read_text()


class Load:
    """Requests on new and on lasting connections, until told to stop."""

    def __init__(self, tls: TlsNode, context: ssl.SSLContext) -> None:
        self._tls = tls
        self._context = context
        self._stop = threading.Event()
        self.requests = self.connections = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            run(self._work())
        except Exception as error:  # noqa: BLE001  raised in the thread of the test
            self.failure = error

    async def _work(self) -> None:
        options = Security(tls=self._context).open_options()
        lasting = await Connection.open("localhost", self._tls.port, **options)
        while not self._stop.is_set():
            fresh = await Connection.open("localhost", self._tls.port, **options)
            for connection in (lasting, fresh):
                await connection.call(3, {"topics": [], "allow_auto_topic_creation": False})
                self.requests += 1
            fresh.abort()
            self.connections += 1
        lasting.abort()


def test_certificates_change_under_load_without_a_failed_request(tls: TlsNode) -> None:
    alice = tls.authority.issue("alice")
    context = tls.authority.client_context(alice)
    with Load(tls, context) as load:
        first = handshake(tls, context)
        tls.key_store.write_text("not a certificate")
        wait_until(lambda: "The certificates loaded before stay in use" in tls.node.log_tail())
        assert handshake(tls, context) == first
        replacement = tls.authority.issue("node-again").read_bytes()
        tls.key_store.write_bytes(replacement)
        wait_until(lambda: handshake(tls, context) != first, timeout_s=10)
        done = load.connections
        wait_until(lambda: load.connections > done + 5)
    assert load.requests > 20
    assert "the certificates of listener TLS were loaded again" in tls.node.log_path.read_text()


def test_an_authority_that_is_removed_is_trusted_no_longer(tls: TlsNode, tmp_path: Path) -> None:
    context = tls.authority.client_context(tls.authority.issue("alice"))
    other = Authority(tmp_path / "other", "other")
    bob = tls.authority.client_context(other.issue("bob"))
    assert accepted(tls, context)
    assert not accepted(tls, bob)
    tls.authority.ca.write_bytes(other.ca.read_bytes())
    wait_until(lambda: accepted(tls, bob), timeout_s=10)
    assert not accepted(tls, context)


def accepted(tls: TlsNode, context: ssl.SSLContext) -> bool:
    """Whether the node answers a request: with TLS 1.3 the client learns of a refusal only then."""
    request = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
    try:
        with (
            socket.create_connection(("127.0.0.1", tls.port), 10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as client,
        ):
            client.sendall(len(request).to_bytes(4, "big") + request)
            return bool(client.recv(4))
    except OSError:
        return False
