# SPDX-License-Identifier: Apache-2.0
"""A live node with ACLs and a listener of every security protocol, and how each client is told to reach it.

`open` is PLAINTEXT for the test itself, which is a super user there. The user `ann` has Read and Write on
topics and Read on groups whose names begin with `ann-`, by password, token or certificate alike.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from headrace.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.client.tools.acls import create_acls
from headrace.cluster.engines.engine import free_ports
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from tests.harness.live.certificates import Authority
from tests.harness.live.node import HOST, NodeProcess
from tests.harness.live.secured_node import set_password
from tests.harness.live.tls_node import create_topic
from tests.harness.tokens import Issuer, oauth_settings

USER, PASSWORD, OWN = "ann", "it's, a=secret", "ann-"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = "org.apache.kafka.common.security"
_MODULE = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True, slots=True)
class Way:
    """A security protocol with a mechanism, or none: the login is a client certificate."""

    protocol: str
    mechanism: str = ""

    def __str__(self) -> str:
        return f"{self.protocol} {self.mechanism}".strip()


WAYS = (
    Way("SSL"),
    *(Way("SASL_PLAINTEXT", mechanism) for mechanism in SCRAM),
    *(Way("SASL_SSL", mechanism) for mechanism in (*SCRAM, "PLAIN", "OAUTHBEARER")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """All that a client has to know to connect; each method says it in the words of one client."""

    bootstrap: str
    way: Way
    ca: Path
    certificate: Path
    user: str
    password: str
    token: str

    @property
    def _tls(self) -> bool:
        return "SSL" in self.way.protocol

    def confluent(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.way.protocol,
            "log_level": 0,
        }
        if self._tls:
            settings["ssl.ca.location"] = str(self.ca)
        if not self.way.mechanism:
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(self.certificate)
            return settings
        settings["sasl.mechanism"] = self.way.mechanism
        if self.way.mechanism == "OAUTHBEARER":
            return {**settings, "oauth_cb": lambda _: (self.token, time.time() + 60)}
        return {**settings, "sasl.username": self.user, "sasl.password": self.password}

    def kafka_python(self) -> dict[str, Any]:
        return {**self._python(), "sasl_oauth_token_provider": _Token(self.token)}

    def aiokafka(self) -> dict[str, Any]:
        return {**self._python(), "sasl_oauth_token_provider": _AioToken(self.token)}

    def _python(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.way.protocol,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }
        if self._tls:
            certificate = None if self.way.mechanism else self.certificate
            settings["ssl_context"] = Authority.context(self.ca, certificate)
        if self.way.mechanism:
            settings["sasl_mechanism"] = self.way.mechanism
        return settings

    def java(self, folder: Path) -> Path:
        """A properties file for Apache Kafka's tools."""
        lines = {"security.protocol": self.way.protocol}
        if self._tls:
            lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.way.mechanism:
            lines |= {"sasl.mechanism": self.way.mechanism, "sasl.jaas.config": self._jaas()}
        else:
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if self.way.mechanism == "OAUTHBEARER":
            (folder / "token").write_text(self.token)
            handler = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
            lines |= {
                "sasl.oauthbearer.token.endpoint.url": f"file://{folder / 'token'}",
                "sasl.login.callback.handler.class": handler,
            }
        file = folder / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return file

    def _jaas(self) -> str:
        module = f"{_MODULE[self.way.mechanism]} required"
        if self.way.mechanism == "OAUTHBEARER":
            return f"{module};"
        return f'{module} username="{self.user}" password="{self.password}";'

    def go(self) -> dict[str, str]:
        """Flags of the programs in tests/compat/go."""
        flags = {"bootstrap": self.bootstrap, "mechanism": self.way.mechanism}
        if self._tls:
            flags["ca"] = str(self.ca)
        if not self.way.mechanism:
            return {**flags, "certificate": str(self.certificate)}
        if self.way.mechanism == "OAUTHBEARER":
            return {**flags, "token": self.token}
        return {**flags, "user": self.user, "password": self.password}


class GuardedNode:
    """Use it as a context manager."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.authority = Authority(directory / "ca")
        self._stranger = Authority(directory / "stranger", "stranger")
        self._issuer = Issuer()
        keys = self._issuer.write_jwks(directory / "keys.json")
        names = ("open", "ssl", "sasl_plaintext", "sasl_ssl")
        self._ports = dict(zip(names, free_ports(4), strict=True))
        self._certificates = {
            False: self.authority.issue(USER),
            True: self._stranger.issue(USER),
        }
        self.open = f"{HOST}:{self._ports['open']}"
        self.process = NodeProcess(
            directory,
            port=self._ports["open"],
            listeners=[
                f"{name}={HOST}:{port},advertise=localhost:{port}" for name, port in self._ports.items()
            ],
            settings={
                "listener.security.protocol.map": (
                    "OPEN:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
                ),
                "ssl.keystore.location": str(self.authority.issue("node")),
                "ssl.truststore.location": str(self.authority.ca),
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
                "listener.name.ssl.ssl.client.auth": "required",
                **oauth_settings(keys),
                "sasl.enabled.mechanisms": ",".join(SCRAM),
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": ",".join((*SCRAM, "PLAIN", "OAUTHBEARER")),
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:ANONYMOUS;User:admin",
                "group.initial.rebalance.delay.ms": "0",
                **(settings or {}),
            },
        )

    def __enter__(self) -> GuardedNode:
        self.process.start()
        set_password(self.open, USER, PASSWORD)
        set_password(self.open, "admin", PASSWORD)
        topic, group = ResourceType.TOPIC, ResourceType.GROUP
        create_acls(
            self.open,
            [
                AclBinding(
                    kind, OWN, PatternType.PREFIXED, f"User:{USER}", "*", operation, Permission.ALLOW
                )
                for kind, operation in (
                    (topic, Operation.READ), (topic, Operation.WRITE), (group, Operation.READ),
                )
            ],
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.process.__exit__()

    def create_topic(self, name: str) -> None:
        create_topic(self.open, name)

    def reach(self, way: Way, *, wrong: bool = False, user: str = USER) -> Reach:
        """`wrong`: a wrong password, a token of another issuer, a certificate of another authority."""
        return Reach(
            bootstrap=f"localhost:{self._ports[way.protocol.lower()]}",
            way=way,
            ca=self.authority.ca,
            certificate=self._certificates[wrong],
            user=user,
            password="wrong" if wrong else PASSWORD,
            token=(Issuer() if wrong else self._issuer).token(user, lifetime_s=600),
        )


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class _AioToken(AioTokenProvider):  # type: ignore[misc]  # neither is aiokafka
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token
