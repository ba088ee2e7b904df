# SPDX-License-Identifier: Apache-2.0
"""The settings of TLS listeners: Kafka's `ssl.*`, with keys and certificates in PEM.

Each may be set for one listener alone, as `listener.name.<listener>.<setting>`. Nothing here reads a file or
checks a certificate: that is broker/security/tls.py. Read next: principal_mapping.py, config/tls_checks.py.
"""

from __future__ import annotations

from headrace.config.security.principal_mapping import rules_problem
from headrace.config.setting import Allowed, listener_setting, one_of, some_of

PEM = "PEM"
NONE, REQUESTED, REQUIRED = "none", "requested", "required"
_CONVERSIONS = {
    "JKS": "keytool -importkeystore -srckeystore {0}.jks -destkeystore {0}.p12 -deststoretype PKCS12, then "
    "openssl pkcs12 -in {0}.p12 {1}-out {0}.pem",
    "PKCS12": "openssl pkcs12 -in {0}.p12 {1}-out {0}.pem",
}


def _pem_only(name: str, options: str) -> Allowed:
    def problem(value: str) -> str | None:
        if value == PEM:
            return None
        convert = _CONVERSIONS.get(value.upper())
        how = f"; convert it: {convert.format(name, options)}" if convert else ""
        return f"only {PEM} is read{how}"

    return Allowed(text=PEM, problem=problem)


def _some_protocol(value: tuple[str, ...]) -> str | None:
    return _PROTOCOLS.problem(value) if value else "name at least one"


_PROTOCOLS = some_of("TLSv1.2", "TLSv1.3")
_RULES = Allowed(text="RULE:pattern/replacement/[LU] or DEFAULT, separated by commas", problem=rules_problem)

TLS = (
    listener_setting(
        "ssl.keystore.type",
        "string",
        PEM,
        "The format of the node's key and certificate. Kafka's default, JKS, is not read.",
        _pem_only("keystore", "-nodes "),
    ),
    listener_setting(
        "ssl.keystore.location",
        "string",
        None,
        "A PEM file with the node's private key and its certificate, followed by those of intermediate "
        "authorities. Read again when it changes.",
    ),
    listener_setting(
        "ssl.keystore.certificate.chain",
        "password",
        None,
        "The node's certificate and those of intermediate authorities as PEM text, instead of a file.",
    ),
    listener_setting(
        "ssl.keystore.key",
        "password",
        None,
        "The node's private key as PEM text, with `ssl.keystore.certificate.chain`.",
    ),
    listener_setting(
        "ssl.key.password", "password", None, "The password of the private key, if it is encrypted."
    ),
    listener_setting(
        "ssl.truststore.type",
        "string",
        PEM,
        "The format of the trusted certificates. Kafka's default, JKS, is not read.",
        _pem_only("truststore", "-nokeys "),
    ),
    listener_setting(
        "ssl.truststore.location",
        "string",
        None,
        "A PEM file with the authorities whose client certificates are accepted, and that other nodes' "
        "certificates are checked against (not set: the system's authorities). Read again when it changes.",
    ),
    listener_setting(
        "ssl.truststore.certificates",
        "password",
        None,
        "The same authorities as PEM text, instead of a file.",
    ),
    listener_setting(
        "ssl.client.auth",
        "string",
        NONE,
        "Whether clients have to show a certificate: required, requested (those without one are "
        "`User:ANONYMOUS`) or none.",
        one_of(NONE, REQUESTED, REQUIRED),
    ),
    listener_setting(
        "ssl.enabled.protocols",
        "list",
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that clients may use. Older ones are not served.",
        Allowed(text=_PROTOCOLS.text, problem=_some_protocol),
    ),
    listener_setting(
        "ssl.principal.mapping.rules",
        "string",
        "DEFAULT",
        "How the distinguished name of a client certificate becomes a user name; the first rule that matches "
        "is used. DEFAULT: the whole name, such as `CN=alice,OU=sales,O=example`.",
        _RULES,
    ),
    listener_setting(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "Whether a node checks that another node's certificate is for the host it connects to. Empty: "
        "it does not.",
        one_of("https", ""),
    ),
)
