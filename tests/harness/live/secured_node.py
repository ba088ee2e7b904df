# SPDX-License-Identifier: Apache-2.0
"""A live node with two listeners: one without a login, for the test itself, and one that asks for a login."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.cluster.engines.engine import free_ports
from tests.harness.live.node import HOST, NodeProcess

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_TIMEOUT_S = 20


class SecuredNode:
    """Use it as a context manager. `open` is the address without a login, `secure` the one with."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        open_port, secure_port = free_ports(2)
        self.process = NodeProcess(
            directory,
            port=open_port,
            listeners=[f"open={HOST}:{open_port}", f"secure={HOST}:{secure_port}"],
            settings={
                "listener.security.protocol.map": "OPEN:PLAINTEXT,SECURE:SASL_PLAINTEXT",
                **(settings or {}),
            },
        )
        self.open = f"{HOST}:{open_port}"
        self.secure = f"{HOST}:{secure_port}"

    def __enter__(self) -> SecuredNode:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.__exit__()

    def set_password(self, user: str, password: str, *mechanisms: str) -> None:
        set_password(self.open, user, password, *mechanisms)

    def delete_user(self, user: str) -> None:
        _alter(self.open, [UserScramCredentialDeletion(user, mechanism) for mechanism in MECHANISMS.values()])


def set_password(bootstrap: str, user: str, password: str, *mechanisms: str) -> None:
    """Of all mechanisms when none is given."""
    _alter(
        bootstrap,
        [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(MECHANISMS[mechanism], 4096), password.encode()
            )
            for mechanism in mechanisms or MECHANISMS
        ],
    )


def _alter(bootstrap: str, changes: list[UserScramCredentialAlteration]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(_TIMEOUT_S)
