# SPDX-License-Identifier: Apache-2.0
"""Nodes with guarded listeners beside the plain one: TLS, TLS with logins, and logins alone.

The same certificates (ECDSA P-256, made at run time) and the same SCRAM user for every engine. Knows nothing
of what is measured. Who starts such nodes: nodes.py.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.model import KAFKA
from headrace.cli.certs.authority import Authority, Issued
from headrace.cluster.engines.engine import PreparedNode, free_ports

HOST = "127.0.0.1"
USER, PASSWORD, MECHANISM = "bench", "a password of the benchmark", "SCRAM-SHA-512"
ITERATIONS = 4096
SUPER_USER = "User:CN=admin"
"""Of the client certificate, on listeners that ask for one."""
_DAYS = 2
_TIMEOUT_SECONDS = 30
_PROTOCOLS = {"TLS": "SSL", "LOGIN": "SASL_SSL", "SASL": "SASL_PLAINTEXT"}
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files: the authority, and key with certificate of the nodes and of the client `admin`."""

    authority: Path
    node: Path
    admin: Path


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(_DAYS)
    made = Certificates(authority=folder / "ca.pem", node=folder / "node.pem", admin=folder / "admin.pem")
    made.authority.write_bytes(authority.issued.certificate)
    _write_key_store(made.node, authority.node(["localhost", HOST], _DAYS))
    _write_key_store(made.admin, authority.client("admin", _DAYS))
    return made


def _write_key_store(path: Path, issued: Issued) -> None:
    path.touch(mode=0o600)
    path.write_bytes(issued.key + issued.certificate)


def secured_settings(certificates: Certificates, engine: str) -> dict[str, str]:
    """The same for every engine, and what Apache Kafka needs besides to serve SCRAM."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.node.resolve()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority.resolve()),
        "sasl.enabled.mechanisms": MECHANISM,
    }
    if engine == KAFKA:
        for name in ("login", "sasl"):
            settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = _SCRAM_MODULE
    return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredNode:
    """Where the guarded listeners of a node are, and how clients connect to them."""

    certificates: Certificates
    tls_port: int
    login_port: int
    sasl_port: int

    def tls_client(self, *, admin: bool = False) -> dict[str, Any]:
        """confluent-kafka over TLS; as `admin` with the client certificate."""
        settings = {
            "bootstrap.servers": f"{HOST}:{self.tls_port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.authority),
        }
        if admin:
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(self.certificates.admin)
        return settings

    def login_client(self) -> dict[str, Any]:
        """confluent-kafka over TLS with a SCRAM login."""
        return {
            **self.tls_client(),
            "bootstrap.servers": f"{HOST}:{self.login_port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificates.authority)


def secure(prepared: PreparedNode, certificates: Certificates) -> tuple[PreparedNode, SecuredNode]:
    """Add the guarded listeners to a prepared node of either engine."""
    ports = dict(zip(_PROTOCOLS, free_ports(len(_PROTOCOLS)), strict=True))
    if prepared.engine == KAFKA:
        properties = prepared.log_path.parent / "server.properties"
        text = properties.read_text()
        properties.write_text(text + kafka_listeners(text, ports))
    else:
        prepared = replace(prepared, command=(*prepared.command, *headrace_listeners(ports)))
    return prepared, SecuredNode(
        certificates=certificates,
        tls_port=ports["TLS"],
        login_port=ports["LOGIN"],
        sasl_port=ports["SASL"],
    )


def headrace_listeners(ports: Mapping[str, int]) -> list[str]:
    arguments: list[str] = []
    for name, port in ports.items():
        arguments += ["--listener", f"{name.lower()}={HOST}:{port},protocol={_PROTOCOLS[name]}"]
    return arguments


def kafka_listeners(properties: str, ports: Mapping[str, int]) -> str:
    """Lines that take the place of earlier ones: the node's own listeners and the guarded ones."""
    added = {
        "listeners": [f"{name}://{HOST}:{port}" for name, port in ports.items()],
        "advertised.listeners": [f"{name}://{HOST}:{port}" for name, port in ports.items()],
        "listener.security.protocol.map": [f"{name}:{_PROTOCOLS[name]}" for name in ports],
    }
    lines = []
    for key, values in added.items():
        own = re.search(rf"^{re.escape(key)}=(.*)$", properties, flags=re.MULTILINE)
        if own is None:
            raise ValueError(f"server.properties of Apache Kafka has no {key}")
        lines.append(f"{key}={','.join([own[1], *values])}\n")
    return "".join(lines)


def add_user(bootstrap: str) -> None:
    """The user that logs in, by Kafka's own API on the plain listener."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(_TIMEOUT_SECONDS)
