# SPDX-License-Identifier: Apache-2.0
"""`headrace serve` as a user meets it, and what commands say when something else serves."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.cli_runner import COMMAND, Cli, interrupt, wait_for_line
from tests.harness.live.node import NodeProcess

Started = list[subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Started]:
    processes: Started = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def serve(started: Started, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    started.append(process)
    return process


def refused(*arguments: str) -> str:
    """The one line with which serve gives up."""
    ended = Cli("").process("serve", *arguments)
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.err
    return ended.err


def test_the_ready_line_says_address_data_and_metrics(started: Started, tmp_path: Path) -> None:
    process = serve(started, "--listener", "main=127.0.0.1:0", XDG_DATA_HOME=str(tmp_path))
    (line,) = wait_for_line(process, lambda line: True)
    pattern = r"Headrace \S+ ready at 127\.0\.0\.1:(\d+), data in (\S+), metrics at (http://\S+/metrics)\n"
    match = re.fullmatch(pattern, line.decode())
    assert match is not None, line
    assert Path(match[2]) == tmp_path / "headrace"
    assert Path(match[2]).is_dir()
    Cli(f"127.0.0.1:{match[1]}").process("topics", "list").ok()


def test_the_ready_line_as_json_and_with_two_listeners(started: Started, tmp_path: Path) -> None:
    listeners = ("--listener", "outside=127.0.0.1:0", "--listener", "inside=127.0.0.1:0")
    process = serve(started, "--data", str(tmp_path), "--json", "--metrics-port", "-1", *listeners)
    (line,) = wait_for_line(process, lambda line: True)
    ready = json.loads(line)
    assert ready["ready"] is True
    assert ready["data"] == str(tmp_path)
    assert ready["metrics"] is None
    assert set(ready["listeners"]) == {"OUTSIDE", "INSIDE"}
    for address in ready["listeners"].values():
        Cli(address).process("topics", "list").ok()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(started: Started, tmp_path: Path, number: signal.Signals) -> None:
    process = serve(started, "--data", str(tmp_path), "--listener", "main=127.0.0.1:0")
    wait_for_line(process, lambda line: b"ready" in line)
    before = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert time.monotonic() - before < 5


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("--data", str(tmp_path), "--listener", f"main=127.0.0.1:{port}")
    assert f"port {port}" in line
    assert "--listener" in line


def test_a_data_directory_of_another_node_is_one_line(node: NodeProcess) -> None:
    line = refused("--data", str(node.data), "--listener", "main=127.0.0.1:0")
    assert str(node.data) in line


def test_an_unusable_data_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused("--data", str(tmp_path / "file" / "data"), "--listener", "main=127.0.0.1:0")
    assert str(tmp_path / "file") in line


def test_a_bad_setting_names_its_place(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# mine\nlog.segment.byte=5\n")
    line = refused("--config", str(file))
    assert f"{file}:2" in line
    assert "log.segment.bytes" in line


def test_a_server_that_is_no_broker_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        ended = Cli(f"127.0.0.1:{server.getsockname()[1]}").process("topics", "list")
        thread.join()
    assert ended.code == 1
    assert "something answers there, but not as a Kafka broker" in ended.err
    assert "--command-config" in ended.err


def test_ctrl_c_ends_the_wait_for_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = Cli(f"127.0.0.1:{server.getsockname()[1]}").start("topics", "list")
        try:
            connection, _ = server.accept()
            ended = interrupt(process)
            connection.close()
        finally:
            process.kill()
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_a_node_that_creates_no_topics_is_answered_with_the_command_that_does(
    start_node: Callable[..., NodeProcess], topic: str
) -> None:
    node = start_node({"auto.create.topics.enable": "false"})
    ended = Cli(node.bootstrap).process("produce", topic, stdin=b"x\n")
    assert ended.code == 1
    assert ended.err == (
        f"headrace: topic '{topic}' does not exist, and the broker does not create topics by itself; "
        f"create it: headrace topics create {topic}\n"
    )


def test_consume_goes_on_after_the_node_was_killed_and_started_again(
    start_node: Callable[..., NodeProcess], topic: str
) -> None:
    node = start_node()
    cli = Cli(node.bootstrap)
    cli.prepare("topics", "create", topic)
    cli.prepare("produce", topic, stdin="before\n")
    process = cli.start("consume", topic)
    try:
        wait_for_line(process, lambda line: line == b"before\n")
        node.kill()
        node.start()
        cli.prepare("produce", topic, stdin="after\n")
        assert wait_for_line(process, lambda line: True) == [b"after\n"]
        ended = interrupt(process)
    finally:
        process.kill()
    assert ended.code == 130
    assert ended.err.count("connection lost, retrying") <= 1
