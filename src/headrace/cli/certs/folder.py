# SPDX-License-Identifier: Apache-2.0
"""The folder of `headrace certs make`: PEM files, and settings of nodes and clients that name them.

Keys have mode 0600 and folders 0700 (S19). Certificates are made in authority.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.cli.certs.authority import Authority, Issued

PRIVATE, _PUBLIC = 0o600, 0o644


class CertificateFolder:
    """`ca.pem` and `ca.key`; `nodes/HOST` and `clients/NAME`, each with certificate, key and settings."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._authority = self.path / "ca.pem"
        self._authority_key = self.path / "ca.key"

    def node(self, host: str) -> Path:
        return self.path / "nodes" / host.replace("*", "_").replace(":", "_")

    def client(self, name: str) -> Path:
        return self.path / "clients" / name

    def has_authority(self) -> bool:
        return self._authority.exists() or self._authority_key.exists()

    def load_authority(self) -> Authority:
        from headrace.cli.certs.authority import Authority, Issued

        try:
            issued = Issued(certificate=self._authority.read_bytes(), key=self._authority_key.read_bytes())
            return Authority.load(issued)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ClientError(
                f"the authority in {self.path} cannot be used: {reason}",
                next_step="restore its ca.pem and ca.key, or choose another folder with --out",
            ) from None

    def save_authority(self, authority: Authority) -> None:
        make_folder(self.path)
        write_file(self._authority_key, authority.issued.key, PRIVATE)
        write_file(self._authority, authority.issued.certificate, _PUBLIC)
        trust = {"security.protocol": "SSL"}
        self._write_client(self.path, trust, trust)

    def save_node(self, host: str, issued: Issued) -> None:
        folder = self.node(host)
        keystore = _write_issued(folder, issued)
        write_settings(
            folder / "server.properties",
            "Settings of a node's TLS listeners.",
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._authority),
            },
        )

    def save_client(self, name: str, issued: Issued) -> None:
        folder = self.client(name)
        keystore = _write_issued(folder, issued)
        java = {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }
        librdkafka = {
            "security.protocol": "SSL",
            "ssl.certificate.location": str(folder / "certificate.pem"),
            "ssl.key.location": str(folder / "key.pem"),
        }
        self._write_client(folder, java, librdkafka)

    def _write_client(self, folder: Path, java: Mapping[str, str], librdkafka: Mapping[str, str]) -> None:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._authority)}
        write_settings(
            folder / "client.properties",
            "Settings for Java clients and for headrace --command-config.",
            {**java, **trust},
        )
        write_settings(
            folder / "librdkafka.conf",
            "Settings for clients built on librdkafka, such as confluent-kafka and kcat.",
            {**librdkafka, "ssl.ca.location": str(self._authority)},
        )


def _write_issued(folder: Path, issued: Issued) -> Path:
    """The file with key and certificate, as Java's key stores of type PEM are."""
    make_folder(folder)
    write_file(folder / "key.pem", issued.key, PRIVATE)
    write_file(folder / "certificate.pem", issued.certificate, _PUBLIC)
    keystore = folder / "keystore.pem"
    write_file(keystore, issued.key + issued.certificate, PRIVATE)
    return keystore


def write_settings(path: Path, comment: str, settings: Mapping[str, str]) -> None:
    lines = [f"# {comment}", *(f"{name}={value}" for name, value in settings.items())]
    write_file(path, ("\n".join(lines) + "\n").encode(), PRIVATE)


def make_folder(folder: Path) -> None:
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700)


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Replaces the file in one step; it never exists with a wider mode or half its content."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
