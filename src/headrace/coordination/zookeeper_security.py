# SPDX-License-Identifier: Apache-2.0
"""How nodes log in to ZooKeeper, and who may read what they store there (S11). Read next: open_store.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import ConfigError
from headrace.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    set_acl: bool = False
    tls: bool = False
    authorities: str | None = None
    certificate: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_host: bool = True


def zookeeper_security(config: Mapping[str, Any]) -> ZooKeeperSecurity:
    """Raises ConfigError when the settings do not fit each other."""
    user, password = config["headrace.zookeeper.user"], config["headrace.zookeeper.password"]
    if (user is None) != (password is None):
        raise ConfigError(
            "headrace.zookeeper.user: name and password (headrace.zookeeper.password) go together"
        )
    if config["zookeeper.set.acl"] and user is None:
        raise ConfigError(
            "zookeeper.set.acl: entries belong to a login: set headrace.zookeeper.user and "
            "headrace.zookeeper.password"
        )
    return ZooKeeperSecurity(
        user=user,
        password=_revealed(password),
        set_acl=config["zookeeper.set.acl"],
        tls=config["zookeeper.ssl.client.enable"],
        authorities=config["zookeeper.ssl.truststore.location"],
        certificate=config["zookeeper.ssl.keystore.location"],
        key_password=_revealed(config["zookeeper.ssl.keystore.password"]),
        check_host=bool(config["zookeeper.ssl.endpoint.identification.algorithm"]),
    )


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
