# SPDX-License-Identifier: Apache-2.0
"""OAUTHBEARER (RFC 7628, KIP-255) on the broker's side: a login by a signed token (JWT).

The only module, with issuer_keys.py, that needs the packages of `headrace[oauth]`; imported when a listener
has the mechanism. Read next: token_claims.py (what a token must say), issuer_keys.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import GuestProtocol
from joserfc.jws import JWSRegistry

from headrace.broker.security.issuer_keys import IssuerKeys, Key
from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.broker.security.token_claims import TokenRules, TokenUser, check_claims
from headrace.config import NodeConfig
from headrace.principal import user
from headrace.world import Clock, World

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Neither `none` nor those with a shared secret (S9)."""
REFUSAL = b'{"status":"invalid_token"}'
_LONGEST_TOKEN = 64 * 1024
_LONGEST_HEADER = 8 * 1024
_SEPARATOR = b"\1"
_FIRST = re.compile(
    rb"n,(?:a=(?P<authorization_id>[^\x01,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01"
)
_BEARER = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9._~+/=-]+)")


class TokenLogins:
    """Begins logins by token and keeps the issuer's keys."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._clock = world.clock
        self._rules = TokenRules.of(config)
        self.keys = IssuerKeys(
            world,
            config["sasl.oauthbearer.jwks.endpoint.url"],
            refresh_ms=config["sasl.oauthbearer.jwks.endpoint.refresh.ms"],
            backoff_ms=config["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"],
            max_backoff_ms=config["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"],
        )

    def begin(self) -> OAuthConversation:
        return OAuthConversation(TokenVerifier(self.keys, self._rules, self._clock))


class TokenVerifier:
    def __init__(self, keys: IssuerKeys, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = _LONGEST_HEADER

    def verify(self, token: str) -> TokenUser:
        """Whose token it is. Raises LoginRefused."""
        if len(token) > _LONGEST_TOKEN:
            raise LoginRefused("the token is too long")
        return check_claims(self._claims(token), self._rules, self._clock.wall_ms())

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            return jwt.decode(token, self._key, registry=self._registry).claims
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise LoginRefused(f"the token is not valid: {type(error).__name__}") from None

    def _key(self, token: GuestProtocol) -> Key:
        """By the id in the header; a URL or a key that the header may name is not looked at (S9)."""
        key_id = token.headers().get("kid")
        key = self._keys.find(key_id if isinstance(key_id, str) else None)
        if key is None:
            raise LoginRefused("the issuer has no such key")
        return key


class OAuthConversation:
    """One message with the token. After a wrong one the client gets the reason and sends one byte more."""

    slow = False

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier
        self._refused: LoginRefused | None = None
        self._ended = False

    def answer(self, message: bytes) -> bytes | Success:
        if self._refused is not None:
            raise self._refused
        if self._ended:
            raise LoginRefused("an OAUTHBEARER message out of order")
        self._ended = True
        authorization_id, token = _read_first(message)
        try:
            found = self._verifier.verify(token)
            if authorization_id not in ("", found.name):
                raise LoginRefused("the authorization id is not the user", user=found.name)
        except LoginRefused as refused:
            self._refused = refused
            return REFUSAL
        return Success(message=b"", principal=user(found.name), expires_at_ms=found.expires_at_ms)


def _read_first(message: bytes) -> tuple[str, str]:
    """`n,a=AUTHZID,^Aauth=Bearer TOKEN^A…^A`: authorization id and token."""
    match = _FIRST.fullmatch(message)
    if match is None:
        raise LoginRefused("the OAUTHBEARER message is malformed")
    try:
        authorization_id = (match["authorization_id"] or b"").decode()
        pairs = [pair.decode().partition("=") for pair in match["pairs"].split(_SEPARATOR) if pair]
    except UnicodeDecodeError:
        raise LoginRefused("an OAUTHBEARER message that is not UTF-8") from None
    values = [value for key, _, value in pairs if key == "auth"]
    bearer = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if bearer is None:
        raise LoginRefused("the OAUTHBEARER message has no bearer token")
    return authorization_id, bearer["token"]
