# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's tools by their names: links, refusals in one line, help."""

from __future__ import annotations

import pytest

from headrace.cli import main
from headrace.cli.kafka_tools.names import TOOLS, headrace_arguments

NOWHERE = "127.0.0.1:1"
ACTIONS = {
    "kafka-topics": ["--list"],
    "kafka-console-producer": ["--topic", "t"],
    "kafka-console-consumer": ["--topic", "t"],
    "kafka-consumer-groups": ["--list"],
}


@pytest.mark.parametrize("program", ["kafka-topics", "/usr/local/bin/kafka-topics", r"C:\b\kafka-topics.exe"])
@pytest.mark.parametrize("suffix", ["", ".sh"])
def test_a_link_named_as_a_tool_calls_it(program, suffix):
    if not (suffix and program.endswith(".exe")):
        assert headrace_arguments([program + suffix, "--list"]) == ["kafka-topics", "--list"]


def test_other_names_are_headrace_itself():
    assert headrace_arguments(["/usr/bin/headrace", "topics", "list"]) == ["topics", "list"]
    assert headrace_arguments(["/x/main.py"]) == []


def test_every_tool_has_actions_in_this_test():
    assert ACTIONS.keys() == TOOLS.keys()


@pytest.mark.parametrize("tool", TOOLS)
def test_zookeeper_is_refused_with_the_option_to_use(tool, capsys):
    assert main.run([tool, "--zookeeper", "localhost:2181", *ACTIONS[tool]]) == 1
    captured = capsys.readouterr()
    assert "--bootstrap-server HOST:PORT" in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


@pytest.mark.parametrize("tool", TOOLS)
def test_the_address_of_a_broker_is_required(tool, capsys):
    assert main.run([tool, *ACTIONS[tool]]) == 1
    assert 'Missing required argument "[bootstrap-server]"' in capsys.readouterr().err


@pytest.mark.parametrize("tool", TOOLS)
def test_help_names_every_option_and_ends_well(tool, capsys):
    assert main.run([tool, "--help"]) == 0
    assert "--bootstrap-server" in capsys.readouterr().out


@pytest.mark.parametrize("tool", TOOLS)
def test_an_unknown_option_is_refused_in_one_line(tool, capsys):
    assert main.run([tool, "--bootstrap-server", NOWHERE, *ACTIONS[tool], "--colour"]) == 1
    error = capsys.readouterr().err
    assert "--colour" in error
    assert f"see: {tool} --help" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("tool", TOOLS)
def test_a_broker_that_nobody_reaches_is_named(tool, capsys):
    assert main.run([tool, "--bootstrap-server", NOWHERE, *ACTIONS[tool]]) == 1
    captured = capsys.readouterr()
    assert f"no Kafka broker can be reached at {NOWHERE}" in captured.out + captured.err


@pytest.mark.parametrize(
    ("tool", "option"),
    [
        ("kafka-topics", "--command-config"),
        ("kafka-console-producer", "--producer.config"),
        ("kafka-console-consumer", "--consumer.config"),
        ("kafka-consumer-groups", "--command-config"),
    ],
)
def test_the_clients_file_is_used_and_its_errors_are_said_without_a_broker(tool, option, tmp_path, capsys):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.password=s3cret\n")
    assert main.run([tool, "--bootstrap-server", NOWHERE, *ACTIONS[tool], option, str(file)]) == 1
    captured = capsys.readouterr()
    assert "PLAIN needs a user and a password" in captured.err
    assert "s3cret" not in captured.out + captured.err


@pytest.mark.parametrize("tool", TOOLS)
def test_the_variable_names_the_clients_file(tool, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(tmp_path / "none.properties"))
    assert main.run([tool, "--bootstrap-server", NOWHERE, *ACTIONS[tool]]) == 1
    assert "none.properties: no such configuration file" in capsys.readouterr().err


@pytest.mark.parametrize("tool", ["kafka-console-producer", "kafka-console-consumer"])
def test_a_password_among_the_arguments_is_refused_and_not_repeated(tool, capsys):
    options = [
        "--command-property",
        "security.protocol=SASL_SSL",
        "--command-property",
        "sasl.password=s3cret",
    ]
    assert main.run([tool, "--bootstrap-server", NOWHERE, *ACTIONS[tool], *options]) == 1
    error = capsys.readouterr().err
    assert "sasl.password=…: other users of this machine can see arguments" in error
    assert "--command-config FILE" in error
    assert "s3cret" not in error


USAGE = {
    "two actions": (["kafka-topics", "--list", "--create"], "exactly one action"),
    "no topic": (["kafka-topics", "--create"], '"[topic]"'),
    "settings are altered elsewhere": (
        ["kafka-topics", "--alter", "--topic", "t", "--config", "retention.ms=1"],
        "headrace configs set --topic t retention.ms=1",
    ),
    "nothing to alter": (["kafka-topics", "--alter", "--topic", "t"], '"[partitions]"'),
    "replicas are altered elsewhere": (
        ["kafka-topics", "--alter", "--topic", "t", "--partitions", "2", "--replication-factor", "3"],
        "headrace topics alter t --replication-factor 3",
    ),
    "a bad setting": (["kafka-topics", "--create", "--topic", "t", "--config", "x"], "KEY=VALUE"),
    "a bad pattern": (["kafka-topics", "--list", "--topic", "("], "not a regular expression"),
    "no scope": (
        ["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--to-earliest"],
        "--all-topics",
    ),
    "no group": (["kafka-consumer-groups", "--describe"], '"[group]"'),
    "both at once": (
        ["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--dry-run", "--execute"],
        "only accepts one of",
    ),
    "an unknown state": (["kafka-consumer-groups", "--list", "--state", "idle"], "'idle' is not one of"),
    "no topic to read": (["kafka-console-consumer"], "--include/--topic"),
    "an offset without a partition": (
        ["kafka-console-consumer", "--topic", "t", "--offset", "3"],
        "partition is required",
    ),
    "a foreign formatter": (
        ["kafka-console-consumer", "--topic", "t", "--formatter", "kafka.OffsetsMessageFormatter"],
        "is not served",
    ),
    "a foreign deserializer": (
        [
            "kafka-console-consumer",
            "--topic",
            "t",
            "--value-deserializer",
            "io.confluent.KafkaAvroDeserializer",
        ],
        "is not one of",
    ),
    "unknown acks": (
        ["kafka-console-producer", "--topic", "t", "--request-required-acks", "2"],
        "acks='2' is not one of",
    ),
    "an unknown codec": (
        ["kafka-console-producer", "--topic", "t", "--compression-codec", "brotli"],
        "compression.type='brotli'",
    ),
}


@pytest.mark.parametrize(("arguments", "reason"), USAGE.values(), ids=USAGE)
def test_wrong_options_are_refused_with_the_reason_without_any_broker(arguments, reason, capsys):
    tool, *options = arguments
    assert main.run([tool, "--bootstrap-server", NOWHERE, *options]) == 1
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.out == ""
