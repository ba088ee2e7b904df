# SPDX-License-Identifier: Apache-2.0
"""Envelope 0 (KIP-590): a client's request that one node forwards to another, with the client's identity.

Only a node that has logged in is believed who the client is (S3). Pure conversion of values.
Read next: forwarding.py (sends them), dispatcher.py (handles them).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.broker.network.request_context import RequestContext
from headrace.errors import DecodeError
from headrace.principal import USER, Principal
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, read_request_header
from headrace.wire.messages import request_frame

_LENGTH_BYTES = 4
_TAGGED = b"\0"
_LONGEST_IDENTITY = 4096


class Forwarded(NamedTuple):
    """A request out of an envelope; its context names the client, not the node that sent it."""

    context: RequestContext
    body: memoryview


def wrap(context: RequestContext, body: bytes) -> dict[str, Any]:
    """The fields of an Envelope request for a client's request; `body` is encoded in its version."""
    tags = _TAGGED if context.api_version >= APIS[context.api_key].flexible_from else b""
    frame = request_frame(context.api_key, context.api_version, 0, context.client_id, tags + body)
    return {
        "request_data": frame[_LENGTH_BYTES:],
        "request_principal": str(context.principal).encode(),
        "client_host_address": context.peer.encode(),
    }


def unwrap(sender: RequestContext, request: Any, allowed: frozenset[ApiKey]) -> Forwarded:
    """Raises DecodeError for a request that no node forwards."""
    data = memoryview(bytes(request.request_data))
    header = read_request_header(data, 0, len(data))
    api = APIS.get(header.api_key)
    if api is None or api.key not in allowed or header.api_version not in api.accepted:
        raise DecodeError(f"an envelope with API {header.api_key} version {header.api_version}")
    kind, colon, name = _text(request.request_principal).partition(":")
    if not colon or kind != USER:
        raise DecodeError("an envelope without the principal of a user")
    context = RequestContext(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        sender.listener,
        _text(request.client_host_address),
        Principal(kind, name),
        forwarded=True,
    )
    return Forwarded(context, data[header.body_position :])


def _text(value: bytes | None) -> str:
    try:
        text = bytes(value or b"").decode()
    except UnicodeDecodeError:
        raise DecodeError("an envelope whose client is not UTF-8") from None
    if len(text) > _LONGEST_IDENTITY:
        raise DecodeError("an envelope whose client has a name of over 4096 characters")
    return text
