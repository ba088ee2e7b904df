# SPDX-License-Identifier: Apache-2.0
"""PLAIN against stored SCRAM credentials (S5, S7)."""

from __future__ import annotations

import pytest

from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.broker.security.plain import PlainConversation
from headrace.broker.security.users import Users
from headrace.client.sasl import Plain
from headrace.principal import user
from headrace.scram_credential import make_credential

STORED = {
    "ann": {"SCRAM-SHA-256": make_credential("sha256", b"secret", b"salt", 4096)},
    "bob": {
        "SCRAM-SHA-256": make_credential("sha256", b"old", b"salt", 4096),
        "SCRAM-SHA-512": make_credential("sha512", b"new", b"salt", 4096),
    },
}
USERS = Users(users=lambda: STORED, secret=b"cluster")


def login(message: bytes) -> Success:
    return PlainConversation(USERS.credential).answer(message)


def test_the_password_logs_in() -> None:
    assert login(b"\0ann\0secret") == Success(message=b"", principal=user("ann"))
    assert login(b"ann\0ann\0secret").principal == user("ann")
    assert login(next(Plain("ann", "secret").conversation())).principal == user("ann")


def test_the_stronger_credential_counts() -> None:
    assert login(b"\0bob\0new").principal == user("bob")
    with pytest.raises(LoginRefused, match="password is wrong"):
        login(b"\0bob\0old")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\0ann\0wrong", "password is wrong"),
        (b"\0eve\0secret", "no such user"),
        (b"bob\0ann\0secret", "authorization id"),
        (b"ann\0secret", "not three texts"),
        (b"\0ann\0secret\0", "not three texts"),
        (b"\0\xff\0secret", "not three texts"),
        (b"\0\0secret", "without user or password"),
        (b"\0ann\0", "without user or password"),
        (b"\0ann\0" + bytes(9000), "too long"),
    ],
)
def test_it_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(LoginRefused, match=reason):
        login(message)


def test_one_login_takes_one_message() -> None:
    conversation = PlainConversation(USERS.credential)
    assert conversation.slow  # computes for milliseconds, so not on the event loop
    conversation.answer(b"\0ann\0secret")
    with pytest.raises(LoginRefused, match="out of order"):
        conversation.answer(b"\0ann\0secret")
