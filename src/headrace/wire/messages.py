"""Requests and replies of the control plane: bytes to kio's message objects, plain dict trees to bytes.

Produce and Fetch have their own code (produce_fetch.py). Bytes after a body are ignored, as Kafka does.
Knows no sockets. Read next: encoder.py, decoder.py (how), api_table.py (which).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from headrace.errors import DecodeError
from headrace.wire.api_table import (
    APIS,
    SPOKEN_APIS,
    Api,
    request_header_flexible,
    response_header_flexible,
)
from headrace.wire.decoder import Budget, message_decoder
from headrace.wire.encoder import message_encoder
from headrace.wire.primitives import MALFORMED, skip_tagged_fields, string
from headrace.wire.schema import field_names, message_class

MAX_REQUEST_ITEMS = 300_000
"""Array items in one request: room for CreateTopics of 20,000 topics with configs, yet memory is bounded."""

_LENGTH = struct.Struct(">i")
_REPLY_HEADER = struct.Struct(">ii")
_REQUEST_HEADER = struct.Struct(">ihhi")


def decode_request(api_key: int, version: int, view: memoryview, position: int, end: int) -> Any:
    """kio's request object from the body in [position, end). DecodeError on anything malformed."""
    api = APIS.get(api_key)
    if api is None or not api.accepts(version):
        raise DecodeError(f"API {api_key} version {version} is not served")
    read = message_decoder(api.name, version, "request")
    try:
        return read(view[:end], position, end, Budget(MAX_REQUEST_ITEMS))[0]
    except MALFORMED as error:
        raise DecodeError(f"malformed {api.name} request, version {version}: {error}") from None


def encode_reply(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """The whole frame of a reply.

    `fields` holds kio's field names; durations and times are milliseconds. Fields that this version lacks
    are dropped, missing ones take the schema's default, names that no version has raise TypeError.
    """
    write = message_encoder(_api(api_key).name, version, "response")
    out = bytearray(_REPLY_HEADER.pack(0, correlation_id))
    if response_header_flexible(api_key, version):
        out.append(0)
    write(out, fields)
    _LENGTH.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def encode_error_reply(
    api_key: int, version: int, correlation_id: int, error_code: int, message: str | None
) -> bytes:
    """The reply that refuses a whole request. TypeError for an API whose reply has no place for that."""
    names = field_names(message_class(_api(api_key).name, version, "response"), ()) or frozenset()
    fields: dict[str, Any] = {"error_code": error_code}
    if "error_message" in names:
        fields["error_message"] = message
    return encode_reply(api_key, version, correlation_id, fields)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, fields: Mapping[str, Any]
) -> bytes:
    """The whole frame of a request; `fields` as in encode_reply."""
    write = message_encoder(_api(api_key).name, version, "request")
    out = bytearray(_REQUEST_HEADER.pack(0, api_key, version, correlation_id))
    out += string(client_id)
    if request_header_flexible(api_key, version):
        out.append(0)
    write(out, fields)
    _LENGTH.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, rest: bytes
) -> bytes:
    """A whole frame from an encoded request; `rest` begins with the header's tagged fields, if it has any."""
    head = _REQUEST_HEADER.pack(0, api_key, version, correlation_id) + string(client_id)
    return _LENGTH.pack(len(head) + len(rest) - 4) + head[4:] + rest


def decode_reply(api_key: int, version: int, view: memoryview) -> tuple[int, Any]:
    """(correlation id, kio's reply object) of a frame without its length."""
    api = _api(api_key)
    end = len(view)
    try:
        (correlation_id,) = _LENGTH.unpack_from(view, 0)
        position = 4
        if response_header_flexible(api_key, version):
            position = skip_tagged_fields(view, position, end)
        read = message_decoder(api.name, version, "response")
        # A reply comes from a broker one chose to trust, so only its own size bounds it.
        return correlation_id, read(view, position, end, Budget(end))[0]
    except MALFORMED as error:
        raise DecodeError(f"malformed {api.name} reply, version {version}: {error}") from None


def _api(api_key: int) -> Api:
    api = SPOKEN_APIS.get(api_key)
    if api is None:
        raise KeyError(f"API {api_key} is not in the table")
    return api
