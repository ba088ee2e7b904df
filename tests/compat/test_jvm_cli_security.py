# SPDX-License-Identifier: Apache-2.0
"""The command line on Apache Kafka behind TLS and SASL, with certificates of `headrace certs make`."""

from __future__ import annotations

import base64
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.cli import main
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.guarded_kafka import MODULES, PASSWORD, USER, Guarded, guarded_kafka

pytest.importorskip("cryptography")
pytestmark = pytest.mark.compat_jvm


class Setup(NamedTuple):
    kafka: Guarded
    certs: Path


@pytest.fixture(scope="module")
def setup(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("guarded")
    certs = folder / "certs"
    hosts = ("--host", "localhost,127.0.0.1", "--client", "ann")
    assert main.run(["certs", "make", "--out", str(certs), *hosts]) == 0
    settings = {
        "ssl.keystore.location": str(certs / "nodes/localhost/keystore.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
    }
    (folder / "kafka").mkdir()
    with guarded_kafka(kafka_engine, folder / "kafka", settings) as kafka:
        yield Setup(kafka, certs)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command, and returns what it printed."""

    def call(*arguments: str, typed: bytes = b"", code: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        ended = main.run(list(arguments))
        captured = capsys.readouterr()
        assert ended == code, captured.err
        return captured.out if code == 0 else captured.err

    return call


def works(run: Callable[..., str], topic: str, bootstrap: str, config: Path) -> None:
    """Administration, sending and reading, alone and in a group; transactions."""
    reach = ("--bootstrap", bootstrap, "--command-config", str(config))
    run("topics", "create", topic, "--partitions", "1", *reach)
    run("produce", topic, *reach, typed=b"one\ntwo\n")
    assert run("consume", topic, "--exit-at-end", *reach).split() == ["one", "two"]
    assert run("consume", topic, "--group", topic, "--max", "2", *reach).split() == ["one", "two"]
    assert topic in {each["group"] for each in json.loads(run("groups", "list", "--json", *reach))}
    (partition,) = json.loads(run("transactions", "explain", topic, "--json", *reach))["partitions"]
    assert partition["last_stable_offset"] == partition["high_watermark"] == 2


def token(lifetime_s: float = 3600) -> str:
    """Unsecured, as the listener accepts."""
    claims = {"sub": USER, "iat": time.time() - 1, "exp": time.time() + lifetime_s}
    parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def written(setup: Setup, tmp_path: Path, **settings: str) -> Path:
    lines = {"security.protocol": "SASL_SSL", "ssl.truststore.location": str(setup.certs / "ca.pem")}
    lines |= {name.replace("_", "."): value for name, value in settings.items()}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return file


@pytest.mark.parametrize("settings", ["client.properties", "librdkafka.conf"])
def test_mutual_tls_with_the_settings_beside_a_certificate(
    setup: Setup, run: Callable[..., str], topic: str, settings: str
) -> None:
    works(run, topic, setup.kafka.mutual, setup.certs / "clients/ann" / settings)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_with_a_password(
    setup: Setup, run: Callable[..., str], topic: str, mechanism: str, tmp_path: Path
) -> None:
    module = (
        f"{MODULES}.plain.PlainLoginModule" if mechanism == "PLAIN" else f"{MODULES}.scram.ScramLoginModule"
    )
    jaas = f'{module} required username="{USER}" password="{PASSWORD}";'
    file = written(setup, tmp_path, sasl_mechanism=mechanism, sasl_jaas_config=jaas)
    works(run, topic, setup.kafka.login, file)


def test_a_token_from_a_file(setup: Setup, run: Callable[..., str], topic: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token())
    url = f"file://{tmp_path}/token"
    file = written(setup, tmp_path, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url)
    works(run, topic, setup.kafka.login, file)


def test_a_wrong_password_is_said_at_once_and_not_shown(
    setup: Setup, run: Callable[..., str], tmp_path: Path
) -> None:
    file = written(
        setup, tmp_path, sasl_mechanism="SCRAM-SHA-512", sasl_username=USER, sasl_password="s3cret"
    )
    started = time.monotonic()
    reach = ("--bootstrap", setup.kafka.login, "--command-config", str(file))
    said = run("topics", "list", *reach, code=1)
    assert "refuses the SCRAM-SHA-512 login" in said
    assert "s3cret" not in said
    assert time.monotonic() - started < 10, "no other tries"
