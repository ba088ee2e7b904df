# SPDX-License-Identifier: Apache-2.0
"""OAUTHBEARER: which tokens are accepted, how a refusal is told, how keys are kept (S5, S9)."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, RSAKey
from joserfc.registry import HeaderParameter

from headrace.broker.security import issuer_keys
from headrace.broker.security.issuer_keys import IssuerKeys, read_keys
from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.broker.security.oauth import REFUSAL, OAuthConversation, TokenLogins
from headrace.broker.security.token_claims import TokenRules, check_claims
from headrace.client.sasl import OAuthBearer
from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.principal import user
from headrace.realworld import RealWorld
from tests.harness.tokens import AUDIENCE, ISSUER, Issuer, oauth_settings
from tests.harness.waiting import until

EC, RSA = Issuer("ES256"), Issuer("RS256")
SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


def answers(issuer: Issuer, directory: Path, *messages: bytes) -> list[Any]:
    """What the broker answers to each message of one login; LoginRefused stands for itself."""

    async def main() -> list[Any]:
        settings = {**SASL, **oauth_settings(issuer.write_jwks(directory / "keys.json"))}
        logins = TokenLogins(RealWorld(), load_config(None, settings, None))
        await logins.keys.start()
        conversation = logins.begin()
        given = [_answer(conversation, message) for message in messages]
        await logins.keys.stop()
        return given

    return asyncio.run(main())


def _answer(conversation: OAuthConversation, message: bytes) -> Any:
    try:
        return conversation.answer(message)
    except LoginRefused as refused:
        return refused


def first(token: str, authorization_id: str = "", extensions: str = "") -> bytes:
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\1auth=Bearer {token}\1{extensions}\1".encode()


@pytest.mark.parametrize("issuer", [EC, RSA, Issuer(key_id=None)], ids=["ES256", "RS256", "without key id"])
def test_a_token_logs_its_user_in_until_it_expires(issuer: Issuer, tmp_path: Path) -> None:
    expires_s = int(time.time()) + 60
    token = issuer.token("ann", exp=expires_s, aud=["other", AUDIENCE], scope=["a", "b"])
    (done,) = answers(issuer, tmp_path, first(token, "ann", "logicalCluster=lkc-1\1"))
    assert done == Success(message=b"", principal=user("ann"), expires_at_ms=expires_s * 1000)
    mine = next(OAuthBearer(token=lambda: issuer.token("bob")).conversation())
    (done,) = answers(issuer, tmp_path, mine)
    assert done.principal == user("bob")


def _unsigned(claims: dict[str, Any], algorithm: str = "none") -> str:
    parts = ({"alg": algorithm, "kid": "k1"}, claims)
    return ".".join(_base64(json.dumps(part).encode()) for part in parts) + "."


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


CLAIMS = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": 4_000_000_000}


def _signed_by_public_key(issuer: Issuer) -> str:
    """The known attack: the issuer's public key, taken for a secret of HS256."""
    unsigned = _unsigned(CLAIMS, "HS256").removesuffix(".")
    signature = hmac.digest(issuer.key.as_pem(private=False), unsigned.encode(), "sha256")
    return f"{unsigned}.{_base64(signature)}"


def _with_a_critical_extension(issuer: Issuer) -> str:
    """By RFC 7515 whoever does not know the extension must refuse the token."""
    registry = jws.JWSRegistry(header_registry={"x": HeaderParameter("x", "int")}, algorithms=["ES256"])
    header = {"alg": "ES256", "kid": "k1", "crit": ["x"], "x": 1}
    return jws.serialize_compact(header, json.dumps(CLAIMS), issuer.key, registry=registry)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda: EC.token(iss="https://else"), "another issuer"),
        (lambda: EC.token(iss=None), "another issuer"),
        (lambda: EC.token(aud="else"), "another audience"),
        (lambda: EC.token(aud=None), "another audience"),
        (lambda: EC.token(aud=[1]), "'aud' of the token is neither"),
        (lambda: EC.token(scope={"a": 1}), "'scope' of the token is neither"),
        (lambda: EC.token(sub=None), "no user"),
        (lambda: EC.token(sub=" "), "no user"),
        (lambda: EC.token(sub=7), "no user"),
        (lambda: EC.token(lifetime_s=-31), "has expired"),
        (lambda: EC.token(exp=None), "no expiry"),
        (lambda: EC.token(exp="tomorrow"), "'exp' of the token is not a time"),
        (lambda: EC.token(exp=True), "'exp' of the token is not a time"),
        (lambda: EC.token(nbf=time.time() + 90), r"not valid yet \(nbf\)"),
        (lambda: EC.token(iat=time.time() + 90), r"not valid yet \(iat\)"),
        (lambda: Issuer().token(), "BadSignature"),
        (lambda: Issuer(key_id="k2").token(), "no such key"),
        (lambda: Issuer(key_id=None).token(), "BadSignature"),
        (lambda: EC.token()[:-4], "BadSignature"),
        (lambda: _unsigned(CLAIMS), "not valid"),
        (lambda: _unsigned(CLAIMS, "HS256"), "not valid"),
        (lambda: _signed_by_public_key(EC), "not valid"),
        (lambda: _with_a_critical_extension(EC), "UnsupportedHeader"),
        (lambda: "not.a.token", "not valid"),
        (lambda: "a", "not valid"),
        (lambda: "a" * 70_000, "too long"),
    ],
)
def test_a_token_is_refused_after_the_reason_was_told(
    token: Callable[[], str], reason: str, tmp_path: Path
) -> None:
    challenge, refused = answers(EC, tmp_path, first(token()), b"\1")
    assert challenge == REFUSAL == b'{"status":"invalid_token"}'
    assert isinstance(refused, LoginRefused)
    with pytest.raises(LoginRefused, match=reason):
        raise refused


