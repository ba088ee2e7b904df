"""Bootstrap addresses as text and as values. Whether a broker answers there: reachable.py."""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.errors import ClientError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092

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


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not a bootstrap address", next_step="write it as HOST:PORT")
    return Address(host, int(port))
