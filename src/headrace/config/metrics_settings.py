# SPDX-License-Identifier: Apache-2.0
"""The settings of the operators' endpoint (/metrics, /healthz, /readyz), and whether they go together.

Nothing here reads a file: that is broker/security/metrics_token.py and broker/security/tls.py.
Read next: load.py, docs/metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.config.listeners import PLAINTEXT, is_loopback
from headrace.config.security.tls_settings import NONE, REQUIRED
from headrace.config.setting import Allowed, between, node_setting, one_of
from headrace.errors import ConfigError

PREFIX = "headrace.metrics."
TOKEN, TOKEN_FILE = PREFIX + "token", PREFIX + "token.file"
_SSL = "SSL"
_HOST, _PORT, _PROTOCOL = PREFIX + "host", PREFIX + "port", PREFIX + "security.protocol"
_CLIENT_AUTH = PREFIX + "ssl.client.auth"
_BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def token_problem(token: str) -> str | None:
    """What is wrong with a token, which is an HTTP header's value (RFC 6750); None when nothing is."""
    if not token:
        return "it is empty"
    if _BEARER_TOKEN.fullmatch(token) is None:
        return "only letters, digits and - . _ ~ + / are allowed in it, and = at its end"
    return None


METRICS = (
    node_setting(_HOST, "string", "127.0.0.1", "The address of `/metrics`, `/healthz` and `/readyz`."),
    node_setting(
        _PORT,
        "int",
        0,
        "Their port. 0: a free one, named in the ready line; -1: none.",
        between(-1, 65535),
    ),
    node_setting(
        TOKEN,
        "password",
        None,
        "The token that `/metrics` asks for (`Authorization: Bearer TOKEN`). Needed when other machines "
        "reach `headrace.metrics.host`. `/healthz` and `/readyz` do not ask for it.",
        Allowed(text="a bearer token", problem=token_problem),
    ),
    node_setting(
        TOKEN_FILE,
        "string",
        None,
        "A file with that token, instead of the token itself. Read again when it changes.",
    ),
    node_setting(
        _PROTOCOL,
        "string",
        PLAINTEXT,
        "SSL: the three are served by https.",
        one_of(PLAINTEXT, _SSL),
    ),
    node_setting(
        PREFIX + "ssl.keystore.location",
        "string",
        None,
        "A PEM file with the key and the certificate for it. Read again when it changes. Not set: those of "
        "the node's `ssl.keystore` settings.",
    ),
    node_setting(
        PREFIX + "ssl.key.password",
        "password",
        None,
        "The password of that key, if it is encrypted. Not set: `ssl.key.password`.",
    ),
    node_setting(
        PREFIX + "ssl.truststore.location",
        "string",
        None,
        "A PEM file with the authorities whose client certificates are accepted. Not set: those of the "
        "node's `ssl.truststore` settings.",
    ),
    node_setting(
        _CLIENT_AUTH,
        "string",
        NONE,
        "required: every request needs a client certificate, those to `/healthz` and `/readyz`, too.",
        one_of(NONE, REQUIRED),
    ),
)


def uses_tls(config: Mapping[str, Any]) -> bool:
    return bool(config[_PORT] >= 0 and config[_PROTOCOL] == _SSL)


def check_metrics(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What to warn of. Raises ConfigError that begins with the key at fault."""
    if config[_PORT] < 0:
        return ()
    if config[TOKEN] and config[TOKEN_FILE]:
        raise ConfigError(f"{TOKEN_FILE}: {TOKEN} is also set; keep one of the two")
    _check_tls(config)
    return _check_address(config)


def _check_tls(config: Mapping[str, Any]) -> None:
    if not uses_tls(config):
        for name in ("ssl.keystore.location", "ssl.key.password", "ssl.truststore.location"):
            if config[PREFIX + name]:
                raise ConfigError(f"{PREFIX}{name}: has no effect without {_PROTOCOL}={_SSL}")
        if config[_CLIENT_AUTH] != NONE:
            raise ConfigError(f"{_CLIENT_AUTH}: has no effect without {_PROTOCOL}={_SSL}")
        return
    own = config[PREFIX + "ssl.keystore.location"]
    inline = config["ssl.keystore.key"] and config["ssl.keystore.certificate.chain"]
    if not (own or config["ssl.keystore.location"] or inline):
        raise ConfigError(
            f"{_PROTOCOL}={_SSL}: there is no certificate: set {PREFIX}ssl.keystore.location to a PEM file "
            "with the private key and the certificate, or the node's ssl.keystore.location"
        )
    stores = (PREFIX + "ssl.truststore.location", "ssl.truststore.location", "ssl.truststore.certificates")
    if config[_CLIENT_AUTH] != NONE and not any(config[name] for name in stores):
        raise ConfigError(
            f"{_CLIENT_AUTH}={config[_CLIENT_AUTH]}: name the authorities whose client certificates are "
            f"accepted with {PREFIX}ssl.truststore.location"
        )


def _check_address(config: Mapping[str, Any]) -> tuple[str, ...]:
    host = config[_HOST]
    if is_loopback(host):
        return ()
    has_token = bool(config[TOKEN] or config[TOKEN_FILE])
    if not (has_token or config[_CLIENT_AUTH] == REQUIRED or config["listeners.allow.anonymous"]):
        raise ConfigError(
            f"{_HOST}={host}: other machines may reach it, without authentication. Set {TOKEN_FILE}, "
            "keep 127.0.0.1, or allow it with --allow-anonymous (listeners.allow.anonymous=true)"
        )
    if has_token and not uses_tls(config):
        risk = "whoever reads the traffic learns the token of /metrics"
        return (f"{_HOST}={host} without TLS: {risk}; set {_PROTOCOL}={_SSL}",)
    return ()
