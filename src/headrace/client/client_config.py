# SPDX-License-Identifier: Apache-2.0
"""The file with a client's settings: `--command-config`, `config=`, or the variable HEADRACE_CLIENT_CONFIG.

Java's properties format. Settings of security are used, and those of `CLIENT_NAMES` where a command connects.
Read next: security_names.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_names import canonical_name, read_security
from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.client.security import Security

VARIABLE = "HEADRACE_CLIENT_CONFIG"
CLIENT_NAMES = ("client.id", "request.timeout.ms", "socket.timeout.ms")
"""Settings besides those of security. The last is librdkafka's name for the one before."""
_LONGEST_TIMEOUT_MS = 300_000  # librdkafka's


def read_client_config(path: str | Path) -> dict[str, str]:
    """All settings of a properties file. ClientError names the file and the line, never a value."""
    from headrace.config.properties import read_properties  # most clients have no such file

    try:
        entries = read_properties(Path(path).expanduser())
    except ConfigError as error:
        raise ClientError(str(error), next_step="write lines of name=value, as for Java clients") from None
    return {entry.key: entry.value for entry in entries}


def configured_security(
    config: str | Path | None, environment: Mapping[str, str] = os.environ
) -> SecuritySettings:
    """The security of a file; without one that of the variable's file; without both PLAINTEXT."""
    path = config or environment.get(VARIABLE)
    if not path:
        return NO_SECURITY
    return read_security(read_client_config(path), where=f"{path}: ")


def overridden(settings: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """The settings with others in the place of those that mean the same."""
    meant = {_meaning(name) for name in by}
    return {name: value for name, value in settings.items() if _meaning(name) not in meant} | dict(by)


def cluster_of(bootstrap: str, settings: Mapping[str, str], *, where: str = "") -> Cluster:
    """The cluster at an address as a client with these settings reaches it; `where` comes before an error."""
    given = {_meaning(name): value.strip() for name, value in settings.items()}
    timeout = given.get("request.timeout.ms")
    if timeout is not None and not (timeout.isdecimal() and 0 < int(timeout) <= _LONGEST_TIMEOUT_MS):
        raise ClientError(
            f"{where}request.timeout.ms cannot be {timeout!r}",
            next_step=f"write a number of milliseconds, up to {_LONGEST_TIMEOUT_MS}",
        )
    return Cluster(
        bootstrap=bootstrap,
        security=read_security(settings, where=where),
        client_id=given.get("client.id") or None,
        request_timeout_ms=None if timeout is None else int(timeout),
    )


def connect_with(target: str | Cluster | None, config: str | Path | None) -> Cluster:
    """The cluster at `chosen_bootstrap` with the security of `configured_security`; a Cluster has its own."""
    if isinstance(target, Cluster):
        return target
    return Cluster(bootstrap=chosen_bootstrap(target), security=configured_security(config))


def chosen_security(security: Security | None, config: str | Path | None) -> Security | None:
    """`security=` of a caller, or that of `configured_security`; both at once are refused."""
    if security is None:
        settings = configured_security(config)
        return None if settings == NO_SECURITY else settings.security()
    if config is not None:
        raise ClientError("both security and config say how to connect", next_step="give one of them")
    return security


def _meaning(name: str) -> str:
    return "request.timeout.ms" if name == "socket.timeout.ms" else canonical_name(name)
