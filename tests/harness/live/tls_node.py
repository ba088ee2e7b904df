# SPDX-License-Identifier: Apache-2.0
"""A live node with a plain and a TLS listener, and how each client library connects to the second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.cluster.engines.engine import free_ports
from tests.harness.live.certificates import Authority
from tests.harness.live.node import NodeProcess


class TlsNode:
    """Use it as a context manager. `address` is the TLS listener's, `node.bootstrap` the plain one's."""

    def __init__(
        self, directory: Path, *, authority: Authority, settings: Mapping[str, str] | None = None
    ) -> None:
        plain, tls = free_ports(2)
        self.authority = authority
        self.key_store = authority.issue("node")
        self.address = f"localhost:{tls}"
        self.port = tls
        self.node = NodeProcess(
            directory,
            listeners=[
                f"main=127.0.0.1:{plain}",
                f"tls=127.0.0.1:{tls},advertise=localhost:{tls},protocol=SSL",
            ],
            port=plain,
            settings={
                "ssl.keystore.location": str(self.key_store),
                "ssl.truststore.location": str(authority.ca),
                "ssl.client.auth": "required",
                **(settings or {}),
            },
        )

    def __enter__(self) -> TlsNode:
        self.node.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.node.alive:
            self.node.stop()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        create_topic(self.node.bootstrap, name, partitions)

    def security(self, certificate: Path | None) -> headrace.Security:
        return headrace.Security(tls=self.authority.client_context(certificate))

    def confluent(self, certificate: Path | None, *, ca: Path | None = None) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(ca or self.authority.ca),
        }
        if certificate is not None:
            settings |= {
                "ssl.certificate.location": str(certificate),
                "ssl.key.location": str(certificate),
            }
        return settings

    def python_client(self, certificate: Path | None) -> dict[str, Any]:
        """Arguments of kafka-python and aiokafka."""
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SSL",
            "ssl_context": self.authority.client_context(certificate),
        }


def create_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
