# SPDX-License-Identifier: Apache-2.0
"""Connections of the real world: those within the host are not paced, all others as the system says."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from headrace.realworld import RealNetwork, unpace_loopback
from tests.harness.left_out import leave_out

PACING = b"bbr"


def congestion_control(of: socket.socket) -> bytes:
    return of.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def need_pacing() -> None:
    """Where the system has chosen it for new connections."""
    if not hasattr(socket, "TCP_CONGESTION"):
        leave_out("pacing of connections", "needs Linux")
    with closing(socket.socket()) as probe:
        if congestion_control(probe) != PACING:
            leave_out("pacing of connections", "needs net.ipv4.tcp_congestion_control=bbr")


class Accepting(asyncio.Protocol):
    def __init__(self) -> None:
        self.accepted: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.accepted.set_result(congestion_control(transport.get_extra_info("socket")))
        transport.close()


async def accepted_with() -> bytes:
    """The congestion control of a connection that a loopback listener has accepted."""
    protocol = Accepting()
    listener = await RealNetwork().listen(lambda: protocol, "127.0.0.1", 0)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        accepted = await protocol.accepted
        writer.close()
        return accepted
    finally:
        listener.close()


def test_connections_to_a_loopback_listener_are_not_paced() -> None:
    need_pacing()
    assert asyncio.run(accepted_with()) == b"reno"


class Paced:
    """A listening socket of a system that paces, at any address."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.chosen: list[bytes] = []

    def getsockname(self) -> tuple[str, int]:
        return self.host, 9092

    def getsockopt(self, *_: int) -> bytes:
        return PACING + bytes(13)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        self.chosen.append(value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1"])
def test_any_loopback_address_counts(host: str) -> None:
    listening = Paced(host)
    unpace_loopback([listening])
    assert listening.chosen == [b"reno"]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "fe80::1%eth0"])
def test_a_listener_that_others_can_reach_keeps_what_the_system_says(host: str) -> None:
    listening = Paced(host)
    unpace_loopback([listening])
    assert listening.chosen == []
