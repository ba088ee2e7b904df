# SPDX-License-Identifier: Apache-2.0
"""Which claims of a token are accepted (S9): issuer, audience, times, user, scopes. Pure.

The signature is checked before, in oauth.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.broker.security.mechanism import LoginRefused
from headrace.config import NodeConfig

_LONGEST_NAME = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    issuer: str
    audiences: frozenset[str]
    user_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: int = 30

    @classmethod
    def of(cls, config: NodeConfig) -> TokenRules:
        return cls(
            issuer=config["sasl.oauthbearer.expected.issuer"],
            audiences=frozenset(config["sasl.oauthbearer.expected.audience"]),
            user_claim=config["sasl.oauthbearer.sub.claim.name"],
            scope_claim=config["sasl.oauthbearer.scope.claim.name"],
            clock_skew_s=config["sasl.oauthbearer.clock.skew.seconds"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUser:
    name: str
    expires_at_ms: int


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> TokenUser:
    """Whose token it is, and until when. Raises LoginRefused."""
    name = claims.get(rules.user_claim)
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        raise LoginRefused(f"the token has no user in its claim {rules.user_claim!r}")
    if claims.get("iss") != rules.issuer:
        raise LoginRefused("the token is of another issuer", user=name)
    if rules.audiences.isdisjoint(_texts(claims.get("aud"), "aud", name)):
        raise LoginRefused("the token is for another audience", user=name)
    _texts(claims.get(rules.scope_claim), rules.scope_claim, name)
    return TokenUser(name=name, expires_at_ms=_check_times(claims, rules.clock_skew_s, now_ms, name))


def _check_times(claims: Mapping[str, Any], skew_s: int, now_ms: int, user: str) -> int:
    now_s = now_ms / 1000
    expires_s = _time(claims, "exp", user)
    if expires_s is None:
        raise LoginRefused("the token has no expiry", user=user)
    if expires_s + skew_s <= now_s:
        raise LoginRefused("the token has expired", user=user)
    for name in ("nbf", "iat"):
        begins_s = _time(claims, name, user)
        if begins_s is not None and begins_s - skew_s > now_s:
            raise LoginRefused(f"the token is not valid yet ({name})", user=user)
    return int(expires_s * 1000)


def _time(claims: Mapping[str, Any], name: str, user: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise LoginRefused(f"the claim {name!r} of the token is not a time", user=user)
    return float(value)


def _texts(value: Any, name: str, user: str) -> frozenset[str]:
    """A claim that is a text or a list of texts; empty when it is missing."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in values):
        raise LoginRefused(f"the claim {name!r} of the token is neither text nor a list of texts", user=user)
    return frozenset(values)
