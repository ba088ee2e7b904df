# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: help, start-up, errors as one line, exit codes, other platforms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import typer.main

import headrace
from headrace.cli import main, serve
from headrace.cli import serve_without_typer as plain
from headrace.cli.commands import app
from headrace.cli.serve_options import ServeOptions
from headrace.client.errors import ClientError
from headrace.config import NodeConfig
from headrace.errors import ConfigError

NOWHERE = "127.0.0.1:1"


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or typer.main.get_command(app)
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from commands(child, (*path, name))


ALL = dict(commands())


def test_every_command_of_the_issue_is_there() -> None:
    assert set(ALL) >= {
        ("serve",),
        ("produce",),
        ("consume",),
        ("log", "dump"),
        ("log", "scrub"),
        ("log", "repair"),
        ("log", "kept"),
        ("log", "clean"),
        ("configs", "get"),
        ("configs", "set"),
        *(("topics", name) for name in ("create", "list", "describe", "alter", "delete")),
    }


def test_up_is_cluster_up() -> None:
    short, long = ALL["up",], ALL["cluster", "up"]
    assert short.help == long.help
    assert [each.opts for each in short.params] == [each.opts for each in long.params]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_with_examples_and_json(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert f"headrace {' '.join(path)}" in text
    assert "--json" in text or path == ("mcp",), "which speaks JSON only"
    options = {name for parameter in ALL[path].params for name in parameter.opts}
    without = ("serve", "up", "cluster", "certs", "store", "log", "demo", "version")
    starts_nodes_or_works_on_files = path[0] in without
    if not starts_nodes_or_works_on_files and path[1:] not in [("new",), ("optimize",), ("pack",)]:
        assert "--bootstrap" in options
        assert "HEADRACE_BOOTSTRAP" in text
    assert all(parameter.help for parameter in ALL[path].params), "every option says what it does"


@pytest.mark.row("D3")
def test_help_says_what_one_and_several_partitions_cost_and_give(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["topics", "create", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for part in ("totally ordered", "on one core", "in parallel", "Order then holds only within", "memory"):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["topics", "create"], "Missing argument 'TOPIC'"),
        (["topics", "create", "t", "--partitions", "x"], "--partitions"),
        (["topics", "create", "t", "--config", "x"], "'x' is not KEY=VALUE"),
        (["topics", "create", "t", "--config", "a=1", "--config", "a=2"], "'a' is set twice"),
        (["topics", "create", "t", "--ranges", "A..B", "--ranges-from", "f"], "either --ranges or"),
        (["topics", "create", "t", "--ranges-from", "f"], "--ranges-from needs --partitions"),
        (["topics", "create", "t", "--outside", "sometimes"], "neither error nor nearest"),
        (["topics", "alter", "t"], "nothing to change"),
        (["produce", "t", "--acks", "2"], "'2' is not one of 0, 1, all"),
        (["produce", "t", "--partitioner", "magic"], "'magic' is not one of hash, sticky, range"),
        (["produce", "t", "--compression", "rar"], "'rar' is not one of none, gzip"),
        (["produce", "t", "--key", "k", "--key-separator", ":"], "either --key or --key-separator"),
        (["produce", "t", "--json-lines", "--key", "k"], "the key is in each line"),
        (["produce", "t", "--key-separator", ""], "may not be empty"),
        (["consume", "t", "--format", "xml"], "'xml' is not one of text, json, hex"),
        (["consume", "t", "--max", "0"], "--max"),
        (["configs", "get"], "exactly one of --topic"),
        (["configs", "get", "--topic", "t", "--node", "1"], "exactly one of --topic"),
        (["configs", "set", "--topic", "t"], "nothing to change"),
        (["serve", "--set", "x"], "'x' is not KEY=VALUE"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert complaint in captured.err
    assert "--help" in captured.err


def test_no_arguments_show_the_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: headrace" in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["topics", "describe", "t"],
        ["topics", "alter", "t", "--partitions", "2"],
        ["topics", "delete", "t", "--yes"],
        ["produce", "t"],
        ["consume", "t"],
        ["configs", "get", "--topic", "t"],
        ["configs", "set", "--topic", "t", "a=b"],
    ],
    ids=" ".join,
)
def test_a_broker_that_is_not_there_is_one_line_with_the_next_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*arguments, "--bootstrap", NOWHERE]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no Kafka broker can be reached at 127.0.0.1:1 (Connection refused)" in error
    assert "headrace serve" in error


