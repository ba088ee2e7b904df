# SPDX-License-Identifier: Apache-2.0
"""Requests and replies of the control plane: bytes to kio's message objects, plain dict trees to bytes.

Produce and Fetch have their own code (requests/). Bytes after a body are ignored, as Kafka does.
Read next: kio_codec/encoder.py, kio_codec/decoder.py, api_table.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from headrace.errors import DecodeError
from headrace.wire.api_table import APIS, SPOKEN_APIS, Api
from headrace.wire.kio_codec.decoder import Budget, message_decoder
from headrace.wire.kio_codec.encoder import message_encoder
from headrace.wire.kio_codec.schema import field_names, message_class
from headrace.wire.primitives import MALFORMED, skip_tagged_fields, string
from headrace.wire.request_bounds import max_items

_LENGTH = struct.Struct(">i")
_REPLY_HEADER = struct.Struct(">ii")
_REQUEST_HEADER = struct.Struct(">ihhi")


def decode_request(api_key: int, version: int, view: memoryview, position: int, end: int) -> Any:
    """kio's request object from the body in [position, end). DecodeError on anything malformed."""
    api = APIS.get(api_key)
    if api is None or version not in api.accepted:
        raise DecodeError(f"API {api_key} version {version} is not served")
    read = message_decoder(api.name, version, "request")
    try:
        return read(view[:end], position, end, Budget(max_items(api_key)))[0]
    except (*MALFORMED, DecodeError) as error:
        raise DecodeError(f"malformed {api.name} request, version {version}: {error}") from None


def encode_reply(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """The whole frame of a reply.

    `fields` holds kio's field names; durations and times are milliseconds. Fields that this version lacks
    are dropped, missing ones take the schema's default, names that no version has raise TypeError.
    """
    api = _api(api_key)
    write = message_encoder(api.name, version, "response")
    out = bytearray(_REPLY_HEADER.pack(0, correlation_id))
    if version >= api.flexible_reply_from:
        out.append(0)
    write(out, fields)
    _LENGTH.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def with_correlation_id(frame: bytes, correlation_id: int) -> bytes:
    """An encoded reply frame for another request: only its correlation id (bytes 4 to 8) differs."""
    return b"".join((frame[:4], correlation_id.to_bytes(4, "big", signed=True), frame[8:]))


def encode_error_reply(
    api_key: int, version: int, correlation_id: int, error_code: int, message: str | None
) -> bytes:
    """An error reply to a whole request. TypeError for an API whose reply has no top-level error."""
    names = field_names(message_class(_api(api_key).name, version, "response"), ()) or frozenset()
    fields: dict[str, Any] = {"error_code": error_code}
    if "error_message" in names:
        fields["error_message"] = message
    return encode_reply(api_key, version, correlation_id, fields)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, fields: Mapping[str, Any]
) -> bytes:
    """The whole frame of a request; `fields` as in encode_reply."""
    api = _api(api_key)
    write = message_encoder(api.name, version, "request")
    out = bytearray(_REQUEST_HEADER.pack(0, api_key, version, correlation_id))
    out += string(client_id)
    if version >= api.flexible_from:
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
        if version >= api.flexible_reply_from:
            position = skip_tagged_fields(view, position, end)
        read = message_decoder(api.name, version, "response")
        # Replies come from a trusted broker, so only their size is bounded.
        return correlation_id, read(view, position, end, Budget(end))[0]
    except MALFORMED as error:
        raise DecodeError(f"malformed {api.name} reply, version {version}: {error}") from None


def _api(api_key: int) -> Api:
    api = SPOKEN_APIS.get(api_key)
    if api is None:
        raise KeyError(f"API {api_key} is not in the table")
    return api
