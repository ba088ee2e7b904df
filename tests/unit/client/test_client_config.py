# SPDX-License-Identifier: Apache-2.0
"""The client's properties file: where it comes from, what it gives to each kind of client."""

from __future__ import annotations

import pickle
from pathlib import Path

import confluent_kafka
import pytest

from headrace.client.client_config import chosen_security, configured_security, connect_with
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security import Security
from headrace.client.security_settings import NO_SECURITY
from headrace.client.settings import client_settings

CERTIFICATES = Path(__file__).parents[2] / "data/tls"


@pytest.fixture
def file(tmp_path):
    def write(**settings):
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
        return str(path)

    return write


def login(file):
    return file(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="ann",
        sasl_password="s3cret",
        ssl_ca_location=CERTIFICATES / "ca.pem",
        acks="all",
    )


def test_the_variable_is_the_default(file):
    path = login(file)
    assert configured_security(None, {}) == NO_SECURITY
    found = configured_security(None, {"HEADRACE_CLIENT_CONFIG": path})
    assert found == configured_security(path, {})
    assert found.protocol == "SASL_SSL"


def test_no_password_is_shown(file):
    cluster = connect_with("h:9092", login(file))
    assert "s3cret" not in repr(cluster)
    assert str(cluster) == "h:9092"
    assert "s3cret" not in repr(cluster.security.security())


def test_a_cluster_travels_to_other_processes(file):
    cluster = connect_with("h:9092", login(file))
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_a_cluster_keeps_its_own_security(file):
    assert connect_with(Cluster(bootstrap="h:1"), login(file)).security == NO_SECURITY


def test_errors_name_the_file_and_the_setting(file, tmp_path):
    path = file(sasl_mechanism="PLAIN", sasl_password="s3cret")
    with pytest.raises(ClientError, match=r"client.properties: sasl.mechanism has no effect") as caught:
        configured_security(path)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ClientError, match=r"none.properties: no such configuration file; write lines"):
        configured_security(str(tmp_path / "none.properties"))


def test_one_way_to_say_how_to_connect(file):
    mine = Security()
    assert chosen_security(mine, None) is mine
    assert chosen_security(None, None) is None
    assert chosen_security(None, login(file)).sasl.user == "ann"
    with pytest.raises(ClientError, match="both security and config"):
        chosen_security(mine, login(file))


def token_file(file, tmp_path):
    (tmp_path / "token").write_text("a.b.c")
    return file(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"file://{tmp_path}/token",
    )


def certificate(file, _):
    client = CERTIFICATES / "client.pem"
    return file(
        security_protocol="SSL", ssl_keystore_location=client, ssl_endpoint_identification_algorithm=""
    )


def certificate_text(file, _):
    key, certificate = (CERTIFICATES / "client.pem").read_text().split("-----END PRIVATE KEY-----\n")
    key += "-----END PRIVATE KEY-----\n"
    named = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": certificate}
    return file(security_protocol="SSL", **{name: text.replace("\n", "\\n") for name, text in named.items()})


@pytest.mark.parametrize("made", [lambda file, _: login(file), certificate, certificate_text, token_file])
def test_confluent_kafka_and_our_connections_take_the_same_file(made, file, tmp_path):
    cluster = connect_with("127.0.0.1:1", made(file, tmp_path))
    assert cluster.security.security().open_options()
    settings = client_settings(cluster)
    assert settings["security.protocol"] == cluster.security.protocol.lower()
    confluent_kafka.Consumer(settings | {"group.id": "g"}).close()


def test_plaintext_leaves_librdkafka_alone():
    assert not [name for name in client_settings("h:9092") if name.startswith(("ssl", "sasl", "security"))]
