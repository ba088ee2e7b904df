# SPDX-License-Identifier: Apache-2.0
"""The TLS of a node's listeners: settings and files become contexts, again whenever a file changes (S22).

What a context does with a connection is in headrace/tls. Read next: distinguished_name.py,
config/security/tls_settings.py, network/connection.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from headrace.broker.security.distinguished_name import subject_of
from headrace.config import NodeConfig
from headrace.config.security.principal_mapping import map_name, parse_rules
from headrace.errors import ConfigError, DecodeError
from headrace.principal import ANONYMOUS, Principal, user
from headrace.secret import Secret
from headrace.world import Files, Thread, TlsContext, TlsMaterial, World, read_file

logger = logging.getLogger(__name__)

RELOAD_S = 1.0


class ListenerTls:
    """The present contexts of one listener: of its clients, and of connections to other nodes' listeners."""

    def __init__(self, world: World, config: NodeConfig, listener: str | None) -> None:
        """Without a listener: of the operators' endpoint. Raises ConfigError."""
        self._owner = "the metrics endpoint" if listener is None else f"listener {listener}"
        self._settings = _Settings(config, listener)
        self._files = world.files
        self._network = world.network
        self._rules = parse_rules(self._settings["ssl.principal.mapping.rules"])
        self._problem: str | None = None
        self._material = self._read()
        self._server, self._client = self._contexts(self._material)

    def server(self) -> TlsContext:
        """For the next client that connects."""
        return self._server

    def client(self) -> TlsContext:
        """For the next connection to another node."""
        return self._client

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Of a client that has shown this certificate. Raises DecodeError when it cannot have a name."""
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = map_name(self._rules, subject)
        if not name:
            raise DecodeError(
                f"no rule of ssl.principal.mapping.rules gives the certificate of {subject!r} a user name"
            )
        return user(name)

    async def reload(self, thread: Thread) -> None:
        """Reads the files again; what cannot be used is logged once, and the present certificates stay."""
        try:
            material = await thread.run(self._read)
            if material != self._material:
                self._server, self._client = await thread.run(self._contexts, material)
                self._material = material
                logger.info("the certificates of %s were loaded again", self._owner)
            self._problem = None
        except ConfigError as error:
            if str(error) != self._problem:
                logger.error("%s. The certificates loaded before stay in use", error)
            self._problem = str(error)

    def _read(self) -> TlsMaterial:
        settings = self._settings
        key_store = settings.text(self._files, "ssl.keystore.location")
        return TlsMaterial(
            certificate_chain=key_store or settings.inline("ssl.keystore.certificate.chain") or b"",
            private_key=key_store or settings.inline("ssl.keystore.key") or b"",
            key_password=settings.secret("ssl.key.password"),
            authorities=settings.text(self._files, "ssl.truststore.location")
            or settings.inline("ssl.truststore.certificates"),
            client_auth=settings["ssl.client.auth"],
            protocols=settings["ssl.enabled.protocols"],
            check_host_names=bool(settings["ssl.endpoint.identification.algorithm"]),
        )

    def _contexts(self, material: TlsMaterial) -> tuple[TlsContext, TlsContext]:
        try:
            return self._network.server_tls(material), self._network.client_tls(material)
        except ConfigError as error:
            raise ConfigError(f"the certificates of {self._owner} cannot be used: {error}") from None


class _Settings:
    """The settings of one listener, or of the operators' endpoint."""

    def __init__(self, config: NodeConfig, listener: str | None) -> None:
        self._config = config
        self._listener = listener

    def __getitem__(self, name: str) -> Any:
        if self._listener is None:
            return self._config[self._key(name)]
        return self._config.of_listener(self._listener, name)

    def _key(self, name: str) -> str:
        if self._listener is None:
            return self._config.key_of_metrics(name)
        return self._config.key_of(self._listener, name)

    def inline(self, name: str) -> bytes | None:
        text = self.secret(name)
        return text.encode() if text else None

    def secret(self, name: str) -> str | None:
        value: Secret | None = self[name]
        return None if value is None else value.reveal()

    def text(self, files: Files, name: str) -> bytes | None:
        """The contents of the file that a setting names. Raises ConfigError."""
        location = self[name]
        if not location:
            return None
        try:
            return read_file(files, Path(location))
        except OSError as error:
            key = self._key(name)
            raise ConfigError(f"{key}={location} cannot be read: {error.strerror or error}") from None


class Reloaded(Protocol):
    async def reload(self, thread: Thread) -> None: ...


async def reload_all(items: Sequence[Reloaded], thread: Thread) -> None:
    for each in items:
        await each.reload(thread)
