# SPDX-License-Identifier: Apache-2.0
"""How the console is started, checked: an unsafe combination is refused before a socket is opened (S14).

Knows no server. Read next: server.py.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from headrace.client.bootstrap import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError

LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    cluster: Cluster
    """With `login` only its addresses and TLS are used: every visitor has a login of their own (S15)."""
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    """Names, besides those of this host, under which browsers may reach the console."""
    login: bool = False
    read_only: bool = False
    certificate: Path | None = None
    key: Path | None = None
    """None: the key is in the certificate's file."""
    behind_tls_proxy: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ClientError("--tls-key has no certificate", next_step="add --tls-cert FILE")
        if self.certificate is not None and self.behind_tls_proxy:
            raise ClientError(
                "TLS ends at the proxy or at the console, not at both",
                next_step="leave out --behind-tls-proxy or --tls-cert",
            )
        if self.behind_tls_proxy and not self.login:
            raise ClientError("behind a proxy others can reach the console", next_step="add --login")
        if not is_loopback(self.host) and not (self.login and self.secure):
            raise ClientError(
                f"on {self.host} others can reach the console: it needs logins and TLS",
                next_step="add --login and --tls-cert FILE --tls-key FILE (or --behind-tls-proxy), "
                "or leave out --host",
            )

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by https."""
        return self.certificate is not None or self.behind_tls_proxy

    @property
    def scheme(self) -> str:
        return "https" if self.secure else "http"

    @property
    def plain_is_safe(self) -> bool:
        """Whether PLAIN, which sends the password itself, may be used on the way to the brokers."""
        local = (is_loopback(address.host) for address in parse_bootstrap(self.cluster.bootstrap))
        return self.cluster.security.tls is not None or all(local)


def is_loopback(host: str) -> bool:
    if host == LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
