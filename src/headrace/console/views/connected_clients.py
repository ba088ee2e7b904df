# SPDX-License-Identifier: Apache-2.0
"""Reads what a node of Headrace tells of its connections: the config `headrace.clients`, which is JSON.

Lenient: what a newer node says in another form is left out. Read next: clients.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    listener: str | None = None
    since_ms: int | None = None
    apis: Mapping[str, int] = field(default_factory=dict)
    """Requests by API."""
    last_error: Mapping[str, Any] | None = None
    """api, error, at."""


def read_clients(text: str | None) -> tuple[list[ConnectedClient], int]:
    """The clients, and how many the node left out."""
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return [], 0
    if not isinstance(document, dict):
        return [], 0
    listed = document.get("clients")
    clients = [_client(each) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return clients, _number(document.get("more")) or 0


def _client(entry: dict[str, Any]) -> ConnectedClient:
    apis = entry.get("apis")
    return ConnectedClient(
        principal=_text(entry.get("principal")),
        client_id=_text(entry.get("client_id")),
        software=_text(entry.get("software_name")),
        version=_text(entry.get("software_version")),
        host=_text(entry.get("host")),
        listener=_text(entry.get("listener")),
        since_ms=_number(entry.get("since")),
        apis={str(name): _number(count) or 0 for name, count in apis.items()}
        if isinstance(apis, dict)
        else {},
        last_error=_error(entry.get("last_error")),
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