def test_the_bootstrap_address_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "127.0.0.1:2")
    assert main.run(["topics", "list"]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_a_wrong_bootstrap_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topics", "list", "--bootstrap", "host:port"]) == 2
    assert "'host:port' is not a bootstrap address; write it as HOST:PORT" in capsys.readouterr().err


def test_an_error_as_json_is_one_document_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topics", "list", "--json", "--bootstrap", NOWHERE]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)
    assert error["code"] == "_TRANSPORT"
    assert error["next"].endswith("name another with --bootstrap HOST:PORT")


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (ClientError("a\x1b[2J\nb", next_step="do this"), 1, "headrace: a\\x1b[2J b; do this\n"),
        (ConfigError("file:3: wrong"), 1, "headrace: file:3: wrong\n"),
        (PermissionError(13, "Permission denied", "/data"), 1, "headrace: /data: Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
        (ZeroDivisionError("oops"), 1, "headrace: a bug in Headrace: ZeroDivisionError: oops; set"),
    ],
    ids=["client", "config", "system", "interrupt", "defect"],
)
def test_whatever_a_command_raises_becomes_a_line_and_a_code(
    raised: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr("headrace.client.tools.admin.Admin.__init__", fail)
    assert main.run(["topics", "list"]) == code
    assert capsys.readouterr().err.startswith(line)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headrace 0.")


def test_help_loads_few_modules() -> None:
    """Importing is most of what it costs; a count of modules does not vary with the machine."""
    count = "print(len(sys.modules), file=sys.stderr)"
    script = f"import sys; from headrace.cli.main import run; run(['--help']); {count}"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stderr) < 320


