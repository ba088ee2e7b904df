# SPDX-License-Identifier: Apache-2.0
"""Where OAUTHBEARER tokens come from: an identity provider (client credentials grant) or a file.

Settings are plain values, so they can be pickled; tokens are cached for each of them in this process.
Read next: sasl.py (how a token is sent), security_names.py (the settings).
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from headrace.client.errors import ClientError
from headrace.secret import Secret

if TYPE_CHECKING:
    import ssl

_MOST_BYTES = 1 << 20
_ATTEMPTS = 3
_FIRST_BACKOFF_S = 0.1
_RENEW_AT = 0.8
"""Share of a token's lifetime after which another is fetched, as Java's sasl.login.refresh.window.factor."""
_LIFETIME_WITHOUT_EXPIRY_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    value: Secret
    expires_s: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The client credentials grant (RFC 6749, 4.4) of an identity provider, over https only (S9)."""

    endpoint: str
    client_id: str
    client_secret: Secret
    scope: str | None = None
    encodes_header: bool = False
    """Percent-encode id and secret, as RFC 6749 says and Java does by sasl.oauthbearer.header.urlencode."""
    authorities_file: str | None = None
    authorities: str | None = None
    """PEM of the provider's authorities; without one those of the system are trusted."""
    timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise ClientError(
                f"the token endpoint {_without_login(self.endpoint)!r} is not an https URL",
                next_step="set sasl.oauthbearer.token.endpoint.url to https://HOST/PATH, "
                "or to file:///PATH of a token",
            )

    def fetch(self) -> Token:
        """Ask for a new token; ClientError says why there is none."""
        asked_s = time.time()
        reply = self._ask_with_retries()
        token, lifetime_s = reply.get("access_token"), reply.get("expires_in")
        if not isinstance(token, str) or not token:
            raise self._failure("its reply has no access_token")
        if isinstance(lifetime_s, int | float) and lifetime_s > 0:
            return Token(value=Secret(token), expires_s=asked_s + lifetime_s)
        return Token(value=Secret(token), expires_s=_expiry_s(token, asked_s))

    def _ask_with_retries(self) -> dict[str, Any]:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._ask()
            except OSError as error:
                status = getattr(error, "code", None)
                passing = status is None or status == 429 or status >= 500
                if not passing or attempt == _ATTEMPTS:
                    raise self._failure(_reason(error)) from None
            except ValueError:
                raise self._failure("its reply is not a JSON object") from None
            time.sleep(_FIRST_BACKOFF_S * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _ask(self) -> dict[str, Any]:
        import urllib.request

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        request = urllib.request.Request(self.endpoint, urlencode(form).encode(), method="POST")
        request.add_header("Content-Type", "application/x-www-form-urlencoded")
        request.add_header("Accept", "application/json")
        request.add_header("Authorization", self._authorization())
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._context()), _no_redirects()
        )
        with opener.open(request, timeout=self.timeout_ms / 1000) as answer:
            reply = json.loads(answer.read(_MOST_BYTES))
        if not isinstance(reply, dict):
            raise ValueError("not an object")
        return reply

    def _authorization(self) -> str:
        parts = [self.client_id, self.client_secret.reveal()]
        joined = ":".join(quote(part, safe="") if self.encodes_header else part for part in parts)
        return f"Basic {base64.b64encode(joined.encode()).decode()}"

    def _context(self) -> ssl.SSLContext:
        from headrace.client.tls_context import trusting_context

        return trusting_context(self.authorities_file, self.authorities)

    def _failure(self, reason: str) -> ClientError:
        return ClientError(
            f"no token from {self.endpoint}: {reason}",
            next_step="check the token endpoint, the client's id and its secret",
            code="SASL_AUTHENTICATION_FAILED",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """A token that something else keeps up to date in a file, like a mounted service account token."""

    path: str

    def fetch(self) -> Token:
        try:
            token = Path(self.path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ClientError(
                f"the token file {self.path!r} cannot be read: {_reason(error)}",
                next_step="check sasl.oauthbearer.token.endpoint.url",
            ) from None
        if not token:
            raise ClientError(f"the token file {self.path!r} is empty", next_step="write one token into it")
        return Token(value=Secret(token), expires_s=_expiry_s(token, time.time()))


TokenSource = ClientCredentials | TokenFile


class TokenCache:
    """The present token of one source, fetched again shortly before it expires. Thread-safe."""

    def __init__(self, source: TokenSource, *, now_s: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now_s = now_s
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_s = 0.0

    def token(self) -> Token:
        with self._lock:
            if self._token is None or self._now_s() >= self._renew_s:
                began_s = self._now_s()
                self._token = self._source.fetch()
                self._renew_s = began_s + _RENEW_AT * (self._token.expires_s - began_s)
            return self._token


_caches: dict[TokenSource, TokenCache] = {}
_caches_lock = threading.Lock()


def cached_tokens(source: TokenSource) -> TokenCache:
    """The cache of this process for a source: all connections share its token."""
    with _caches_lock:
        return _caches.setdefault(source, TokenCache(source))


def _no_redirects() -> Any:
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None  # the redirect becomes an HTTPError: the secret goes nowhere else (S9)

    return NoRedirects()


def _expiry_s(token: str, now_s: float) -> float:
    """The claim `exp` of a JSON Web Token, which is not verified here; without one a short time."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return now_s + _LIFETIME_WITHOUT_EXPIRY_S


def _reason(error: Exception) -> str:
    status = getattr(error, "code", None)
    if status is not None:
        return f"it answered HTTP {status}"
    cause = getattr(error, "reason", None)
    return str(getattr(error, "strerror", None) or (cause if cause is not None else error))


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
