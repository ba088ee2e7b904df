# SPDX-License-Identifier: Apache-2.0
"""The clients connected to this node as DescribeConfigs tells them: pieces of JSON, each short enough for a
string of the protocol.

    {"clients": [{principal, client_id, software_name, software_version, host, port, listener,
                  since (ms), requests: {API: count}, last_error: {api, error, at (ms)} | null}],
     "more": clients that are left out, the same in each piece}

The clients with most requests are listed. Nodes of the cluster are not, nor is who has not logged in yet.
Strings are as the client sent them, cut, and in ASCII: everything else is escaped.
Read next: handlers/configs.py, console/views/admin/connected_clients.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from heapq import nlargest
from typing import Any

from headrace.broker.metrics import ClientActivity
from headrace.broker.network.connection import KafkaConnection
from headrace.broker.network.yielding import yielding
from headrace.principal import NODE
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode

MOST_CLIENTS = 500
MOST_BYTES = 1 << 20
"""Of all pieces, about."""
PIECE_BYTES = 30_000
"""A string has at most 32,767 bytes."""
_LONGEST_PRINCIPAL = 255
_COUNTED_PER_YIELD = 500
_WRITTEN_PER_YIELD = 20


async def client_list(connections: Collection[KafkaConnection]) -> list[str]:
    """At least one piece."""
    found = [
        (sum(connection.activity.requests.values()), connection)
        async for connection in yielding(list(connections), _COUNTED_PER_YIELD)
        if _is_client(connection)
    ]
    busiest = nlargest(MOST_CLIENTS, found, key=lambda each: each[0])
    entries: list[str] = []
    size = 0
    async for _, connection in yielding(busiest, _WRITTEN_PER_YIELD):
        entry = json.dumps(_client(connection))
        size += len(entry)
        if size > MOST_BYTES:
            break
        entries.append(entry)
    return list(_pieces(entries, len(found) - len(entries)))


def _pieces(entries: Iterable[str], more: int) -> Iterable[str]:
    piece: list[str] = []
    size = 0
    for entry in entries:
        if piece and size + len(entry) > PIECE_BYTES:
            yield _piece(piece, more)
            piece, size = [], 0
        piece.append(entry)
        size += len(entry) + len(", ")
    yield _piece(piece, more)


def _piece(entries: list[str], more: int) -> str:
    return f'{{"clients": [{", ".join(entries)}], "more": {more}}}'


def _is_client(connection: KafkaConnection) -> bool:
    unknown = connection.in_handshake or (connection.needs_login and not connection.has_logged_in)
    return not connection.closed and not unknown and connection.principal.kind != NODE


def _client(connection: KafkaConnection) -> dict[str, Any]:
    activity = connection.activity
    port = connection.peer.rpartition(":")[2]
    return {
        "principal": str(connection.principal)[:_LONGEST_PRINCIPAL],
        "client_id": activity.client_id,
        "software_name": activity.software_name,
        "software_version": activity.software_version,
        "host": connection.address,
        "port": int(port) if port.isdecimal() else None,
        "listener": connection.listener,
        "since": activity.opened_ms,
        "requests": {APIS[key].label: count for key, count in activity.requests.items()},
        "last_error": _last_error(activity),
    }


def _last_error(activity: ClientActivity) -> dict[str, Any] | None:
    if not activity.error:
        return None
    name = ErrorCode(activity.error).name.upper()
    return {"api": APIS[activity.error_api].label, "error": name, "at": activity.error_ms}