def test_a_key_that_the_token_brings_along_is_not_used(tmp_path: Path) -> None:
    own = Issuer()
    header = {"jwk": own.key.as_dict(private=False), "jku": "https://evil.example/keys"}
    challenge, _ = answers(EC, tmp_path, first(own.token(header=header)), b"\1")
    assert challenge == REFUSAL


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\1", b"n,,", b"n,,\1\1", b"n,,\1auth=Bearer a.b.c\1", b"p=x,,\1auth=Bearer a.b.c\1\1",
        b"n,,\1auth=Basic abc\1\1", b"n,,\1auth=Bearer \1\1", b"n,,\1auth=Bearer a\1auth=Bearer b\1\1",
        b"n,a=\xff,\1auth=Bearer a.b.c\1\1", b"n,,\1auth=Bearer a b\1\1",
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused(message: bytes, tmp_path: Path) -> None:
    (refused,) = answers(EC, tmp_path, message)
    assert isinstance(refused, LoginRefused)


def test_an_authorization_id_of_another_user_is_refused(tmp_path: Path) -> None:
    challenge, refused = answers(EC, tmp_path, first(EC.token("ann"), "bob"), b"\1")
    assert (challenge, refused.reason) == (REFUSAL, "the authorization id is not the user")


def test_a_login_takes_one_token(tmp_path: Path) -> None:
    done, refused = answers(EC, tmp_path, first(EC.token()), first(EC.token()))
    assert isinstance(done, Success)
    assert isinstance(refused, LoginRefused)


def test_the_user_may_be_in_another_claim_and_clocks_may_differ() -> None:
    rules = TokenRules(issuer="i", audiences=frozenset({"a"}), user_claim="email", clock_skew_s=5)
    claims = {"email": "ann@x", "iss": "i", "aud": "a", "exp": 100.5, "nbf": 109}
    assert check_claims(claims, rules, 105_000).name == "ann@x"
    assert check_claims(claims, rules, 105_000).expires_at_ms == 100_500
    with pytest.raises(LoginRefused, match="expired"):
        check_claims(claims, rules, 105_500)
    with pytest.raises(LoginRefused, match="not valid yet"):
        check_claims(claims, rules, 103_999)


# Keys


@pytest.mark.filterwarnings("ignore:Key size should be")
def test_only_public_keys_for_signatures_that_are_long_enough_are_read() -> None:
    weak = RSAKey.generate_key(1024, parameters={"kid": "weak"}, auto_kid=False)
    listed = [
        EC.jwks()["keys"][0],
        {**RSA.key.as_dict(private=False), "kid": "enc", "use": "enc"},
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
        weak.as_dict(private=False),
        {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "AA", "y": "AA"},
        {**ECKey.generate_key("P-256").as_dict(private=False), "kid": 7},
        "text",
    ]
    assert list(read_keys(json.dumps({"keys": listed}).encode())) == ["k1"]


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b"\xff"])
def test_what_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError):
        read_keys(document)


class Page:
    """A network with one page, which may be down."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer: Issuer | None = issuer
        self.reads = 0

    async def https_get(self, url: str, *, timeout_s: float, max_bytes: int) -> bytes:
        self.reads += 1
        if self.issuer is None:
            raise TimeoutError(f"{url} is down")
        return json.dumps(self.issuer.jwks()).encode()


def _world(page: Page, now: list[float]) -> Any:
    real = RealWorld()
    return SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: now[0]), tasks=real.tasks, files=real.files, network=page
    )


def test_keys_are_kept_through_an_outage_and_read_again_for_an_unknown_one_but_not_often() -> None:
    async def main() -> None:
        page, now = Page(EC), [0.0]
        keys = IssuerKeys(
            _world(page, now), "https://i/k", refresh_ms=3_600_000, backoff_ms=1, max_backoff_ms=20
        )
        await keys.start()
        assert keys.find("k1") is not None
        for _ in range(100):  # unknown keys within the pause cause no read
            assert keys.find("new") is None
        await asyncio.sleep(0.05)
        assert page.reads == 1
        page.issuer = None
        now[0] += issuer_keys.UNKNOWN_KEY_PAUSE_S
        assert keys.find("new") is None
        await until(lambda: page.reads >= 4)  # tried again, with pauses
        assert keys.find("k1") is not None
        page.issuer = Issuer(key_id="new")
        await until(lambda: keys.find("new") is not None)
        assert keys.find("k1") is None  # revoked
        await keys.stop()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_an_issuer_that_is_down_at_the_start_is_asked_again() -> None:
    async def main() -> None:
        page = Page(EC)
        page.issuer = None
        keys = IssuerKeys(
            _world(page, [0.0]), "https://i/k", refresh_ms=10_000, backoff_ms=1, max_backoff_ms=5
        )
        await keys.start()
        assert keys.find("k1") is None
        page.issuer = EC
        await until(lambda: keys.find("k1") is not None)
        await keys.stop()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_file_without_keys_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(issuer_keys.MAX_BYTES + 1))
    for name, problem in (("missing", "No such file"), ("large", "more than")):
        url = f"file://{tmp_path / name}"
        keys = IssuerKeys(RealWorld(), url, refresh_ms=1000, backoff_ms=1, max_backoff_ms=1)
        with pytest.raises(ConfigError, match=problem):
            asyncio.run(keys.start())
