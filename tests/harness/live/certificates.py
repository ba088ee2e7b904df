# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by the `openssl` command: an authority and whom it signs for."""

from __future__ import annotations

import random
import ssl
import subprocess
from pathlib import Path

_LOOPBACK = "DNS:localhost,IP:127.0.0.1"


class Authority:
    """A certificate authority in a directory; `ca` is the file that trusts it."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._new_key(self._key)
        self._openssl(
            "req", "-x509", "-new", "-key", self._key, "-subj", f"/CN=Test authority {name}", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", "-out", self.ca,
        )  # fmt: skip

    def issue(self, name: str, *, subject: str | None = None, alternative: str = _LOOPBACK) -> Path:
        """A PEM file with a new key and its certificate."""
        key, request, certificate, extensions = (
            self.directory / f"{name}.{ending}" for ending in ("key", "csr", "crt", "ext")
        )
        self._new_key(key)
        self._openssl("req", "-new", "-utf8", "-key", key, "-subj", subject or f"/CN={name}", "-out", request)
        extensions.write_text(f"subjectAltName={alternative}\n")
        serial = str(random.getrandbits(64))
        self._openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-set_serial", serial,
            "-days", "1", "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        both = self.directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        return self.context(self.ca, certificate)

    @staticmethod
    def context(ca: Path, certificate: Path | None = None) -> ssl.SSLContext:
        """Of a client that trusts `ca`."""
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def _new_key(self, path: Path) -> None:
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)

    @staticmethod
    def _openssl(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
