# SPDX-License-Identifier: Apache-2.0
"""SASL mechanisms as generators of messages. No sockets.

PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628, KIP-255) as Kafka's brokers speak them.
Read next: security.py, which carries the messages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from headrace.client.errors import ClientError

Conversation = Generator[bytes, bytes, None]
"""Yields messages to send, is sent the replies, ends when both sides are authenticated."""

_MOST_ITERATIONS = 1_000_000
"""A malicious broker could otherwise keep the client busy."""
_NO_CHANNEL_BINDING = "n,,"
_SEPARATOR = b"\1"


class AuthenticationFailed(ClientError):
    """The broker rejects the credentials, or fails to prove its own. Not retriable."""

    def __init__(self, what: str, *, next_step: str | None = None) -> None:
        super().__init__(what, next_step=next_step, code="SASL_AUTHENTICATION_FAILED")


class Mechanism(Protocol):
    @property
    def name(self) -> str:
        """As Kafka's sasl.mechanism spells it."""

    def conversation(self) -> Conversation: ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Sends the password itself: for listeners with TLS."""

    user: str
    password: str = field(repr=False)
    name = "PLAIN"

    def conversation(self) -> Conversation:
        yield b"\0" + self.user.encode() + b"\0" + self.password.encode()


@dataclass(frozen=True, slots=True)
class _Scram:
    """Both sides prove that they know the password without sending it."""

    user: str
    password: str = field(repr=False)
    name: ClassVar[str]
    hash_name: ClassVar[str]
    fewest_iterations: ClassVar[int] = 4096

    def conversation(self) -> Conversation:
        nonce = secrets.token_urlsafe(24)
        user = self.user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={user},r={nonce}"
        challenge = yield (_NO_CHANNEL_BINDING + first).encode()
        asked = _attributes(challenge)
        if not asked["r"].startswith(nonce) or len(asked["r"]) == len(nonce):
            raise AuthenticationFailed("the broker's SCRAM nonce is not a continuation of ours")
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        final = f"c={binding},r={asked['r']}"
        salted = self._salted_password(asked)
        signed = ",".join((first, challenge.decode(), final)).encode()
        answer = yield f"{final},p={base64.b64encode(self._proof(salted, signed)).decode()}".encode()
        self._check_signature(_attributes(answer), salted, signed)

    def _salted_password(self, asked: Mapping[str, str]) -> bytes:
        iterations = int(asked["i"])
        if not self.fewest_iterations <= iterations <= _MOST_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker asks for {iterations} SCRAM iterations",
                next_step=f"store the user's credential with {self.fewest_iterations} to {_MOST_ITERATIONS}",
            )
        salt = base64.b64decode(asked["s"], validate=True)
        return hashlib.pbkdf2_hmac(self.hash_name, self.password.encode(), salt, iterations)

    def _proof(self, salted: bytes, signed: bytes) -> bytes:
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self.hash_name, client_key).digest(), signed)
        return bytes(left ^ right for left, right in zip(client_key, signature, strict=True))

    def _check_signature(self, answer: Mapping[str, str], salted: bytes, signed: bytes) -> None:
        """Verifies the server's signature: it proves that the broker knows the password."""
        expected = self._mac(self._mac(salted, b"Server Key"), signed)
        if not hmac.compare_digest(base64.b64decode(answer["v"]), expected):
            raise AuthenticationFailed("the broker does not know the password: it may be an impostor")

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)


class ScramSha256(_Scram):
    __slots__ = ()
    name = "SCRAM-SHA-256"
    hash_name = "sha256"


class ScramSha512(_Scram):
    __slots__ = ()
    name = "SCRAM-SHA-512"
    hash_name = "sha512"


class NodeScram(_Scram):
    """Between the nodes of a Headrace cluster. The password is a random key, which needs no iterations."""

    __slots__ = ()
    name = "HEADRACE-NODE-SCRAM-SHA-256"
    hash_name = "sha256"
    fewest_iterations = 1


@dataclass(frozen=True, slots=True)
class OAuthBearer:
    """`token` is called, in a thread, per connection: it may ask an identity provider and cache tokens."""

    token: Callable[[], str] = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions, e.g. logicalCluster (KIP-342)."""
    name = "OAUTHBEARER"

    def conversation(self) -> Conversation:
        parts = [f"auth=Bearer {self.token()}", *(f"{key}={value}" for key, value in self.extensions.items())]
        refusal = yield _SEPARATOR.join(
            [_NO_CHANNEL_BINDING.encode(), *(part.encode() for part in parts), b"", b""]
        )
        if refusal:  # the broker gives the reason, and expects one more message
            yield _SEPARATOR
            raise AuthenticationFailed(f"the broker refuses the token: {refusal.decode(errors='replace')}")


def _attributes(message: bytes) -> Mapping[str, str]:
    """`r=…,s=…,i=…` as a mapping whose KeyError names the missing attribute."""
    found = _Attributes(
        (part[0], part[2:]) for part in message.decode(errors="replace").split(",") if part[1:2] == "="
    )
    if "e" in found:
        raise AuthenticationFailed(f"the broker ends the SCRAM exchange: {found['e']}")
    return found


class _Attributes(dict[str, str]):
    def __missing__(self, key: str) -> str:
        raise AuthenticationFailed(f"the broker's SCRAM message has no {key!r}")
