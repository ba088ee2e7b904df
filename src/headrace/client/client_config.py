"""The file with a client's settings: `--command-config`, `config=`, or the variable HEADRACE_CLIENT_CONFIG.

Java's properties format. Only settings of security are used; read next: security_names.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_names import read_security
from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.config.properties import read_properties
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.client.security import Security

VARIABLE = "HEADRACE_CLIENT_CONFIG"


def read_client_config(path: str | Path) -> dict[str, str]:
    """All settings of a properties file. ClientError names the file and the line, never a value."""
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


def connect_with(target: str | Cluster, config: str | Path | None) -> Cluster:
    """The cluster at an address with the security of `configured_security`; a Cluster has its own."""
    if isinstance(target, Cluster):
        return target
    return Cluster(bootstrap=target, security=configured_security(config))


def chosen_security(security: Security | None, config: str | Path | None) -> Security | None:
    """`security=` of a caller, or that of `configured_security`; both at once are refused."""
    if security is None:
        settings = configured_security(config)
        return None if settings == NO_SECURITY else settings.security()
    if config is not None:
        raise ClientError("both security and config say how to connect", next_step="give one of them")
    return security
