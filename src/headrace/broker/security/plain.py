# SPDX-License-Identifier: Apache-2.0
"""PLAIN (RFC 4616) on the broker's side, checked against the stored SCRAM credentials (S5-S7).

Only for listeners with TLS: config/security/sasl_settings.py sees to it. Read next: users.py, login.py.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.principal import user
from headrace.scram_credential import HASH_NAMES, SHA_256, SHA_512, ScramCredential, make_credential

_LONGEST_MESSAGE = 8 * 1024
_STRONGEST_FIRST = (SHA_512, SHA_256)


class PlainConversation:
    """One message: `authorization id NUL user NUL password`.

    `credential` returns the credential of a mechanism and user, and whether there is one.
    """

    slow = True

    def __init__(self, credential: Callable[[str, str], tuple[ScramCredential, bool]]) -> None:
        self._credential_of = credential
        self._ended = False

    def answer(self, message: bytes) -> Success:
        if self._ended or len(message) > _LONGEST_MESSAGE:
            raise LoginRefused("a PLAIN message that is too long or out of order")
        self._ended = True
        authorization_id, name, password = _parts(message)
        if authorization_id not in ("", name):
            raise LoginRefused("the authorization id is not the user", user=name)
        known, right = self._check(name, password)
        if not (right and known):
            raise LoginRefused("the password is wrong" if known else "there is no such user", user=name)
        return Success(message=b"", principal=user(name))

    def _check(self, name: str, password: str) -> tuple[bool, bool]:
        """Whether the user exists, and has this password by its strongest credential.

        Computes for each mechanism, so that the time does not tell which credentials there are (S7).
        """
        known = right = False
        for mechanism in _STRONGEST_FIRST:
            stored, is_real = self._credential_of(mechanism, name)
            given = make_credential(HASH_NAMES[mechanism], password.encode(), stored.salt, stored.iterations)
            fits = hmac.compare_digest(given.stored_key, stored.stored_key)
            if is_real and not known:
                known, right = True, fits
        return known, right


def _parts(message: bytes) -> tuple[str, str, str]:
    try:
        authorization_id, name, password = message.decode().split("\0")
    except ValueError:  # also of UnicodeDecodeError
        raise LoginRefused("a PLAIN message that is not three texts") from None
    if not name or not password:
        raise LoginRefused("a PLAIN message without user or password", user=name)
    return authorization_id, name, password
