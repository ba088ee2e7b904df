# SPDX-License-Identifier: Apache-2.0
"""The ready line of `headrace serve`: on a terminal, in a pipe, as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.output import Output
from headrace.cli.ready_line import print_cores_ready, print_ready
from headrace.cluster.cores.existing import Existing
from headrace.cluster.cores.plan import lay_out
from headrace.config import load_config
from headrace.types import Endpoint


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Config(dict[str, str]):
    data_directory = Path("data")


PLAIN = Config({"headrace.metrics.security.protocol": "PLAINTEXT"})
TLS = Config({"headrace.metrics.security.protocol": "SSL"})


def broker(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "node_id": 3,
        "endpoints": (Endpoint(listener="MAIN", host="127.0.0.1", port=9092),),
        "metrics_address": ("127.0.0.1", 8080),
        "config": PLAIN,
    }
    return SimpleNamespace(**(values | changes))


def test_in_a_pipe_it_is_one_line() -> None:
    stdout = io.StringIO()
    print_ready(broker(), Output(stdout=stdout))
    line = stdout.getvalue()
    assert line.startswith("Headrace 0.")
    assert line.endswith(" ready at 127.0.0.1:9092, data in data, metrics at http://127.0.0.1:8080/metrics\n")


def test_metrics_by_tls_have_an_https_address() -> None:
    stdout = io.StringIO()
    print_ready(broker(config=TLS), Output(stdout=stdout))
    assert stdout.getvalue().endswith("metrics at https://127.0.0.1:8080/metrics\n")


def test_on_a_terminal_it_has_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stdout = Terminal()
    print_ready(broker(), Output(stdout=stdout))
    assert "\x1b[1;32mHeadrace 0." in stdout.getvalue()


@pytest.mark.parametrize(("port", "exports"), [(9092, False), (9093, True)])
def test_on_a_terminal_the_first_commands_follow(
    monkeypatch: pytest.MonkeyPatch, port: int, exports: bool
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stdout = Terminal()
    endpoints = (Endpoint(listener="MAIN", host="127.0.0.1", port=port),)
    print_ready(broker(endpoints=endpoints), Output(stdout=stdout))
    assert "echo hello | headrace produce greetings" in stdout.getvalue()
    assert (f"export HEADRACE_BOOTSTRAP=127.0.0.1:{port}" in stdout.getvalue()) is exports


@pytest.mark.row("D20")
def test_several_listeners_are_named_without_metrics() -> None:
    endpoints = (
        Endpoint(listener="OUTSIDE", host="localhost", port=9092),
        Endpoint(listener="INSIDE", host="broker", port=29092),
    )
    stdout = io.StringIO()
    print_ready(broker(endpoints=endpoints, metrics_address=None), Output(stdout=stdout))
    assert "ready at localhost:9092 (OUTSIDE), broker:29092 (INSIDE), " in stdout.getvalue()
    assert stdout.getvalue().endswith("metrics at none\n")


def test_as_json_it_is_one_document() -> None:
    stdout = io.StringIO()
    print_ready(broker(), Output(as_json=True, stdout=stdout))
    ready = json.loads(stdout.getvalue())
    assert ready["ready"] is True
    assert ready["node_id"] == 3
    assert ready["listeners"] == {"MAIN": "127.0.0.1:9092"}
    assert ready["data"] == "data"
    assert ready["metrics"] == "http://127.0.0.1:8080/metrics"


def print_cores(output: Output) -> None:
    config = load_config(None, {"log.dirs": "/data"}, None)
    layout = lay_out(config, 2, Existing(), range)
    print_cores_ready(layout, config, ("127.0.0.1", 8080), output)


def test_that_of_cores_has_the_bootstrap_list() -> None:
    stdout = io.StringIO()
    print_cores(Output(stdout=stdout))
    assert stdout.getvalue().endswith(
        " ready on 2 cores at 127.0.0.1:9092,127.0.0.1:9093, data in /data, "
        "metrics at http://127.0.0.1:8080/metrics\n"
    )


def test_that_of_cores_names_each_core_as_json() -> None:
    stdout = io.StringIO()
    print_cores(Output(stdout=stdout, as_json=True))
    document = json.loads(stdout.getvalue())
    assert document["bootstrap"] == "127.0.0.1:9092,127.0.0.1:9093"
    assert document["cores"] == [
        {"core": 0, "node_id": 1, "listeners": {"PLAINTEXT": "127.0.0.1:9092"}},
        {"core": 1, "node_id": 2, "listeners": {"PLAINTEXT": "127.0.0.1:9093"}},
    ]
