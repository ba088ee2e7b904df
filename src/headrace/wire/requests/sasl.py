# SPDX-License-Identifier: Apache-2.0
"""SaslHandshake 0-1 and SaslAuthenticate 0-2, read and written by hand: every login has three of them.

Requests and replies have the fields of wire/messages.py. Read next: broker/security/login.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import RequestHeader
from headrace.wire.messages import encode_reply, with_correlation_id
from headrace.wire.primitives import (
    MALFORMED,
    compact_string,
    read_uvarint,
    skip_tagged_fields,
    string,
    uvarint,
)

_HANDSHAKE = ApiKey.SASL_HANDSHAKE.value
_FLEXIBLE = 2  # of SaslAuthenticate
_STRING_LENGTH = struct.Struct(">h")
_BYTES_LENGTH = struct.Struct(">i")
_REPLY_HEADER = struct.Struct(">iih")  # length, correlation id, error code
_FLEXIBLE_REPLY_HEADER = struct.Struct(">iixh")  # besides, that there are no tagged fields
_SESSION_LIFETIME = struct.Struct(">q")


class SaslHandshake(NamedTuple):
    mechanism: str


class SaslAuthenticate(NamedTuple):
    auth_bytes: bytes


def read_sasl_request(header: RequestHeader, view: memoryview, end: int) -> SaslHandshake | SaslAuthenticate:
    """The request behind a header of one of the two APIs. Raises DecodeError."""
    if header.api_key == _HANDSHAKE:
        return _read_handshake(view, header.body_position, end)
    return _read_authenticate(header.api_version, view, header.body_position, end)


def _read_handshake(view: memoryview, position: int, end: int) -> SaslHandshake:
    try:
        (length,) = _STRING_LENGTH.unpack_from(view[:end], position)
        return SaslHandshake(str(_field(view, position + _STRING_LENGTH.size, length, end), "utf-8"))
    except (*MALFORMED, DecodeError) as error:
        raise DecodeError(f"malformed SaslHandshake request: {error}") from None


def _read_authenticate(version: int, view: memoryview, position: int, end: int) -> SaslAuthenticate:
    try:
        if version < _FLEXIBLE:
            (length,) = _BYTES_LENGTH.unpack_from(view[:end], position)
            return SaslAuthenticate(bytes(_field(view, position + _BYTES_LENGTH.size, length, end)))
        length, position = read_uvarint(view[:end], position)
        message = bytes(_field(view, position, length - 1, end))
        skip_tagged_fields(view[:end], position + len(message), end)
        return SaslAuthenticate(message)
    except (*MALFORMED, DecodeError) as error:
        raise DecodeError(f"malformed SaslAuthenticate request, version {version}: {error}") from None


def _field(view: memoryview, position: int, length: int, end: int) -> memoryview:
    if not 0 <= length <= end - position:
        raise DecodeError(f"a field of {length} bytes, {end - position} left")
    return view[position : position + length]


def encode_sasl_reply(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """As messages.encode_reply, for the two APIs; a session lifetime that is missing is 0."""
    if api_key == _HANDSHAKE:
        # A listener has the same mechanisms in each of its replies.
        frame = _handshake_reply(version, fields["error_code"], tuple(fields["mechanisms"]))
        return with_correlation_id(frame, correlation_id)
    return _encode_authenticate_reply(version, correlation_id, fields)


@lru_cache(maxsize=64)
def _handshake_reply(version: int, error_code: int, mechanisms: tuple[str, ...]) -> bytes:
    fields = {"error_code": error_code, "mechanisms": mechanisms}
    return encode_reply(_HANDSHAKE, version, 0, fields)


def _encode_authenticate_reply(version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    error_message, auth_bytes = fields["error_message"], fields["auth_bytes"]
    session = _SESSION_LIFETIME.pack(fields.get("session_lifetime", 0)) if version else b""
    if version < _FLEXIBLE:
        header, length = _REPLY_HEADER, _BYTES_LENGTH.pack(len(auth_bytes))
        body = b"".join((string(error_message), length, auth_bytes, session))
    else:
        header, length = _FLEXIBLE_REPLY_HEADER, uvarint(len(auth_bytes) + 1)
        body = b"".join((compact_string(error_message), length, auth_bytes, session, b"\0"))
    return header.pack(header.size - 4 + len(body), correlation_id, fields["error_code"]) + body
