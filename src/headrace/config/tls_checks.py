# SPDX-License-Identifier: Apache-2.0
"""Whether the TLS settings of all listeners go together, before any file is read.

Read next: security/tls_settings.py, load.py.
"""

from __future__ import annotations

from headrace.config.listeners import ListenerConfig
from headrace.config.node_config import NodeConfig
from headrace.config.security.tls_settings import NONE, REQUIRED
from headrace.errors import ConfigError


def check_tls(config: NodeConfig, listeners: tuple[ListenerConfig, ...]) -> None:
    """Refuses TLS listeners that lack a certificate. Each ConfigError begins with the key at fault."""
    for listener in listeners:
        if listener.tls:
            _check_key_store(config, listener.name)
            _check_trust_store(config, listener.name)


def requires_certificate(config: NodeConfig, listener: ListenerConfig) -> bool:
    return listener.tls and config.of_listener(listener.name, "ssl.client.auth") == REQUIRED


def _check_key_store(config: NodeConfig, listener: str) -> None:
    location, chain, key = (
        config.of_listener(listener, f"ssl.keystore.{part}")
        for part in ("location", "certificate.chain", "key")
    )
    if location and (chain or key):
        raise ConfigError(
            f"{config.key_of(listener, 'ssl.keystore.location')}: the certificate of listener {listener} is "
            "also given by ssl.keystore.certificate.chain or ssl.keystore.key; keep one of the two ways"
        )
    if not location and not (chain and key):
        raise ConfigError(
            f"listeners: {listener} uses TLS and has no certificate: set ssl.keystore.location to a PEM file "
            "with the private key and the certificate, or both ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )


def _check_trust_store(config: NodeConfig, listener: str) -> None:
    location, certificates = (
        config.of_listener(listener, f"ssl.truststore.{part}") for part in ("location", "certificates")
    )
    if location and certificates:
        raise ConfigError(
            f"{config.key_of(listener, 'ssl.truststore.location')}: the authorities of listener {listener} "
            "are also given by ssl.truststore.certificates; keep one of the two"
        )
    asks = config.of_listener(listener, "ssl.client.auth")
    if asks != NONE and not location and not certificates:
        raise ConfigError(
            f"{config.key_of(listener, 'ssl.client.auth')}={asks}: name the authorities whose client "
            "certificates are accepted with ssl.truststore.location or ssl.truststore.certificates"
        )
