"""Bootstrap addresses: reading them, and a quick look whether anyone is there.

librdkafka retries in silence until its time-out; one question before tells the user the reason at once.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from headrace.client.errors import ClientError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092

_CORRELATION_ID = b"hdrc"
_ASK = b"\x00\x00\x00\x0a\x00\x12\x00\x00" + _CORRELATION_ID + b"\xff\xff"
"""ApiVersions in version 0, without a client id: the one request that every broker answers at once."""

START_ONE = "start a node with `headrace serve`, or name another with --bootstrap HOST:PORT"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; the port may be left out, an IPv6 host stands in brackets."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ClientError("no bootstrap address was given", next_step="use --bootstrap HOST:PORT")
    return addresses


def check_reachable(bootstrap: str, *, timeout_ms: int = 5000) -> None:
    """Raises with the reason unless one of the addresses answers as a Kafka broker does."""
    reasons = []
    for address in parse_bootstrap(bootstrap):
        reason = _why_not(address, timeout_ms / 1000)
        if reason is None:
            return
        reasons.append(f"{address} ({reason})")
    raise ClientError(
        f"no Kafka broker can be reached at {', '.join(reasons)}", next_step=START_ONE, code="_TRANSPORT"
    )


def _why_not(address: Address, timeout_s: float) -> str | None:
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(_ASK)
            with connection.makefile("rb") as stream:
                answer = stream.read(8)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    if len(answer) < 8 or answer[4:8] != _CORRELATION_ID:
        return "something answers there, but not as a Kafka broker"
    return None


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not a bootstrap address", next_step="write it as HOST:PORT")
    return Address(host, int(port))
