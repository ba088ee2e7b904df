# SPDX-License-Identifier: Apache-2.0
"""--command-config on every command that connects; passwords in no argument and no output."""

from __future__ import annotations

import json

import pytest
import typer

from headrace.cli import kafka_demo, main
from headrace.cli.client_settings import connect
from headrace.cli.commands import app
from headrace.cli.pipeline.options import source_settings
from headrace.client.settings import client_settings

NOWHERE = "127.0.0.1:1"


def _commands(command, path=()):
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), {option for parameter in command.params for option in parameter.opts}


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_every_command_that_connects_takes_the_file_of_a_client():
    connecting = {name for name, options in COMMANDS.items() if "--bootstrap" in options}
    assert len(connecting) > 15
    assert {name for name in connecting if "--command-config" not in COMMANDS[name]} == set()
    assert "--command-config" in COMMANDS["cluster remove"]
    assert {name for name in connecting if "-X" not in COMMANDS[name]} == set()
    assert "-X" in COMMANDS["cluster remove"]


def test_no_command_has_an_option_for_a_password():
    named = {option for options in COMMANDS.values() for option in options}
    assert {option for option in named if "password" in option or "secret" in option} == {"--password-file"}


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["produce", "t"],
        ["consume", "t"],
        ["groups", "list"],
        ["configs", "get", "--topic", "t"],
        ["plan", "t", "--group", "g"],
        ["cluster", "status"],
        ["cluster", "elect"],
    ],
)
@pytest.mark.parametrize("way", ["option", "variable"])
def test_errors_in_the_file_are_said_and_its_passwords_are_not(command, way, tmp_path, capsys, monkeypatch):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.password=s3cret\n")
    options = ["--command-config", str(file)] if way == "option" else []
    if way == "variable":
        monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(file))
    assert main.run([*command, "--bootstrap", NOWHERE, "--json", *options]) == 1
    captured = capsys.readouterr()
    said = json.loads(captured.out or captured.err)
    assert "client.properties: PLAIN needs a user and a password" in json.dumps(said)
    assert "s3cret" not in captured.out + captured.err


def test_the_demo_program_takes_it_too(tmp_path):
    chosen = kafka_demo.parse(["-mode", "producer", "-command-config", str(tmp_path / "x")])
    assert chosen.command_config == str(tmp_path / "x")


def test_a_pipelines_password_is_refused_among_the_arguments(capsys):
    arguments = ["store", "--topic", "t", "--path", "/x", "--option", "kafka.sasl.password=s3cret"]
    assert main.run(["pipeline", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert "kafka.sasl.password=…: other users of this machine can see arguments" in error
    assert "s3cret" not in error


def test_settings_of_a_client_are_options_of_a_pipelines_source():
    found = source_settings(["minPartitions=4"], ["security.protocol=SSL", "ssl.ca.location=/ca.pem"])
    assert found == {
        "minPartitions": "4",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": "/ca.pem",
    }


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-X", "client.id=a"], "client.id has no effect on a pipeline"),
        (["-X", "security.protokol=SSL"], "did you mean 'security.protocol'?"),
        (["-X", "security.protocol=TLS"], "'TLS'"),
        (["-X", "security.protocol=SSL", "-o", "kafka.security.protocol=SSL"], "is also set by --option"),
        (["-X", "security.protocol=SSL", "--command-config", "f"], "write all of it into the file"),
        (["-o", "startingOffset=latest"], "startingOffset"),
        (["--from", "yesterday"], "--from"),
    ],
)
def test_wrong_settings_of_a_pipeline_are_usage_errors(words, complaint, capsys):
    pipeline = ["pipeline", "run", "store", "--topic", "t", "--path", "/x", "--bootstrap", NOWHERE]
    assert main.run([*pipeline, *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_wrong_option_in_a_file_names_its_pipeline(tmp_path, capsys):
    file = tmp_path / "pipelines.toml"
    file.write_text('[copy.large]\ntopic = "a"\nto = "b"\noptions = { minPartition = 3 }\n')
    assert main.run(["pipeline", "run", str(file), "--bootstrap", NOWHERE]) == 1
    assert "pipeline 'large'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["run", "store", "--topic", "t", "--path", "s3://lake/t"],
        ["run", "analyze", "--topic", "t", "--window", "1m", "--path", "s3://lake/t"],
        ["optimize", "s3://lake/t"],
    ],
)
def test_a_secret_of_an_object_store_is_refused_among_the_arguments(command, capsys):
    assert main.run(["pipeline", *command, "--storage", "aws_secret_access_key=s3cret"]) == 2
    error = capsys.readouterr().err
    assert "aws_secret_access_key=…: other users of this machine can see arguments" in error
    assert "s3cret" not in error


def test_an_unreachable_secured_listener_is_reported_at_once(tmp_path, capsys):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    assert main.run(["topics", "list", "--bootstrap", NOWHERE, "--command-config", str(file)]) == 1
    assert f"no Kafka broker can be reached at {NOWHERE}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("security.protocol", "'security.protocol' is not NAME=VALUE"),
        ("=SSL", "'=SSL' is not NAME=VALUE"),
        ("security.protokol=SSL", "there is no setting security.protokol; did you mean 'security.protocol'?"),
        ("client.idd=a", "there is no setting client.idd; did you mean 'client.id'?"),
        ("xyzzy=1", "there is no setting xyzzy; docs/security.md lists the settings"),
        ("security.protocol=TLS", "security.protocol cannot be 'TLS'; use one of PLAINTEXT, SSL"),
        ("request.timeout.ms=soon", "request.timeout.ms cannot be 'soon'; write a number of milliseconds"),
        ("bootstrap.servers=h:1", "bootstrap.servers is an option of its own: --bootstrap"),
        ("ssl.ca.location=ca.pem", "ssl.ca.location has no effect with security.protocol PLAINTEXT"),
        ("sasl.password=s3cret", "other users of this machine can see arguments"),
    ],
)
def test_a_wrong_setting_of_a_client_is_a_usage_error(setting, complaint, capsys):
    assert main.run(["topics", "list", "--bootstrap", NOWHERE, "-X", setting]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert "s3cret" not in error


def test_a_setting_given_twice_is_a_usage_error(capsys):
    assert main.run(["topics", "list", "-X", "client.id=a", "-X", "client.id=b"]) == 2
    assert "'client.id' is set twice" in capsys.readouterr().err


def test_settings_come_before_the_file_and_the_file_before_the_variable(tmp_path, monkeypatch):
    file, other = tmp_path / "client.properties", tmp_path / "other.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=/file.pem\nsocket.timeout.ms=7\n")
    other.write_text("security.protocol=SSL\nssl.ca.location=/variable.pem\nclient.id=v\n")
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(other))
    found = connect("h:1", None, ["request.timeout.ms=9"])
    assert (found.security.tls.authorities_file, found.client_id) == ("/variable.pem", "v")
    found = connect("h:1", str(file), ["ssl.ca.location=/flag.pem"])
    assert (found.security.tls.authorities_file, found.client_id) == ("/flag.pem", None)
    assert client_settings(found)["socket.timeout.ms"] == 7
    assert client_settings(connect("h:1", str(file), ["client.id=me"]))["client.id"] == "me"
