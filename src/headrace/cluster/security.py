# SPDX-License-Identifier: Apache-2.0
"""Certificates and client files of a secure cluster on this host: where they are, and what nodes use of them.

    security/certs/         the authority and the nodes' certificate, as `headrace certs make` writes them
    security/admin/         client.properties, librdkafka.conf and password of the super user
    security/user/          the same of a user who may do nothing yet

They are written in cli/cluster/secure.py. Read next: engines/headrace.py (starts nodes with them).
"""

from __future__ import annotations

from pathlib import Path

from headrace.client.client_config import configured_security
from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.cluster.plan import ClusterPlan

ADMIN, USER = "admin", "user"
NODE_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names in the certificate, which all nodes share: the defaults of `headrace certs make`."""
MECHANISM = "SCRAM-SHA-512"


class SecurityFolder:
    """The paths of one secure cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def certificates(self) -> Path:
        return self.path / "certs"

    @property
    def authority(self) -> Path:
        return self.certificates / "ca.pem"

    @property
    def node_keystore(self) -> Path:
        return self.certificates / "nodes" / NODE_HOSTS[0] / "keystore.pem"

    def password(self, user: str) -> Path:
        return self.path / user / "password"

    def client_properties(self, user: str) -> Path:
        return self.path / user / "client.properties"

    def librdkafka(self, user: str) -> Path:
        return self.path / user / "librdkafka.conf"

    def node_settings(self) -> dict[str, str]:
        """Of every node; the listener is given separately."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node_keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
        }


def plan_security(plan: ClusterPlan) -> SecuritySettings:
    """How commands connect to this cluster: as its admin, or without security."""
    if plan.security is None:
        return NO_SECURITY
    return configured_security(SecurityFolder(Path(plan.security)).client_properties(ADMIN))
