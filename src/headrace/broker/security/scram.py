# SPDX-License-Identifier: Apache-2.0
"""SCRAM (RFC 5802) on the broker's side, without channel binding, as Kafka's clients speak it (S5-S7).

Knows neither where credentials are stored nor how messages travel. Read next: login.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.principal import Principal
from headrace.scram_credential import ScramCredential

_LONGEST_MESSAGE = 8 * 1024
_EXTENSIONS = frozenset({"tokenauth"})


class ScramConversation:
    """First message, challenge, proof, signature. Refuses whatever is out of order.

    `credential` returns the credential of a user and whether there is one: for an unknown user it returns a
    made-up one that is always the same, so that both cost the same and look the same (S7).
    """

    slow = False

    def __init__(
        self,
        hash_name: str,
        *,
        nonce: str,
        credential: Callable[[str], tuple[ScramCredential, bool]],
        principal: Callable[[str], Principal],
    ) -> None:
        self._hash_name = hash_name
        self._nonce = nonce
        self._credential_of = credential
        self._principal_of = principal
        self._first: _FirstMessage | None = None
        self._challenge = ""
        self._credential: ScramCredential | None = None
        self._known = False
        self._ended = False

    def answer(self, message: bytes) -> bytes | Success:
        ended, self._ended = self._ended, True  # also by whatever is refused
        if ended or len(message) > _LONGEST_MESSAGE:
            raise LoginRefused("a SCRAM message that is too long or out of order")
        if self._first is not None:
            return self._verify(self._first, message)
        challenge = self._challenge_client(_FirstMessage.read(message))
        self._ended = False
        return challenge

    def _challenge_client(self, first: _FirstMessage) -> bytes:
        if first.authorization_id not in ("", first.user):
            raise LoginRefused("the authorization id is not the user", user=first.user)
        self._first = first
        self._credential, self._known = self._credential_of(first.user)
        salt = base64.b64encode(self._credential.salt).decode()
        self._challenge = f"r={first.nonce}{self._nonce},s={salt},i={self._credential.iterations}"
        return self._challenge.encode()

    def _verify(self, first: _FirstMessage, message: bytes) -> Success:
        assert self._credential is not None
        final = _FinalMessage.read(message, first.user)
        if not hmac.compare_digest(final.nonce.encode(), (first.nonce + self._nonce).encode()):
            raise LoginRefused("the nonce is not the one of this login", user=first.user)
        if final.binding != first.header:
            raise LoginRefused("the channel binding is not that of the first message", user=first.user)
        signed = f"{first.bare},{self._challenge},{final.without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash_name)
        if len(final.proof) != len(signature):
            raise LoginRefused("a proof of the wrong length", user=first.user)
        client_key = _xor(final.proof, signature)
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        right = hmac.compare_digest(stored_key, self._credential.stored_key)
        if not (right and self._known):
            reason = "the password is wrong" if self._known else "there is no such user"
            raise LoginRefused(reason, user=first.user)
        proof = base64.b64encode(hmac.digest(self._credential.server_key, signed, self._hash_name))
        return Success(message=b"v=" + proof, principal=self._principal_of(first.user))


class _FirstMessage(NamedTuple):
    """`n,a=AUTHZID,n=USER,r=NONCE` with optional extensions behind."""

    header: bytes
    authorization_id: str
    bare: str
    user: str
    nonce: str

    @classmethod
    def read(cls, message: bytes) -> _FirstMessage:
        parts = _text(message).split(",", 2)
        if len(parts) != 3 or parts[0] != "n" or not (parts[1] == "" or parts[1].startswith("a=")):
            raise LoginRefused("the first SCRAM message has no header without channel binding")
        attributes = parts[2].split(",")
        if len(attributes) < 2 or attributes[0][:2] != "n=" or attributes[1][:2] != "r=":
            raise LoginRefused("the first SCRAM message has no user and nonce")
        _check_extensions(attributes[2:])
        nonce = attributes[1][2:]
        if not nonce:
            raise LoginRefused("the first SCRAM message has an empty nonce")
        return cls(
            header=f"{parts[0]},{parts[1]},".encode(),
            authorization_id=_name(parts[1][2:]),
            bare=parts[2],
            user=_name(attributes[0][2:]),
            nonce=nonce,
        )


class _FinalMessage(NamedTuple):
    """`c=BINDING,r=NONCE,p=PROOF`."""

    binding: bytes
    nonce: str
    proof: bytes
    without_proof: str

    @classmethod
    def read(cls, message: bytes, user: str) -> _FinalMessage:
        without_proof, separator, proof = _text(message).rpartition(",p=")
        attributes = without_proof.split(",")
        if not separator or len(attributes) < 2 or attributes[0][:2] != "c=" or attributes[1][:2] != "r=":
            raise LoginRefused("the final SCRAM message is not binding, nonce and proof", user=user)
        return cls(
            binding=_base64(attributes[0][2:]),
            nonce=attributes[1][2:],
            proof=_base64(proof),
            without_proof=without_proof,
        )


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def _check_extensions(extensions: list[str]) -> None:
    """`tokenauth=true` asks for a login by delegation token, which is not served (KIP-48)."""
    for extension in extensions:
        name, _, value = extension.partition("=")
        if name == "m" or (name in _EXTENSIONS and value.lower() == "true"):
            raise LoginRefused(f"the SCRAM extension {name!r} is not served")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("a SCRAM message that is not UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefused("a SCRAM attribute that is not Base64") from None


def _name(quoted: str) -> str:
    """RFC 5802: `=2C` is a comma, `=3D` an equals sign, and no other `=` may occur."""
    name = quoted.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name:
        raise LoginRefused("a user name with a malformed escape")
    return name.replace("\0", "=")
