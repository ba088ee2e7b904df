# SPDX-License-Identifier: Apache-2.0
"""TLS of accepted connections: bytes in order, nothing in clear, handshakes within limits."""

from __future__ import annotations

import logging
import random
import ssl

import pytest

from headrace.broker.network.connections import HANDSHAKE_TICKS, MOST_HANDSHAKES
from headrace.principal import ANONYMOUS, user
from headrace.tls.context import server_context
from headrace.world import TlsMaterial
from tests.harness.broker.fake_clients import Server, frame
from tests.harness.broker.tls_client import TlsClient
from tests.harness.live.certificates import Authority


class Certificates:
    def __init__(self, authority: Authority) -> None:
        pem = authority.issue("node").read_bytes()
        self.material = TlsMaterial(
            certificate_chain=pem, private_key=pem, authorities=authority.ca.read_bytes()
        )
        self.server = server_context(self.material)
        self.client = authority.client_context()
        self.alice = authority.client_context(authority.issue("alice"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(Authority(tmp_path_factory.mktemp("ca")))


def connect(server: Server, certificates: Certificates) -> TlsClient:
    return TlsClient(server, server_context=certificates.server, client_context=certificates.client)


def connected(server: Server, certificates: Certificates) -> TlsClient:
    client = connect(server, certificates)
    client.shake_hands()
    return client


@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 20])
def test_frames_arrive_whole_in_whatever_pieces_the_network_brings(
    certificates: Certificates, piece: int
) -> None:
    server = Server()
    client = connected(server, certificates)
    bodies = [b"a", b"bc" * 40, b"d" * 3000, random.Random(piece).randbytes(70_000)]
    client.send(b"".join(map(frame, bodies)), piece)
    assert server.seen == bodies
    assert client.receive() == b"".join(bodies)


def test_large_frames_and_pauses_lose_nothing(certificates: Certificates) -> None:
    server = Server()
    client = connected(server, certificates)
    large = bytes(range(256)) * 8_000
    client.send(frame(b"block") + frame(large) + frame(b"after") * 3)
    assert server.seen == [b"block"]
    assert not client.transport.reading
    server.finish()
    assert client.receive() == b"block" + large + b"after" * 3


def test_file_ranges_are_encrypted_and_wait_for_a_slow_client(certificates: Certificates) -> None:
    server = Server()
    client = connected(server, certificates)
    client.transport.room = 100_000
    body = b"slice" + b"SECRET" * 200_000
    client.send(frame(body[:1_200_000]))
    assert len(client.transport.buffered) < 1 << 20
    for _ in range(50):
        client.transport.client_reads(100_000)
        server.world.tasks.run_soon()
    assert client.receive() == b"<" + body[:1_200_000] + b">"
    assert b"SECRET" not in client.transport.sent


def test_the_socket_is_not_given_away(certificates: Certificates) -> None:
    client = connected(Server(), certificates)
    assert client.connection._transport.get_extra_info("socket") is None
    assert client.connection.peer == "127.0.0.1:5"


def test_a_close_is_marked_so_that_the_client_knows_that_nothing_is_missing(
    certificates: Certificates,
) -> None:
    client = connected(Server(), certificates)
    client.connection.close()
    assert client.transport.closing
    client.receive()
    assert client.ended


def test_a_client_that_ends_is_closed(certificates: Certificates) -> None:
    client = connected(Server(), certificates)
    with pytest.raises(ssl.SSLWantReadError):
        client._tls.unwrap()
    client._exchange()
    assert client.transport.closing


@pytest.mark.parametrize(
    ("first", "line"),
    [
        (frame(b"\0\x12\0\x03"), "the client has to use TLS (security.protocol=SSL)"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client has to use TLS"),
        (b"\x16\x03\x01\x00\x05aaaaa", "TLS handshake failed"),
    ],
)
def test_what_is_no_handshake_is_refused_with_one_line(
    certificates: Certificates, first: bytes, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(Server(), certificates)
    client.transport.arrive(first)
    assert client.transport.ended
    (message,) = caplog.messages
    assert line in message
    assert "closing connection from 127.0.0.1:5 on tls" in message


def test_tls_on_a_plain_listener_is_named(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    hello = connect(server, certificates)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        certificates.client.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    _, transport = server.connect()
    transport.arrive(outgoing.read())
    assert transport.ended
    assert "begins a TLS handshake; this listener has none" in caplog.text
    assert not hello.transport.ended


# Limits


def test_a_handshake_counts_as_a_connection_from_its_first_byte_on(certificates: Certificates) -> None:
    server = Server(max_connections=2)
    for _ in range(2):
        connect(server, certificates).begin()
    refused = connect(server, certificates)
    assert refused.transport.aborted
    assert server.connections.metrics.connections == 2


def test_a_handshake_has_a_deadline(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    silent, begun, done = (connect(server, certificates) for _ in range(3))
    begun.begin()
    done.shake_hands()
    server.ticks(HANDSHAKE_TICKS - 1)
    assert not silent.transport.ended
    server.ticks(1)
    assert silent.transport.ended
    assert begun.transport.ended
    assert not done.transport.ended
    assert "no TLS handshake within 10 s" in caplog.text


def test_the_oldest_handshake_gives_way_when_there_are_too_many(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    server = Server(max_connections=10_000, max_connections_per_ip=10_000)
    abandoned = [connect(server, certificates) for _ in range(MOST_HANDSHAKES)]
    client = connected(server, certificates)
    assert [each.transport.aborted for each in abandoned[:2]] == [True, False]
    client.send(frame(b"served"))
    assert client.receive() == b"served"
    connect(server, certificates)
    assert not client.transport.ended
    assert not abandoned[1].transport.ended


# Who it is


def test_the_certificate_says_who_the_client_is(certificates: Certificates) -> None:
    asking = server_context(TlsMaterial(
        certificate_chain=certificates.material.certificate_chain,
        private_key=certificates.material.private_key,
        authorities=certificates.material.authorities,
        client_auth="requested",
    ))  # fmt: skip
    for context, login, expected in (
        (certificates.alice, False, user("shown")),
        (certificates.client, False, ANONYMOUS),
        (certificates.alice, True, ANONYMOUS),
    ):
        client = TlsClient(
            Server(),
            server_context=asking,
            client_context=context,
            principal_of=lambda certificate: ANONYMOUS if certificate is None else user("shown"),
            needs_login=login,
        )
        client.shake_hands()
        assert client.connection.principal == expected
        assert not client.connection.in_handshake
