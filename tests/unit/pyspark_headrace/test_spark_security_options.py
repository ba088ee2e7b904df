# SPDX-License-Identifier: Apache-2.0
"""TLS and SASL in options: both families of names, what is refused rather than left out, and what travels."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.client.sasl import OAuthBearer, Plain, ScramSha512
from headrace.client.security_options import split_security_options
from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from pyspark_headrace.options import read_settings, write_settings

CERTIFICATES = Path(__file__).parents[2] / "data/tls"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "ann",
    "kafka.sasl.password": "secret",
}


def settings(**options: str) -> SecuritySettings:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return split_security_options(named)[0]


def test_reads_and_writes_take_it_and_the_other_options_stay() -> None:
    read = read_settings({"bootstrap": "a:1", "subscribe": "orders", **LOGIN}, streaming=True)
    assert (read.selection.names, read.security.protocol) == (("orders",), "SASL_SSL")
    assert (
        write_settings({"bootstrap": "a:1", "topic": "copies", **LOGIN}, streaming=False).security
        == read.security
    )
    assert read_settings({"bootstrap": "a:1", "subscribe": "orders"}, streaming=False).security == NO_SECURITY


def test_security_options_are_serialized_and_restored() -> None:
    sent = split_security_options({**LOGIN, "kafka.ssl.ca.location": str(CERTIFICATES / "ca.pem")})[0]
    arrived = pickle.loads(pickle.dumps(sent)).security()
    assert arrived.sasl == ScramSha512("ann", "secret")
    assert isinstance(arrived.tls, ssl.SSLContext)
    assert arrived.tls.check_hostname
    assert "secret" not in repr(sent)


def test_javas_way_to_write_a_login() -> None:
    written = rf"""{JAAS} username="ann" password="it's, a=\"secret\"" ;"""
    found = settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="plain", sasl_jaas_config=written)
    assert found.security().sasl == Plain("ann", 'it\'s, a="secret"')
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
    assert unchecked.tls is not None
    assert not unchecked.tls.checks_host


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl_mechanism": "PLAIN"}, "kafka.sasl.mechanism has no effect with security.protocol PLAIN"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "ssl_ca_location": "ca.pem"},
            "kafka.ssl.ca.location has no effect",
        ),
        ({"security_protocol": "TLS"}, "use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            {"security_protocol": "SASL_SSL"},
            "no SASL mechanism is set; set kafka.sasl.mechanism to PLAIN, SCRAM-SHA-256",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "GSSAPI",
                "sasl_username": "a",
                "sasl_password": "",
            },
            "SASL mechanism 'GSSAPI' is not supported",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "PLAIN needs a user and a password"),
        (
            {"security_protocol": "SSL", "ssl_truststore_type": "JKS"},
            "type JKS are not supported; convert it",
        ),
        ({"security_protocol": "SSL", "ssl_truststore_location": "/a/b.p12"}, "b.p12' is a key store"),
        ({"security_protocol": "SSL", "ssl_ca_locaton": "x"}, "did you mean 'ssl.ca.location'"),
    ],
)
def test_unsupported_security_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        settings(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl_ca_location": "/nowhere.pem"}, "certificates in '/nowhere.pem' cannot be used: No such file"),
        ({"ssl_ca_pem": "no certificate"}, "certificates in the settings cannot be used"),
        ({"ssl_certificate_location": str(CERTIFICATES / "ca.pem")}, "certificate and key in '.*ca.pem"),
    ],
)
def test_a_file_that_does_not_do_is_named_where_it_is_opened(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        settings(security_protocol="SSL", **options).security()


def test_a_clients_properties_file_is_read_in_the_driver_and_its_path_is_all_that_spark_shows(
    tmp_path: Path,
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=ann\nsasl.password=secret\n"
    )
    read = read_settings({"bootstrap": "a:1", "subscribe": "orders", "config": str(file)}, streaming=True)
    file.unlink()
    assert pickle.loads(pickle.dumps(read.security)).security().sasl == Plain("ann", "secret")
    assert "secret" not in repr(read)


def test_a_file_and_options_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"options 'config' and 'kafka\.security\.protocol' both say"):
        split_security_options({"config": str(tmp_path / "x"), **LOGIN})


def test_the_variable_names_the_file_when_no_option_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(file))
    assert split_security_options({})[0].protocol == "SSL"
    assert split_security_options(LOGIN)[0].protocol == "SASL_SSL"


def test_a_token_login_travels_to_the_workers(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    sent = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"file://{tmp_path}/token",
    )
    sasl = pickle.loads(pickle.dumps(sent)).security().sasl
    assert isinstance(sasl, OAuthBearer)
    assert sasl.token() == "a.b.c"
