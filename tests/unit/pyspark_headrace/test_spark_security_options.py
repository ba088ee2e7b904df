"""TLS and SASL in options: both families of names, what is refused rather than left out, and what travels."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.client.sasl import Plain, ScramSha512
from pyspark_headrace.options import read_settings, write_settings
from pyspark_headrace.security_options import NO_SECURITY, SecurityOptions, security_of

CERTIFICATES = Path(__file__).parents[2] / "data/tls"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "ann",
    "kafka.sasl.password": "secret",
}


def settings(**options: str) -> SecurityOptions:
    return security_of({f"kafka.{name.replace('_', '.')}": value for name, value in options.items()})[0]


def test_reads_and_writes_take_it_and_the_other_options_stay() -> None:
    read = read_settings({"subscribe": "orders", **LOGIN}, streaming=True)
    assert (read.selection.names, read.security.mechanism, read.security.tls) == (
        ("orders",),
        "SCRAM-SHA-512",
        True,
    )
    assert write_settings({"topic": "copies", **LOGIN}, streaming=False).security == read.security
    assert read_settings({"subscribe": "orders"}, streaming=False).security == NO_SECURITY


def test_it_travels_as_text_and_becomes_a_login_where_it_arrives() -> None:
    sent = security_of({**LOGIN, "kafka.ssl.ca.location": str(CERTIFICATES / "ca.pem")})[0]
    arrived = pickle.loads(pickle.dumps(sent)).security()
    assert arrived.sasl == ScramSha512("ann", "secret")
    assert isinstance(arrived.tls, ssl.SSLContext)
    assert arrived.tls.check_hostname
    assert "secret" not in repr(sent)


def test_javas_way_to_write_a_login() -> None:
    written = rf"""{JAAS} username="ann" password="it's, a=\"secret\"" ;"""
    found = settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="plain", sasl_jaas_config=written)
    assert found.security().sasl == Plain("ann", "it's, a=\"secret\"")
    assert found.security().tls is False


def test_certificates_from_files_and_as_text() -> None:
    client = CERTIFICATES / "client.pem"
    key, certificate = client.read_text().split("-----END PRIVATE KEY-----\n")
    for shown in (
        {"ssl_keystore_location": str(client), "ssl_keystore_type": "PEM", "ssl_keystore_password": "none"},
        {
            "ssl_keystore_certificate_chain": certificate,
            "ssl_keystore_key": f"{key}-----END PRIVATE KEY-----",
        },
    ):
        trusted = {"ssl_truststore_certificates": (CERTIFICATES / "ca.pem").read_text()}
        context = settings(security_protocol="SSL", **trusted, **shown).security().tls
        assert isinstance(context, ssl.SSLContext)
        assert len(context.get_ca_certs()) == 1
    unchecked = settings(security_protocol="SSL", ssl_endpoint_identification_algorithm="")
    assert not unchecked.checks_host


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl_mechanism": "PLAIN"}, "'kafka.sasl.mechanism' has no effect with security.protocol PLAIN"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "ssl_ca_location": "ca.pem"},
            "'kafka.ssl.ca.location' has no effect",
        ),
        ({"security_protocol": "TLS"}, "use one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ({"security_protocol": "SASL_SSL"}, "no SASL mechanism is given; .* to PLAIN, SCRAM-SHA-256"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "GSSAPI",
                "sasl_username": "a",
                "sasl_password": "",
            },
            "SASL mechanism 'GSSAPI' is not spoken here",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "user or password is missing"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "JKS"}, "type JKS are Java's; export it as PEM"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "/a/b.p12"}, "'/a/b.p12' is one of Java's"),
        ({"security_protocol": "SSL", "ssl_ca_locaton": "x"}, "did you mean 'ssl.ca.location'"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        settings(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl_ca_location": "/nowhere.pem"}, "certificates in '/nowhere.pem' cannot be used: No such file"),
        ({"ssl_ca_pem": "no certificate"}, "certificates in options cannot be used"),
        ({"ssl_certificate_location": str(CERTIFICATES / "ca.pem")}, "certificate and key in '.*ca.pem"),
    ],
)
def test_a_file_that_does_not_do_is_named_where_it_is_opened(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        settings(security_protocol="SSL", **options).security()
