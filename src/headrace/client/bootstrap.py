# SPDX-License-Identifier: Apache-2.0
"""Bootstrap addresses: which ones a call uses, and their text as values.

Whether a broker answers there: reachable.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.errors import ClientError, NextStep

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP"

START_ONE = NextStep(
    'start a node with `headrace serve`, or name another with bootstrap="HOST:PORT"',
    "start a node with `headrace serve`, or name another with --bootstrap HOST:PORT",
)
LOG_IN = NextStep(
    'if the listener asks for a login, give config="client.properties"',
    "if the listener asks for a login, give --command-config client.properties",
)
_GIVE_ONE = NextStep('give bootstrap="HOST:PORT"', "give --bootstrap HOST:PORT")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def chosen_bootstrap(bootstrap: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The argument; without one, the variable HEADRACE_BOOTSTRAP; without both, 127.0.0.1:9092."""
    if bootstrap is not None:
        return bootstrap
    return environment.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; the port may be left out, an IPv6 host stands in brackets."""
    if not isinstance(text, str):
        raise ClientError(f"bootstrap={text!r} is not text", next_step='write it as "HOST:PORT,HOST:PORT"')
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ClientError("no bootstrap address was given", next_step=_GIVE_ONE)
    return addresses


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not a bootstrap address", next_step="write it as HOST:PORT")
    return Address(host, int(port))
