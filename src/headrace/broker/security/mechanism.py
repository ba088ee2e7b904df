# SPDX-License-Identifier: Apache-2.0
"""A SASL mechanism on the broker's side: messages in, answers out. No sockets, no tasks.

Implementations: scram.py, plain.py, oauth.py. Read next: login.py, which carries the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.principal import Principal


class LoginRefused(Exception):
    """The login failed. Clients get one sentence for every reason (S7); `reason` is for the log."""

    def __init__(self, reason: str, *, user: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.user = user


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """The end of a login; `message` is the last one to the client."""

    message: bytes
    principal: Principal
    expires_at_ms: int | None = None
    """Wall-clock time at which the credential expires, if it does (a token)."""


class Conversation(Protocol):
    """One login."""

    @property
    def slow(self) -> bool:
        """Whether `answer` computes so much that it has to run in a thread."""

    def answer(self, message: bytes) -> bytes | Success:
        """The answer to a message of the client. Raises LoginRefused."""


Mechanisms = Mapping[str, Callable[[], Conversation]]
"""By SASL name: a function that begins a login."""
