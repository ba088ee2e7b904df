# SPDX-License-Identifier: Apache-2.0
"""Sessions of visitors who logged in: in memory only, found by a random 256-bit id in a cookie (S16).

A session ends by logout, after 30 minutes without a request or an open live page, and after 12 hours anyway.
Knows no HTTP. Read next: principals.py.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.console.web.answers import Refused
from headrace.console.web.principals import Principal

IDLE_S = 30 * 60
LONGEST_S = 12 * 3600
MOST = 500
MOST_OF_ONE_USER = 20


def new_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass(slots=True, eq=False, kw_only=True)
class Session:
    user: str | None
    """None: logins are not asked for."""
    principal: Principal
    csrf: str = field(default_factory=new_token)
    opened_s: float = 0.0
    used_s: float = 0.0
    viewers: int = 0
    """Open live pages. While there is one, the session is in use."""
    ended: bool = False

    def accepts(self, csrf: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    def __init__(self, now: Callable[[], float], on_end: Callable[[Session], None]) -> None:
        self._now = now
        self._on_end = on_end
        self._by_hash: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def open(self, user: str, principal: Principal) -> tuple[str, Session]:
        """(the id for the cookie, the session). The user's session that was unused longest may end for it."""
        self.end_expired()
        own = [each for each in self._by_hash.values() if each.user == user]
        if len(own) >= MOST_OF_ONE_USER:
            self.end(min(own, key=lambda each: each.used_s))
        elif len(self._by_hash) >= MOST:
            raise Refused(503, "too many users are logged in", "try again later")
        token, now = new_token(), self._now()
        session = Session(user=user, principal=principal, opened_s=now, used_s=now)
        self._by_hash[_hash(token)] = session
        return token, session

    def find(self, token: str) -> Session | None:
        """The live session of a cookie, which is in use by this."""
        session = self._by_hash.get(_hash(token))
        if session is None or not self.is_live(session):
            return None
        session.used_s = self._now()
        return session

    def is_live(self, session: Session) -> bool:
        if not session.ended and self._is_expired(session):
            self.end(session)
        return not session.ended

    def end(self, session: Session) -> None:
        if session.ended:
            return
        session.ended = True
        self._by_hash = {key: each for key, each in self._by_hash.items() if each is not session}
        self._on_end(session)

    def end_expired(self) -> None:
        for session in list(self._by_hash.values()):
            self.is_live(session)

    def _is_expired(self, session: Session) -> bool:
        now = self._now()
        if session.viewers:
            session.used_s = now
        return now - session.used_s >= IDLE_S or now - session.opened_s >= LONGEST_S


def _hash(token: str) -> bytes:
    """Looked up by hash, so that the time of a lookup says nothing about the ids that exist."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
