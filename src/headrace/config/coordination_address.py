# SPDX-License-Identifier: Apache-2.0
"""Where the coordination store is, as text: `sqlite`, `sqlite:DIRECTORY` or `zk://HOST:PORT,.../PATH`.

Reads and checks the text; opens nothing. Read next: coordination/open_store.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import ConfigError

_SQLITE, _ZOOKEEPER = "sqlite", "zk://"
_ZOOKEEPER_PORT = 2181
_DEFAULT_ROOT = "/headrace"
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ROOT = re.compile(r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]+)+")
FORMS = "sqlite, sqlite:DIRECTORY or zk://HOST:PORT,HOST:PORT/PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteAddress:
    """Nodes of one host. None: in the node's own data directory, so that the node is alone."""

    directory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAddress:
    """Nodes of several hosts."""

    hosts: str
    """As ZooKeeper's clients take them: `h1:2181,h2:2181`."""
    root: str


CoordinationAddress = SqliteAddress | ZooKeeperAddress


def parse_coordination(text: str) -> CoordinationAddress:
    """Raises ConfigError that names what is wrong in the text."""
    if text == _SQLITE:
        return SqliteAddress()
    if text.startswith(_ZOOKEEPER):
        return _parse_zookeeper(text)
    kind, colon, directory = text.partition(":")
    if kind != _SQLITE or not colon:
        raise ConfigError(f"{text!r} must be {FORMS}")
    if not directory or directory.startswith("//"):
        raise ConfigError(f"{text!r} names no directory: sqlite:DIRECTORY, on a local disk")
    return SqliteAddress(directory=directory)


def coordination_problem(text: str) -> str | None:
    try:
        parse_coordination(text)
    except ConfigError as error:
        return str(error)
    return None


def _parse_zookeeper(text: str) -> ZooKeeperAddress:
    authority, slash, path = text.removeprefix(_ZOOKEEPER).partition("/")
    root = f"/{path.rstrip('/')}" if slash and path.strip("/") else _DEFAULT_ROOT
    if not _ROOT.fullmatch(root):
        raise ConfigError(f"{text!r}: the path {root!r} may hold letters, digits, '.', '_', '-' and '/'")
    return ZooKeeperAddress(hosts=",".join(_server(text, each) for each in authority.split(",")), root=root)


def _server(text: str, server: str) -> str:
    host, port = server, str(_ZOOKEEPER_PORT)
    if not server.endswith("]") and ":" in server:  # a bare IPv6 address ends with its bracket
        host, _, port = server.rpartition(":")
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{text!r}: {server!r} is not HOST:PORT; separate the ensemble's servers by commas")
    if not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ConfigError(f"{text!r}: {server!r} has no port between 1 and 65535")
    return f"{host}:{port}"