def test_help_loads_no_kafka_library_and_no_broker() -> None:
    script = (
        "import sys; from headrace.cli.main import run; run(['--help']); "
        "heavy = {'confluent_kafka', 'kio', 'rich.console', 'asyncio', 'headrace.broker', 'headrace.log'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stderr.strip() in ("[]", "['kio']"), "kio's error codes are part of headrace.errors"


def test_confluent_kafka_is_named_in_the_client_package_only() -> None:
    source = Path(headrace.__file__).parent
    program = source / "cli" / "kafka_demo.py"  # what a user would write
    importing = {
        path.relative_to(source).parts[0]
        for path in set(source.rglob("*.py")) - {program}
        if re.search(r"(?m)^\s*(import|from) confluent_kafka", path.read_text(encoding="utf-8"))
    }
    assert importing - {"testing", "demo"} == {"client"}, "tests and scenes of the demo may use any client"


def test_client_and_cli_work_without_what_windows_lacks() -> None:
    script = """
import sys
for name in ("uvloop", "fcntl", "resource", "pwd", "grp", "termios", "pty"):
    sys.modules[name] = None
import pkgutil, importlib, headrace.client, headrace.cli
for package in (headrace.client, headrace.cli):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from headrace.cli.main import run
assert run(["topics", "list", "--bootstrap", "127.0.0.1:1"]) == 1
assert run(["topics", "create", "--help"]) == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no Kafka broker can be reached" in done.stderr


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[NodeConfig]:
    """`serve` up to the point where the node would run."""
    configs: list[NodeConfig] = []

    def run(config: NodeConfig, on_ready: Any) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr("headrace.broker.app.run", run)
    return configs


def test_serve_without_arguments_just_works(
    served: list[NodeConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert main.run(["serve"]) == 0
    (config,) = served
    assert [(each.host, each.port) for each in config.listeners] == [("127.0.0.1", 9092)]
    assert config.data_directory == tmp_path / "headrace"


@pytest.mark.row("D20")
def test_serve_flags_become_settings(served: list[NodeConfig], tmp_path: Any) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nnode.id=9\n")
    flags = ["--config", str(file), "--data", str(tmp_path / "d"), "--node-id", "4", "--metrics-port", "0"]
    flags += ["--listener", "outside=0.0.0.0:9092,advertise=localhost:9092"]
    flags += ["--listener", "inside=127.0.0.1:29092", "--allow-anonymous"]
    flags += ["--set", "log.segment.bytes=1048576", "--log-format", "json", "--log-level", "debug"]
    assert main.run(["serve", *flags]) == 0
    (config,) = served
    assert config["num.partitions"] == 3
    assert config["node.id"] == 4
    assert config["log.segment.bytes"] == 1048576
    assert config["headrace.log.format"] == "json"
    assert config["headrace.log.level"] == "debug"
    assert config.data_directory == tmp_path / "d"
    assert [(each.name, each.advertised_host) for each in config.listeners] == [
        ("OUTSIDE", "localhost"),
        ("INSIDE", "127.0.0.1"),
    ]


def test_serve_reads_variables_only_with_from_env(
    served: list[NodeConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "7")
    assert main.run(["serve"]) == 0
    assert main.run(["serve", "--from-env"]) == 0
    assert [config["num.partitions"] for config in served] == [1, 7]


@pytest.mark.parametrize(
    ("flags", "complaint", "code"),
    [
        (["--set", "num.partition=3"], "num.partitions", 2),
        (["--set", "num.partitions=many"], "num.partitions", 2),
        (["--listener", "a=0.0.0.0:9092,advertise=localhost:9092"], "--allow-anonymous", 2),
        (["--listener", "nonsense"], "nonsense", 2),
        (["--config", "/no/such/file"], "/no/such/file", 1),
        (["--log-format", "xml"], "headrace.log.format", 2),
        (["--log-level", "loud"], "headrace.log.level", 2),
    ],
)
def test_serve_refuses_bad_settings_in_one_line(
    flags: list[str], complaint: str, code: int, served: list[NodeConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["serve", *flags]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert complaint in error
    assert not served


def test_serve_starts_without_the_command_line_library() -> None:
    script = (
        "import sys, headrace.broker.app as app; from headrace.cli.main import run; "
        "app.run = lambda config, on_ready: 0; code = run(['serve', '--set', 'num.partitions=2']); "
        "print(code, sorted({'typer', 'pydantic', 'confluent_kafka', 'multiprocessing'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n", done.stderr


def test_the_table_of_plain_options_is_what_serve_declares() -> None:
    declared = {}
    for hint in get_type_hints(serve.serve, include_extras=True).values():
        if get_origin(hint) is Annotated:
            kind, option = get_args(hint)
            declared |= dict.fromkeys((option.default, *option.param_decls), kind)
    assert declared == {
        **dict.fromkeys(plain.FLAGS, bool),
        **dict.fromkeys(plain.PATHS, Path | None),
        **dict.fromkeys(plain.TEXTS, str | None),
        **dict.fromkeys(plain.NUMBERS, int | None),
        **dict.fromkeys(plain.REPEATED, list[str] | None),
    }


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["topics", "list"],
        ["serve", "--help"],
        ["serve", "--unknown"],
        ["serve", "--data"],
        ["serve", "--node-id", "x"],
        ["serve", "--node-id", "-1"],
        ["serve", "--json=yes"],
        ["serve", "--set", "x"],
        ["serve", "--set", "a=1", "--set", "a=2"],
        ["serve", "-ddata"],
        ["serve", "-d=data"],
        ["serve", "data"],
    ],
    ids=" ".join,
)
def test_complex_arguments_are_left_to_typer(arguments: list[str]) -> None:
    assert plain.parse_serve(arguments) is None


def test_plain_options_are_read_in_both_forms() -> None:
    spaced = plain.parse_serve(["serve", "-d", "x", "-l", "a=h:1", "--metrics-port", "-1", "-s", "k=a=b"])
    joined = plain.parse_serve(["serve", "--data=x", "--listener=a=h:1", "--metrics-port=-1", "--set=k=a=b"])
    assert spaced == joined
    assert spaced == ServeOptions(
        data=Path("x"), listeners=("a=h:1",), metrics_port=-1, settings={"k": "a=b"}
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--set", "ssl.key.password=s3cret"],
        ["serve", "--allow-anonymous", "--set=headrace.metrics.token=s3cret"],
        ["serve", "-s", "listener.name.main.ssl.keystore.key=s3cret"],
        ["cluster", "up", "--set", "headrace.zookeeper.password=s3cret"],
        ["configs", "set", "--node", "1", "ssl.key.password=s3cret"],
    ],
)
def test_secrets_are_refused_as_arguments_and_not_shown(
    arguments: list[str], served: list[NodeConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) != 0
    captured = capsys.readouterr()
    assert not served
    assert "it is a secret" in captured.err
    assert captured.err.count("\n") <= 2
    assert "s3cret" not in captured.out + captured.err
