# SPDX-License-Identifier: Apache-2.0
"""A SCRAM login takes two messages in order; whatever was refused ends it (S6)."""

from __future__ import annotations

import pytest

from headrace.broker.security.mechanism import LoginRefused
from headrace.broker.security.scram import ScramConversation
from headrace.principal import user
from headrace.scram_credential import make_credential

FIRST = b"n,,n=anna,r=clientnonce"


@pytest.mark.parametrize(
    "refused", [b"", b"\xff", b"n,,n=anna,r=", b"n,a=bob,n=anna,r=x", b"n,,n=anna,r=" + b"x" * 9000]
)
def test_a_login_whose_first_message_was_refused_cannot_go_on(refused: bytes) -> None:
    """Found by fuzzing: it could begin anew."""
    credential = make_credential("sha256", b"secret", b"salt", 1)
    conversation = ScramConversation(
        "sha256", nonce="servernonce", credential=lambda _: (credential, True), principal=user
    )
    with pytest.raises(LoginRefused):
        conversation.answer(refused)
    with pytest.raises(LoginRefused, match="out of order"):
        conversation.answer(FIRST)
