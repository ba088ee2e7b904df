# SPDX-License-Identifier: Apache-2.0
"""A cluster as a client reaches it: bootstrap addresses, security and settings of the client, in one value.

Tools take it or a plain `HOST:PORT,…`, which means PLAINTEXT. Read next: security_settings.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.security_settings import NO_SECURITY, SecuritySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    bootstrap: str
    security: SecuritySettings = NO_SECURITY
    client_id: str | None = None
    """None: each kind of client has its own."""
    request_timeout_ms: int | None = None
    """None: each kind of client has its own."""

    def __str__(self) -> str:
        """The addresses, for messages."""
        return self.bootstrap


def as_cluster(target: str | Cluster) -> Cluster:
    return target if isinstance(target, Cluster) else Cluster(bootstrap=target)
