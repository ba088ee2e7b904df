# SPDX-License-Identifier: Apache-2.0
"""Reads what a node of Headrace tells of its connections: configs `headrace.clients.N`, pieces of JSON.

Lenient: what a newer node says in another form is left out. Read next: clients.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CLIENTS = "headrace.clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedClient:
    principal: str | None = None
    client_id: str | None = None
    software: str | None = None
    version: str | None = None
    host: str | None = None
    port: int | None = None
    listener: str | None = None
    since_ms: int | None = None
    requests: Mapping[str, int] = field(default_factory=dict)
    """By API."""
    last_error: Mapping[str, Any] | None = None
    """api, error, at."""


def read_clients(pieces: Iterable[str | None]) -> tuple[list[ConnectedClient], int]:
    """The clients, and how many the node left out: each piece says the same of that."""
    clients: list[ConnectedClient] = []
    more = 0
    for piece in pieces:
        document = _object(piece)
        listed = document.get("clients")
        if isinstance(listed, list):
            clients += [_client(each) for each in listed if isinstance(each, dict)]
        more = max(more, _number(document.get("more")) or 0)
    return clients, more


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _client(entry: dict[str, Any]) -> ConnectedClient:
    return ConnectedClient(
        principal=_text(entry.get("principal")),
        client_id=_text(entry.get("client_id")),
        software=_text(entry.get("software_name")),
        version=_text(entry.get("software_version")),
        host=_text(entry.get("host")),
        port=_number(entry.get("port")),
        listener=_text(entry.get("listener")),
        since_ms=_number(entry.get("since")),
        requests=_counts(entry.get("requests")),
        last_error=_error(entry.get("last_error")),
    )


def _counts(found: Any) -> dict[str, int]:
    return (
        {str(name): _number(count) or 0 for name, count in found.items()} if isinstance(found, dict) else {}
    )


def _error(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    return {
        "api": _text(entry.get("api")),
        "error": _text(entry.get("error")),
        "at": _number(entry.get("at")),
    }


def _text(found: Any) -> str | None:
    return None if found is None else str(found)


def _number(found: Any) -> int | None:
    return int(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None
