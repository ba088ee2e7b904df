# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka behind TLS and SASL: one node with a plain listener and three that are guarded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.cluster.engines.engine import free_ports
from headrace.cluster.engines.kafka import KafkaEngine

CERTIFICATES = Path(__file__).parents[1] / "data/tls"
USER = "ann"
PASSWORD = "it's, a=secret"
MODULES = "org.apache.kafka.common.security"
SETTINGS = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": str(CERTIFICATES / "server.pem"),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.login.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
    "listener.name.login.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.name.login.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.name.login.oauthbearer.sasl.jaas.config": (
        f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    ),
    "listener.name.brief.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.brief.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
    "listener.name.brief.connections.max.reauth.ms": "1500",
}


class Guarded(NamedTuple):
    """Addresses of one node's listeners: open; TLS with a client's certificate; SASL over TLS; SASL alone,
    with logins that end after 1.5 s."""

    plain: str
    mutual: str
    login: str
    brief: str


@contextmanager
def guarded_kafka(engine: KafkaEngine, folder: Path, more: dict[str, str] | None = None) -> Iterator[Guarded]:
    prepared = engine.prepare(folder, {**SETTINGS, **(more or {})})
    ports = free_ports(3)
    with (folder / "server.properties").open("a") as properties:
        properties.write(_listeners((folder / "server.properties").read_text(), ports))
    with prepared.launch() as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)
        yield Guarded(node.bootstrap, *(f"localhost:{port}" for port in ports))


def _listeners(properties: str, ports: list[int]) -> str:
    """The node's own listeners and three more; later lines win."""
    more = ",".join(
        f"{name}://localhost:{port}" for name, port in zip(("MUTUAL", "LOGIN", "BRIEF"), ports, strict=True)
    )
    own = re.search(r"^listeners=(.*)$", properties, flags=re.MULTILINE)
    advertised = re.search(r"^advertised.listeners=(.*)$", properties, flags=re.MULTILINE)
    assert own is not None
    assert advertised is not None
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MUTUAL:SSL,LOGIN:SASL_SSL,BRIEF:SASL_PLAINTEXT"
    return (
        f"listeners={own[1]},{more}\nadvertised.listeners={advertised[1]},{more}\n"
        f"listener.security.protocol.map={protocols}\n"
    )
