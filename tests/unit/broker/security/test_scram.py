# SPDX-License-Identifier: Apache-2.0
"""SCRAM on the broker's side: the vectors of the RFCs, and every refusal (S5, S6, S7)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.broker.security.scram import ScramConversation
from headrace.broker.security.users import Users
from headrace.client.sasl import ScramSha256, ScramSha512
from headrace.principal import user
from headrace.scram_credential import ScramCredential, credential_of, make_credential

SALT = bytes(range(16))
CREDENTIAL = make_credential("sha256", b"pencil", SALT, 4096)
NONCE = "server"


def conversation(known: bool = True) -> ScramConversation:
    return ScramConversation(
        "sha256", nonce=NONCE, credential=lambda name: (CREDENTIAL, known), principal=user
    )


def final(
    password: bytes = b"pencil",
    *,
    bare: str = "n=ann,r=client",
    header: str = "n,,",
    nonce: str = "client" + NONCE,
    binding: str | None = None,
    signed_nonce: str | None = None,
) -> bytes:
    """The final message of a client; each part may be wrong."""
    given = make_credential("sha256", password, SALT, 4096)
    salted = hashlib.pbkdf2_hmac("sha256", password, SALT, 4096)
    challenge = f"r=client{NONCE},s={base64.b64encode(SALT).decode()},i=4096"
    bound = base64.b64encode(header.encode()).decode() if binding is None else binding
    without_proof = f"c={bound},r={nonce}"
    signed = ",".join((bare, challenge, without_proof if signed_nonce is None else signed_nonce)).encode()
    signature = hmac.digest(given.stored_key, signed, "sha256")
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def refusal(*messages: bytes, known: bool = True) -> LoginRefused:
    login = conversation(known)
    for message in messages[:-1]:
        login.answer(message)
    with pytest.raises(LoginRefused) as caught:
        login.answer(messages[-1])
    return caught.value


def test_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = make_credential("sha256", b"pencil", salt, 4096)
    login = ScramConversation(
        "sha256",
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        credential=lambda name: (credential, True),
        principal=user,
    )
    challenge = login.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    done = login.answer(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert done == Success(message=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", principal=user("user"))


def test_a_credential_is_what_the_rfc_says() -> None:
    """RFC 5802, section 3, with the salted password of RFC 7677."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    assert credential_of("sha256", salted, SALT, 4096) == CREDENTIAL
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert CREDENTIAL.stored_key == hashlib.sha256(client_key).digest()
    assert CREDENTIAL.server_key == hmac.digest(salted, b"Server Key", "sha256")


@pytest.mark.parametrize(("client", "hash_name"), [(ScramSha256, "sha256"), (ScramSha512, "sha512")])
@pytest.mark.parametrize("name", ["ann", "o,=brien", "Jürgen", "=2C"])
def test_our_client_logs_in(client, hash_name: str, name: str) -> None:
    stored = make_credential(hash_name, "pässword,=".encode(), SALT, 4096)
    login = ScramConversation(
        hash_name, nonce=NONCE, credential=lambda user: (stored, user == name), principal=user
    )
    messages = client(name, "pässword,=").conversation()
    challenge = login.answer(next(messages))
    assert isinstance(challenge, bytes)
    done = login.answer(messages.send(challenge))
    assert isinstance(done, Success)
    assert done.principal == user(name)
    with pytest.raises(StopIteration):
        messages.send(done.message)


FIRST = b"n,,n=ann,r=client"


def test_the_right_proof_logs_in_once() -> None:
    login = conversation()
    login.answer(FIRST)
    assert isinstance(login.answer(final()), Success)
    with pytest.raises(LoginRefused, match="out of order"):
        login.answer(final())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "no header"),
        (b"n=ann,r=client", "no header"),
        (b"y,,n=ann,r=client", "no header"),
        (b"p=tls-unique,,n=ann,r=client", "no header"),
        (b"n,x,n=ann,r=client", "no header"),
        (b"n,,r=client,n=ann", "no user and nonce"),
        (b"n,,n=ann", "no user and nonce"),
        (b"n,,m=ext,n=ann,r=client", "no user and nonce"),
        (b"n,,n=ann,r=", "empty nonce"),
        (b"n,,n=ann,r=client,m=must-know", "extension 'm'"),
        (b"n,,n=ann,r=client,tokenauth=true", "extension 'tokenauth'"),
        (b"n,,n=a=nn,r=client", "malformed escape"),
        (b"n,,n=\xff,r=client", "not UTF-8"),
        (b"n,,n=ann,r=" + b"c" * 9000, "too long"),
        (b"n,a=bob,n=ann,r=client", "authorization id"),
    ],
)
def test_a_first_message_is_refused(message: bytes, reason: str) -> None:
    assert reason in refusal(message).reason


