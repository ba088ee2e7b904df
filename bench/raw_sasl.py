# SPDX-License-Identifier: Apache-2.0
"""A SCRAM login on a raw socket (RFC 5802, SaslHandshake v1, SaslAuthenticate v1), one frame after the other.

Computes the salted password once, so that the broker is what is measured. Knows no engine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from functools import lru_cache

from bench.raw_client import RawConnection

_HASH = "sha512"
_HANDSHAKE, _AUTHENTICATE = 17, 36
_CLIENT_ID = b"bench"


class LoginRefusedError(Exception):
    """The broker did not accept the login."""


def sasl_handshake(mechanism: str) -> bytes:
    name = mechanism.encode()
    return _frame(_HANDSHAKE, struct.pack(">h", len(name)) + name)


def sasl_authenticate(message: bytes) -> bytes:
    return _frame(_AUTHENTICATE, struct.pack(">i", len(message)) + message)


def _frame(api_key: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, 1, 0, len(_CLIENT_ID)) + _CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def authenticate_reply(reply: memoryview | bytes) -> bytes:
    """The server's message of a SaslAuthenticate v1 reply."""
    error, length = struct.unpack_from(">hh", reply, 4)
    at = 8 + max(length, 0)
    if error:
        raise LoginRefusedError(f"error code {error}: {bytes(reply[8:at]).decode(errors='replace')}")
    (size,) = struct.unpack_from(">i", reply, at)
    return bytes(reply[at + 4 : at + 4 + size])


@lru_cache(maxsize=8)
def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(_HASH, password.encode(), salt, iterations)


class ScramExchange:
    """The client's messages of one login with SCRAM-SHA-512."""

    def __init__(self, user: str, password: str, *, nonce: str | None = None) -> None:
        self._password = password
        self._bare = f"n={user},r={nonce or secrets.token_urlsafe(18)}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(field.split("=", 1) for field in server_first.decode().split(","))
        salted = _salted(self._password, base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", _HASH)
        unproven = f"c=biws,r={fields['r']}"
        signed = f"{self._bare},{server_first.decode()},{unproven}".encode()
        mask = hmac.digest(hashlib.new(_HASH, client_key).digest(), signed, _HASH)
        proof = bytes(left ^ right for left, right in zip(client_key, mask, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", _HASH), signed, _HASH)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        if server_final != b"v=" + base64.b64encode(self._signature):
            raise LoginRefusedError(f"the broker's signature is wrong: {server_final!r}")


def log_in(connection: RawConnection, mechanism: str, user: str, password: str) -> None:
    exchange = ScramExchange(user, password)
    send_proof(connection, mechanism, exchange)
    exchange.check(authenticate_reply(connection.receive()))


def send_proof(connection: RawConnection, mechanism: str, exchange: ScramExchange) -> None:
    """A login up to the client's last message; the broker's verdict is still to be read."""
    connection.call(sasl_handshake(mechanism))
    server_first = authenticate_reply(connection.call(sasl_authenticate(exchange.first())))
    connection.send(sasl_authenticate(exchange.final(server_first)))
