# SPDX-License-Identifier: Apache-2.0
"""The command line, Kafka's tools, the parallel consumer and headrace.read over mutual TLS, by one file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import headrace
from headrace.cli import main
from headrace.client.parallel import ParallelConsumer, Record
from tests.harness.live.node import NodeProcess
from tests.harness.live.tls_proxy import behind_tls_proxy

CERTIFICATES = Path(__file__).parents[1] / "data/tls"
Run = Callable[..., str]


class Guarded(NamedTuple):
    bootstrap: str
    config: str


@pytest.fixture
def guarded(start_node: Callable[..., NodeProcess], tmp_path: Path) -> Iterator[Guarded]:
    """A node that clients reach over TLS with a certificate alone; it holds the topic `t`."""
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={CERTIFICATES / 'client.pem'}\n"
        f"ssl.truststore.location={CERTIFICATES / 'ca.pem'}\n"
    )
    with behind_tls_proxy(start_node, CERTIFICATES, asks_for_certificate=True) as address:
        yield Guarded(address, str(config))


@pytest.fixture
def run(guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command, and returns what it printed."""

    def call(*arguments: str, typed: bytes = b"") -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        code = main.run(list(arguments))
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out

    return call


def test_commands_of_headrace(guarded: Guarded, run: Run) -> None:
    reach = ("--bootstrap", guarded.bootstrap, "--command-config", guarded.config)
    run("produce", "t", *reach, typed=b"one\ntwo\n")
    assert sorted(run("consume", "t", "--exit-at-end", *reach).split()) == ["one", "two"]
    group = ("--group", "g", "--max", "2")
    assert sorted(run("consume", "t", *group, *reach).split()) == ["one", "two"]
    assert {each["name"] for each in json.loads(run("topics", "list", "--json", *reach))} == {"t"}
    assert json.loads(run("topics", "describe", "t", "--producers", "--json", *reach))["topic"] == "t"
    (listed,) = json.loads(run("groups", "list", "--json", *reach))
    assert listed["lag"] == 0
    run("groups", "describe", "g", "--over", "0s", *reach)
    run("groups", "reset", "g", "--to-earliest", "--execute", *reach)
    run("configs", "set", "--topic", "t", "retention.ms=3600000", *reach)
    assert json.loads(run("cluster", "status", "--json", *reach))["nodes"]
    run("cluster", "elect", *reach)


def test_the_variable_and_kafkas_tools(guarded: Guarded, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ("--bootstrap-server", guarded.bootstrap)
    config = ("--command-config", guarded.config)
    assert "Topic: t" in run("kafka-topics", "--describe", "--topic", "t", *server, *config)
    run("kafka-console-producer", "--topic", "t", "--producer.config", guarded.config, *server, typed=b"x\n")
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", guarded.config)
    read = ("--topic", "t", "--from-beginning", "--max-messages", "1", "--group", "g")
    assert run("kafka-console-consumer", *read, *server) == "x\n"
    assert "g" in run("kafka-consumer-groups", "--list", *server).split()
    assert run("topics", "list", "--bootstrap", guarded.bootstrap)


def test_python_programs(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"bootstrap": guarded.bootstrap, "config": guarded.config}
    headrace.write(pa.table({"value": [b"a", b"b"]}), "t", **rows)
    assert headrace.topic("t", **rows).to_arrow().num_rows == 2
    with headrace.stream("t", group="streamed", **rows) as batches:
        assert next(iter(batches)).num_rows > 0
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", guarded.config)
    assert headrace.read("t", bootstrap=guarded.bootstrap).read_all().num_rows == 2
    seen: list[bytes | None] = []

    def handle(record: Record) -> None:
        seen.append(record.value)

    ParallelConsumer(guarded.bootstrap, "g", "t", handle, limit=2).run()
    assert sorted(value or b"" for value in seen) == [b"a", b"b"]
