# SPDX-License-Identifier: Apache-2.0
"""Settings of logins by SASL, with Kafka's names, and what does not go together at start-up.

node_settings.py gathers them with the others. Read next: broker/security/mechanisms.py (what they mean).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from headrace.config.listeners import ListenerConfig
from headrace.config.setting import Allowed, at_least, listener_setting, node_setting
from headrace.errors import ConfigError

ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
MAX_REAUTH_MS = "connections.max.reauth.ms"
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", PLAIN, OAUTHBEARER)

_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_AUDIENCE = "sasl.oauthbearer.expected.audience"
_ISSUER = "sasl.oauthbearer.expected.issuer"


def _mechanisms_problem(names: tuple[str, ...]) -> str | None:
    for name in names:
        if name == "GSSAPI":
            return "Kerberos is not served (docs/decisions/0028); use SCRAM, or OAUTHBEARER"
        if name not in MECHANISMS:
            return f"String must be one of: {', '.join(MECHANISMS)}"
        if names.count(name) > 1:
            return f"{name} is named twice"
    return None if names else "names no mechanism"


def _jwks_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
            return None
        if parts.scheme == "https" and parts.hostname and not parts.username and parts.port != 0:
            return None
    except ValueError:
        pass
    return "must be https://HOST/… or file:///…"


SASL = (
    listener_setting(
        ENABLED_MECHANISMS,
        "list",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The SASL mechanisms of listeners with SASL_PLAINTEXT or SASL_SSL. PLAIN needs SASL_SSL. "
        "Apache Kafka's default is GSSAPI, which is not served.",
        Allowed(text=f"list of {', '.join(MECHANISMS)}", problem=_mechanisms_problem),
    ),
    listener_setting(
        MAX_REAUTH_MS,
        "long",
        0,
        "A login is valid for this long at most; then the client logs in again on the same connection "
        "(KIP-368), or its next request closes it. 0: for as long as the connection lasts.",
        at_least(0),
    ),
    node_setting(
        "connection.failed.authentication.delay.ms",
        "int",
        100,
        "A failed login is answered after this time.",
        at_least(0),
    ),
    node_setting(
        "sasl.server.max.receive.size",
        "int",
        524_288,
        "The largest request before the login; a larger one closes its connection.",
        at_least(1024),
    ),
)

OAUTH = (
    node_setting(
        _JWKS_URL,
        "string",
        None,
        "Where the keys of the token issuer are: an `https:` address, fetched without redirects, or `file:///…`.",
        Allowed(text="https://HOST/… or file:///…", problem=_jwks_problem),
    ),
    node_setting(
        _AUDIENCE,
        "list",
        None,
        "A token must be for one of these (claim `aud`). Needed for OAUTHBEARER.",
    ),
    node_setting(
        _ISSUER,
        "string",
        None,
        "A token must be from this issuer (claim `iss`). Needed for OAUTHBEARER.",
    ),
    node_setting("sasl.oauthbearer.sub.claim.name", "string", "sub", "The claim with the name of the user."),
    node_setting(
        "sasl.oauthbearer.scope.claim.name",
        "string",
        "scope",
        "The claim with the scopes: where a token has it, it must be a text or a list of texts.",
    ),
    node_setting(
        "sasl.oauthbearer.clock.skew.seconds",
        "int",
        30,
        "How far the clock of the issuer may be off, when `exp`, `nbf` and `iat` are checked.",
        at_least(0),
    ),
    node_setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "long",
        3_600_000,
        "The keys are read again this often, and when a token names an unknown one.",
        at_least(1_000),
    ),
    node_setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "long",
        100,
        "Pause after the first failed read of the keys; it doubles with each.",
        at_least(1),
    ),
    node_setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "long",
        10_000,
        "The longest pause between failed reads of the keys. The keys read before stay valid.",
        at_least(1),
    ),
)

ValueOf = Callable[[str, str], Any]
"""The value of a setting for a listener."""


def check_logins(listeners: Iterable[ListenerConfig], value_of: ValueOf) -> tuple[str, ...]:
    """Refuses secrets on connections that others can read (S6). Lines to log about what is weak."""
    notes = []
    for listener in listeners:
        if not listener.needs_login:
            continue
        mechanisms = value_of(listener.name, ENABLED_MECHANISMS)
        if not listener.tls:
            _check_without_tls(listener, mechanisms)
            if not listener.loopback:
                notes.append(
                    f"listener {listener.name} asks for a login without TLS: whoever reads its traffic can "
                    f"try passwords against it; use SASL_SSL ({', '.join(mechanisms)})"
                )
        if OAUTHBEARER in mechanisms:
            _check_oauth(listener, value_of)
    return tuple(notes)


def _check_without_tls(listener: ListenerConfig, mechanisms: tuple[str, ...]) -> None:
    if PLAIN in mechanisms:
        raise ConfigError(
            f"{ENABLED_MECHANISMS}: PLAIN sends the password itself, and listener {listener.name} is "
            f"{listener.security_protocol}, without TLS: use SASL_SSL, or SCRAM-SHA-512 for this listener"
        )
    if OAUTHBEARER in mechanisms and not listener.loopback:
        raise ConfigError(
            f"{ENABLED_MECHANISMS}: OAUTHBEARER sends the token itself, and listener {listener.name} is "
            f"{listener.security_protocol}, without TLS: use SASL_SSL, or bind it to 127.0.0.1"
        )


def _check_oauth(listener: ListenerConfig, value_of: ValueOf) -> None:
    for name in (_JWKS_URL, _AUDIENCE, _ISSUER):
        if not value_of(listener.name, name):
            raise ConfigError(
                f"{name}: not set, but listener {listener.name} has OAUTHBEARER among its mechanisms: "
                "say where the issuer's keys are, who issues tokens, and for which audience"
            )
