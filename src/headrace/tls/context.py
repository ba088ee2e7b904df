# SPDX-License-Identifier: Apache-2.0
"""OpenSSL contexts made from PEM text: of a listener, and of a node that connects to another.

Knows no setting and no file. Read next: stream.py, broker/security/tls.py (where the text comes from).
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator

from headrace.errors import ConfigError
from headrace.world import TlsMaterial

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")
_PRIVATE_KEY = "PRIVATE KEY"
_LINE = 64
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(material: TlsMaterial) -> ssl.SSLContext:
    """Of a listener. Raises ConfigError that says what is wrong with the key or a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, material)
    _load_identity(context, material)
    context.verify_mode = _VERIFY[material.client_auth]
    # In every handshake OpenSSL would search the authorities for the rest of the node's own chain and verify
    # it, a third of the work. As in Kafka, the chain is that of the key store.
    if material.authorities is not None and context.verify_mode != ssl.CERT_NONE:
        _trust(context, material.authorities)
    # No resumed sessions: every connection proves its certificate to the present authorities.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    return context


def client_context(material: TlsMaterial) -> ssl.SSLContext:
    """Of connections to other nodes, with the node's own certificate as client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, material)
    context.check_hostname = material.check_host_names
    if material.authorities is None:
        context.load_default_certs()
    else:
        _trust(context, material.authorities)
    _load_identity(context, material)
    return context


def _set_versions(context: ssl.SSLContext, material: TlsMaterial) -> None:
    versions = [_VERSIONS[name] for name in material.protocols]
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _load_identity(context: ssl.SSLContext, material: TlsMaterial) -> None:
    chain = "".join(_blocks(material.certificate_chain, _CERTIFICATES))
    keys = list(_blocks(material.private_key, (_PRIVATE_KEY,), or_suffix=True))
    if not chain:
        raise ConfigError("there is no certificate (-----BEGIN CERTIFICATE-----) in the key store")
    if len(keys) != 1:
        raise ConfigError(
            f"there are {len(keys)} private keys (-----BEGIN PRIVATE KEY-----) in the key store; give one"
        )
    if "ENCRYPTED" in keys[0] and not material.key_password:
        raise ConfigError("the private key is encrypted: set ssl.key.password")
    try:
        with _in_memory((keys[0] + chain).encode()) as path:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=material.key_password or "")
    except ssl.SSLError as error:
        raise ConfigError(_identity_problem(error, keys[0])) from None


def _identity_problem(error: ssl.SSLError, key: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the first certificate; put the node's own certificate first"
    if "ENCRYPTED" in key:
        return f"the private key cannot be read with ssl.key.password ({error.reason or error})"
    return f"OpenSSL does not accept the key or a certificate of the key store ({error.reason or error})"


def _trust(context: ssl.SSLContext, authorities: bytes) -> None:
    certificates = "".join(_blocks(authorities, _CERTIFICATES))
    if not certificates:
        raise ConfigError("there is no certificate (-----BEGIN CERTIFICATE-----) in the trust store")
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise ConfigError(
            f"OpenSSL does not accept a certificate of the trust store ({error.reason or error})"
        ) from None
    # As in Java, every certificate of the trust store is trusted, not self-signed ones alone.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def _blocks(pem: bytes, names: tuple[str, ...], *, or_suffix: bool = False) -> Iterator[str]:
    """The blocks of these kinds, in lines again: a value in a properties file may have lost them."""
    for match in _BLOCK.finditer(pem.decode("ascii", errors="replace")):
        name, body = match.groups()
        if name not in names and not (or_suffix and name.endswith(names)):
            continue
        if ":" not in body:  # an old form of encryption has headers before the key
            text = "".join(body.split())
            body = "\n" + "".join(text[at : at + _LINE] + "\n" for at in range(0, len(text), _LINE))
        yield f"-----BEGIN {name}-----{body}-----END {name}-----\n"


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A path that reads as these bytes: OpenSSL takes keys from files only."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as directory:  # private to the user
        path = os.path.join(directory, "node.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(data)
        yield path
