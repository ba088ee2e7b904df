# SPDX-License-Identifier: Apache-2.0
"""What is stored of a user's password for SCRAM (RFC 5802), and how it is computed. Shared by all layers.

Knows neither where credentials are stored nor how a login goes. Read next: broker/security/scram.py.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASH_NAMES = {SHA_256: "sha256", SHA_512: "sha512"}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4_096, 16_384
DEFAULT_ITERATIONS = FEWEST_ITERATIONS
"""As Kafka's tools have it."""
SALT_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What the broker stores of a password: enough to verify a login, not enough to perform one."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


UserCredentials = Mapping[str, ScramCredential]
"""Of one user, by mechanism."""


def make_credential(hash_name: str, password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Computes for milliseconds: not for the event loop, unless the password is a key of few iterations."""
    salted = hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
    return credential_of(hash_name, salted, salt, iterations)


def credential_of(hash_name: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
    )
