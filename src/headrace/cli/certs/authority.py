# SPDX-License-Identifier: Apache-2.0
"""A small certificate authority: ECDSA P-256, for the nodes and clients of a cluster.

The only module that imports `cryptography` (extra `certs`). Knows no files: folder.py writes them.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = "Headrace authority"
_CLOCK_SKEW = datetime.timedelta(minutes=5)
_NODE_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Nodes are clients of each other."""
_CLIENT_USES = (ExtendedKeyUsageOID.CLIENT_AUTH,)
_MOST_NAME = 64
"""Longest common name in a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate and its key, in PEM; the key in PKCS #8, which Java reads, too."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Issued(certificate=…, key=***)"


class Authority:
    """Signs certificates with its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, days: int) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(NAME), _name(NAME), key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, issued: Issued) -> Authority:
        """ValueError when the PEM is not that of an authority of ours."""
        key = serialization.load_pem_private_key(issued.key, password=None)
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("its key is not an elliptic curve key")
        if certificate.public_key() != key.public_key():
            raise ValueError("its key does not belong to its certificate")
        return cls(certificate, key)

    @property
    def issued(self) -> Issued:
        return _pem(self._certificate, self._key)

    @property
    def expires(self) -> datetime.datetime:
        return self._certificate.not_valid_after_utc

    def node(self, hosts: Sequence[str], days: int) -> Issued:
        """A certificate for a node that clients reach by these host names and addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(hosts[0], _NODE_USES, days, names)

    def client(self, name: str, days: int) -> Issued:
        """A certificate for a client; its principal is User:CN=name."""
        return self._issue(name, _CLIENT_USES, days)

    def _issue(
        self,
        name: str,
        uses: Sequence[x509.ObjectIdentifier],
        days: int,
        names: x509.SubjectAlternativeName | None = None,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(uses)), critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCK_SKEW,
        not_valid_after=now + datetime.timedelta(days=days),
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MOST_NAME])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
