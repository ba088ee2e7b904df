# SPDX-License-Identifier: Apache-2.0
"""SSLContexts from PEM files and PEM text; errors say which file does not do, and how to convert key stores.

Read next: security_settings.py, which calls it.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.client.errors import ClientError

_JKS, _JCEKS, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30\x82"


def trusting_context(authorities_file: str | None, authorities: str | None) -> ssl.SSLContext:
    """A client's context that trusts these authorities, or the system's when there are none."""
    try:
        return ssl.create_default_context(cafile=authorities_file, cadata=authorities)
    except (OSError, ValueError) as error:
        raise unusable("the authorities' certificates", authorities_file, error) from error


def load_certificate(
    context: ssl.SSLContext, certificate_file: str, key_file: str | None, password: Callable[[], str]
) -> None:
    try:
        context.load_cert_chain(certificate_file, key_file, password)
    except (OSError, ValueError) as error:
        raise unusable("the client's certificate and key", certificate_file, error) from error


def load_certificate_text(
    context: ssl.SSLContext, certificate: str, key: str, password: Callable[[], str]
) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as combined:  # OpenSSL loads only files; mode 0600
        combined.write(f"{key}\n{certificate}\n")
        combined.flush()
        try:
            context.load_cert_chain(combined.name, password=password)
        except (OSError, ValueError) as error:
            raise unusable("the client's certificate and key", None, error) from error


def unusable(what: str, path: str | None, error: Exception) -> ClientError:
    if path is not None and _is_key_store(path):
        return not_pem(f"{path!r} is a key store, not PEM")
    where = "the settings" if path is None else repr(path)
    return ClientError(
        f"{what} in {where} cannot be used: {getattr(error, 'strerror', None) or error}",
        next_step="this process (with Spark: the driver and every worker) needs the file, in PEM; or set its "
        "text in ssl.truststore.certificates, ssl.keystore.certificate.chain and ssl.keystore.key",
    )


def not_pem(what: str) -> ClientError:
    return ClientError(
        what,
        next_step="convert it to PEM. Authorities: keytool -exportcert -rfc -keystore STORE -alias ALIAS "
        "-file ca.pem. A certificate and its key: openssl pkcs12 -in STORE.p12 -nodes -out client.pem "
        "(a JKS store first: keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 "
        "-deststoretype pkcs12)",
    )


def _is_key_store(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(4).startswith((_JKS, _JCEKS, _DER_SEQUENCE))
    except OSError:
        return False
