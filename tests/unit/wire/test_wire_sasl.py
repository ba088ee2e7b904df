# SPDX-License-Identifier: Apache-2.0
"""The hand-written SASL requests and replies are those of Kafka's schema."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, RequestHeader, read_request_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_reply, encode_request
from headrace.wire.requests.sasl import encode_sasl_reply, read_sasl_request

HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
BEHIND = b"\0\0\0\x09the next frame in the buffer"


def versions(key: ApiKey) -> list[int]:
    return list(APIS[key].accepted)


def in_a_buffer(key: ApiKey, version: int, fields: dict[str, Any]) -> tuple[memoryview, RequestHeader, int]:
    """A view with more behind the request, its header, and where it ends."""
    frame = encode_request(key, version, 7, "c", fields)[4:]
    view = memoryview(bytearray(frame + BEHIND))
    return view, read_request_header(view, 0, len(frame)), len(frame)


def read_body(key: ApiKey, version: int, body: bytes) -> None:
    read_sasl_request(RequestHeader(key, version, 7, "c", 0), memoryview(body), len(body))


@pytest.mark.parametrize("version", versions(HANDSHAKE))
def test_a_handshake_names_its_mechanism(version: int) -> None:
    view, header, end = in_a_buffer(HANDSHAKE, version, {"mechanism": "SCRAM-SHA-512"})
    assert read_sasl_request(header, view, end) == ("SCRAM-SHA-512",)


@pytest.mark.parametrize("message", [b"", b"n,,n=ann,r=1", bytes(300)])
@pytest.mark.parametrize("version", versions(AUTHENTICATE))
def test_a_message_of_any_size_is_read(version: int, message: bytes) -> None:
    view, header, end = in_a_buffer(AUTHENTICATE, version, {"auth_bytes": message})
    assert read_sasl_request(header, view, end) == (message,)


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        *((AUTHENTICATE, version, {"auth_bytes": b"n,,n=ann,r=1"}) for version in versions(AUTHENTICATE)),
        *((HANDSHAKE, version, {"mechanism": "PLAIN"}) for version in versions(HANDSHAKE)),
    ],
)
def test_nothing_is_read_behind_the_end_of_a_request(
    key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    view, header, end = in_a_buffer(key, version, fields)
    for cut in range(header.body_position, end):
        with pytest.raises(DecodeError, match="malformed Sasl"):
            read_sasl_request(header, view, cut)


@pytest.mark.parametrize(("version", "null"), [(0, b"\xff" * 4), (1, b"\xff" * 4), (2, b"\0\0")])
def test_a_message_may_not_be_null(version: int, null: bytes) -> None:
    with pytest.raises(DecodeError, match="malformed SaslAuthenticate"):
        read_body(AUTHENTICATE, version, null)


@pytest.mark.parametrize("body", [b"\xff\xff", b"\0\x02\xff\xff"])
def test_a_mechanism_is_neither_null_nor_other_than_text(body: bytes) -> None:
    with pytest.raises(DecodeError, match="malformed SaslHandshake"):
        read_body(HANDSHAKE, 1, body)


@pytest.mark.parametrize("version", versions(HANDSHAKE))
def test_replies_to_handshakes_are_those_of_the_schema(version: int) -> None:
    for code, mechanisms in ((ErrorCode.none, ["A", "B"]), (ErrorCode.unsupported_sasl_mechanism, [])):
        fields = {"error_code": code, "mechanisms": mechanisms}
        for correlation_id in (7, -8):
            reply = HANDSHAKE, version, correlation_id, fields
            assert encode_sasl_reply(*reply) == encode_reply(*reply)


@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": 0, "error_message": None, "auth_bytes": b"r=1,s=2,i=4096"},
        {"error_code": 0, "error_message": None, "auth_bytes": bytes(200), "session_lifetime": 9},
        {"error_code": 58, "error_message": "no", "auth_bytes": b""},
    ],
)
@pytest.mark.parametrize("version", versions(AUTHENTICATE))
def test_replies_to_messages_are_those_of_the_schema(version: int, fields: dict[str, Any]) -> None:
    reply = AUTHENTICATE, version, 7, fields
    assert encode_sasl_reply(*reply) == encode_reply(*reply)
