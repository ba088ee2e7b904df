# SPDX-License-Identifier: Apache-2.0
"""The credentials of users as logins see them: those of the cluster, and made-up ones for unknown users (S7).

Knows no messages of SASL. Read next: scram.py, plain.py.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.scram_credential import (
    DEFAULT_ITERATIONS,
    HASH_NAMES,
    SALT_BYTES,
    ScramCredential,
    UserCredentials,
)


class _Shape(NamedTuple):
    """What a challenge shows of a credential besides the salt itself."""

    salt_bytes: int
    iterations: int


_USUAL = _Shape(SALT_BYTES, DEFAULT_ITERATIONS)


class Users:
    """Looks users up for a login.

    An unknown user gets a credential that no password fits and that is the same at each login and on each
    node: it is derived from a secret of the cluster, and looks like one of those that there are. So neither
    the challenge nor the time tells who exists.
    """

    def __init__(self, *, users: Callable[[], Mapping[str, UserCredentials]], secret: bytes) -> None:
        self._users = users
        self._secret = hmac.digest(secret, b"salts of unknown users", "sha256")
        self._shapes: dict[str, list[_Shape]] = {}
        self._shapes_of: Mapping[str, UserCredentials] | None = None

    def credential(self, mechanism: str, name: str) -> tuple[ScramCredential, bool]:
        """The credential, and whether it is a real one. May be called from a thread."""
        found = self._users().get(name, {}).get(mechanism)
        return (found, True) if found is not None else (self._made_up(mechanism, name), False)

    def _made_up(self, mechanism: str, name: str) -> ScramCredential:
        seed = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha512")
        shapes = self._shapes_there_are().get(mechanism, [_USUAL])
        shape = shapes[int.from_bytes(seed[:8], "big") % len(shapes)]
        no_key = bytes(hashlib.new(HASH_NAMES[mechanism]).digest_size)
        return ScramCredential(
            salt=hashlib.shake_256(seed).digest(shape.salt_bytes),
            iterations=shape.iterations,
            stored_key=no_key,
            server_key=no_key,
        )

    def _shapes_there_are(self) -> Mapping[str, list[_Shape]]:
        """By mechanism; computed once for each change of the users."""
        users = self._users()
        if self._shapes_of is not users:
            found: dict[str, set[_Shape]] = {}
            for credentials in users.values():
                for mechanism, each in credentials.items():
                    found.setdefault(mechanism, set()).add(_Shape(len(each.salt), each.iterations))
            self._shapes = {mechanism: sorted(shapes) for mechanism, shapes in found.items()}
            self._shapes_of = users
        return self._shapes