def test_an_authorization_id_that_is_the_user_is_accepted() -> None:
    login = conversation()
    login.answer(b"n,a=ann,n=ann,r=client")
    assert isinstance(login.answer(final(header="n,a=ann,")), Success)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (final(b"wrong"), "password is wrong"),
        (final(nonce="client"), "nonce"),
        (final(nonce="client" + NONCE + "x"), "nonce"),
        (final(nonce="other" + NONCE), "nonce"),
        (final(header="y,,"), "channel binding"),
        (final(header="n,a=ann,"), "channel binding"),
        (final(binding="%%%"), "not Base64"),
        (final(bare="n=bob,r=client"), "password is wrong"),
        (final(signed_nonce="c=biws,r=else"), "password is wrong"),
        (final()[:-3], "not Base64"),
        (final()[:-4], "wrong length"),
        (final().rpartition(b",p=")[0], "not binding, nonce and proof"),
        (final().rpartition(b",p=")[0] + b",p=", "wrong length"),
        (final().rpartition(b",p=")[0] + b",p=AAAA", "wrong length"),
        (b"r=x,c=y,p=AAAA", "not binding, nonce and proof"),
        (b"\xff,p=AAAA", "not UTF-8"),
    ],
)
def test_a_final_message_is_refused_and_ends_the_login(message: bytes, reason: str) -> None:
    login = conversation()
    login.answer(FIRST)
    with pytest.raises(LoginRefused, match=reason):
        login.answer(message)
    with pytest.raises(LoginRefused, match="out of order"):
        login.answer(final())


def test_the_stored_key_is_no_password() -> None:
    """Whoever reads the store must not be able to log in with what it holds."""
    assert refusal(FIRST, final(CREDENTIAL.stored_key)).reason == "the password is wrong"


def test_an_unknown_user_is_refused_at_the_end_even_with_a_fitting_proof() -> None:
    assert refusal(FIRST, final(), known=False).reason == "there is no such user"


def test_an_unknown_user_gets_a_challenge_like_any_other_and_always_the_same() -> None:
    stored = {"ann": {"SCRAM-SHA-256": CREDENTIAL}}
    usual, _ = Users(users=dict, secret=b"of this cluster").credential("SCRAM-SHA-256", "bob")
    assert (usual.iterations, len(usual.salt)) == (4096, 24)
    users = Users(users=lambda: stored, secret=b"of this cluster")
    assert users.credential("SCRAM-SHA-256", "ann") == (CREDENTIAL, True)
    made_up, known = users.credential("SCRAM-SHA-256", "bob")
    assert not known
    assert users.credential("SCRAM-SHA-256", "bob")[0] == made_up
    assert (made_up.iterations, len(made_up.salt)) == (CREDENTIAL.iterations, len(CREDENTIAL.salt))
    others = [
        users.credential("SCRAM-SHA-512", "bob"),
        users.credential("SCRAM-SHA-512", "ann"),
        users.credential("SCRAM-SHA-256", "eve"),
        Users(users=lambda: stored, secret=b"another").credential("SCRAM-SHA-256", "bob"),
    ]
    assert len({made_up.salt, *(credential.salt for credential, _ in others)}) == 5


def test_challenges_of_unknown_users_are_as_various_as_those_of_known_ones() -> None:
    stored = {
        "ann": {"SCRAM-SHA-256": make_credential("sha256", b"x", bytes(26), 8192)},
        "bob": {"SCRAM-SHA-256": make_credential("sha256", b"x", bytes(64), 4096)},
    }
    users = Users(users=lambda: stored, secret=b"of this cluster")
    made_up = [users.credential("SCRAM-SHA-256", f"unknown-{number}")[0] for number in range(50)]
    assert {(each.iterations, len(each.salt)) for each in made_up} == {(8192, 26), (4096, 64)}


def test_nothing_secret_is_in_the_text_of_a_credential() -> None:
    assert "key" not in repr(CREDENTIAL)
    assert isinstance(CREDENTIAL, ScramCredential)
