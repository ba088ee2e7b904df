# SPDX-License-Identifier: Apache-2.0
"""`headrace console` on live nodes: logins checked by a broker, what each user may see, TLS, a clean end."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.console.web.guard import CONTENT_SECURITY_POLICY
from tests.harness.console.command import START_S, ConsoleCommand, Visitor
from tests.harness.live.guarded_node import PASSWORD, USER, GuardedNode, Way
from tests.harness.live.node import HOST
from tests.harness.waiting import poll, wait_until

SCRAM_512, SCRAM_256 = "SCRAM-SHA-512", "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with GuardedNode(tmp_path_factory.mktemp("guarded")) as node:
        for name in ("ann-orders", "secret-plans"):
            node.create_topic(name)
        yield node


@pytest.fixture(scope="module")
def console(guarded: GuardedNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleCommand]:
    """With logins, over TLS to brokers and to browsers."""
    folder = tmp_path_factory.mktemp("console")
    reach = guarded.reach(Way("SASL_SSL", SCRAM_512))
    certificate = guarded.authority.issue("console")
    with ConsoleCommand(
        folder,
        *("--bootstrap", reach.bootstrap, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={reach.ca}"),
        *("--login", "--tls-cert", str(certificate), "--host", "0.0.0.0"),
    ) as started:
        yield started


@pytest.fixture
def visitor(guarded: GuardedNode, console: ConsoleCommand) -> Visitor:
    return new_visitor(guarded, console)


def new_visitor(guarded: GuardedNode, console: ConsoleCommand) -> Visitor:
    return Visitor(console.url.replace("0.0.0.0", HOST), guarded.authority.client_context())


def found(visitor: Visitor, text: str) -> list[str]:
    return [each["name"] for each in visitor.get(f"/api/search?q={text}").document["results"]]


def test_the_brokers_say_which_logins_there_are(visitor: Visitor) -> None:
    session = visitor.session()
    assert session["login_required"]
    assert not session["logged_in"]
    assert session["mechanisms"] == [SCRAM_512, SCRAM_256, "PLAIN"]
    assert visitor.get("/api/views/cluster").status == 401


@pytest.mark.parametrize("mechanism", [SCRAM_512, SCRAM_256])
def test_a_user_logs_in_and_sees_what_the_acls_allow(visitor: Visitor, mechanism: str) -> None:
    answer = visitor.log_in(USER, PASSWORD, mechanism)
    assert answer.status == 200, answer
    assert (answer.document["user"], answer.document["logged_in"]) == (USER, True)
    assert {"HttpOnly", "Secure", "SameSite=Strict"} <= set(answer.headers["set-cookie"].split("; "))
    wait_until(lambda: found(visitor, "ann-") == ["ann-orders"], timeout_s=60)
    assert found(visitor, "secret") == []
    assert [node["id"] for node in visitor.get("/api/views/cluster").document["nodes"]] == [1]
    refused = visitor.get("/api/views/acls")
    assert refused.status in (200, 403), refused
    assert b"secret-plans" not in refused.data


def test_another_user_sees_more_at_the_same_time(
    guarded: GuardedNode, console: ConsoleCommand, visitor: Visitor
) -> None:
    admin = new_visitor(guarded, console)
    assert admin.log_in("admin", PASSWORD, SCRAM_512).status == 200
    assert visitor.log_in(USER, PASSWORD, SCRAM_512).status == 200
    wait_until(lambda: found(admin, "secret") == ["secret-plans"], timeout_s=60)
    assert found(visitor, "secret") == []


@pytest.mark.parametrize(
    ("user", "password"), [(USER, "wrong-password"), ("nobody", PASSWORD), (USER, PASSWORD.upper())]
)
def test_a_wrong_login_is_refused_in_the_same_words(visitor: Visitor, user: str, password: str) -> None:
    answer = visitor.log_in(user, password, SCRAM_512)
    assert answer.status == 401, answer
    assert "set-cookie" not in answer.headers
    assert answer.document["error"].startswith("the login failed: ")
    assert user not in answer.document["error"]
    assert visitor.get("/api/views/cluster").status == 401


def test_after_a_logout_the_cookie_is_worth_nothing(visitor: Visitor) -> None:
    assert visitor.log_in(USER, PASSWORD, SCRAM_512).status == 200
    before = visitor.cookie
    assert visitor.ask("POST", "/api/logout", {}).status == 200
    visitor.cookie = before
    assert visitor.get("/api/views/cluster").status == 401


def test_a_change_needs_the_token_of_the_session(visitor: Visitor) -> None:
    assert visitor.log_in(USER, PASSWORD, SCRAM_512).status == 200
    visitor.csrf = "wrong"
    refused = visitor.ask("POST", "/api/messages", {"topic": "ann-orders"})
    assert (refused.status, "reload" in refused.document["next"]) == (403, True)


def test_foreign_names_and_origins_are_refused(visitor: Visitor) -> None:
    assert visitor.ask("GET", "/", Host="evil.example").status == 421
    assert visitor.ask("GET", "/api/session", Origin="https://evil.example").status == 403
    page = visitor.get("/")
    assert page.status == 200
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/static/../../pyproject.toml", "/static/..%2f..%2f__init__.py", "/static//etc/passwd"]
)
def test_no_other_file_is_served(visitor: Visitor, path: str) -> None:
    assert visitor.get(path).status == 404


def test_two_viewers_get_the_same_documents(visitor: Visitor) -> None:
    assert visitor.log_in(USER, PASSWORD, SCRAM_512).status == 200
    with visitor.live("/api/live/topics") as one, visitor.live("/api/live/topics") as two:
        events: list[dict[bytes, bytes]] = []
        for stream in (one, two):
            seen = dict(_numbered(stream.event()) for _ in range(3))
            events.append(seen)
        shared = events[0].keys() & events[1].keys()
        assert shared
        assert all(events[0][number] == events[1][number] for number in shared)


def _numbered(event: bytes) -> tuple[bytes, bytes]:
    return event.partition(b"\n")[0], event


def test_plain_http_is_not_answered(console: ConsoleCommand) -> None:
    plain = Visitor(console.url.replace("https", "http").replace("0.0.0.0", HOST))
    with pytest.raises(OSError, match=r".*"):
        plain.get("/")


def test_a_stranger_does_not_trust_the_certificate(console: ConsoleCommand) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Visitor(console.url.replace("0.0.0.0", HOST), ssl.create_default_context()).get("/")


def test_the_log_names_who_logged_in_and_holds_no_secret(
    guarded: GuardedNode, console: ConsoleCommand
) -> None:
    visitor = new_visitor(guarded, console)
    visitor.log_in("mallory\x1b[2J\nforged", "a-wrong-password", SCRAM_512)
    visitor.log_in(USER, PASSWORD, SCRAM_512)
    log = console.log
    assert f"'{USER}' logged in from 127.0.0.1" in log
    assert "a login as 'mallory" in log
    assert "\x1b" not in log
    assert not any(line.startswith("forged") for line in log.splitlines())
    for secret in (PASSWORD, "a-wrong-password", visitor.csrf, visitor.cookie.partition("=")[2]):
        assert secret not in log


def test_a_listener_without_logins_lets_nobody_in(guarded: GuardedNode, tmp_path: Path) -> None:
    with ConsoleCommand(tmp_path, "--bootstrap", guarded.open, "--login") as console:
        visitor = Visitor(console.url)
        answer = visitor.log_in("admin", PASSWORD, SCRAM_512)
        assert answer.status == 401, answer
        assert visitor.get("/api/views/cluster").status == 401


def test_the_login_of_a_file_asks_visitors_for_their_own(guarded: GuardedNode, tmp_path: Path) -> None:
    file = guarded.reach(Way("SASL_SSL", SCRAM_512), user="admin").java(tmp_path)
    bootstrap = guarded.reach(Way("SASL_SSL", SCRAM_512)).bootstrap
    with ConsoleCommand(tmp_path, "--bootstrap", bootstrap, "--command-config", str(file)) as console:
        assert console.ready["login"]
        visitor = Visitor(console.url)
        assert visitor.get("/api/search?q=secret").status == 401
        assert visitor.log_in(USER, PASSWORD, SCRAM_512).status == 200
    with ConsoleCommand(
        tmp_path, "--bootstrap", bootstrap, "--command-config", str(file), "--no-login", "--read-only"
    ) as console:
        visitor = Visitor(console.url)
        wait_until(lambda: found(visitor, "secret") == ["secret-plans"], timeout_s=60)
        session = visitor.session()
        assert (session["login_required"], session["read_only"]) == (False, True)
        refused = visitor.ask("POST", "/api/messages", {"topic": "ann-orders"})
        assert (refused.status, "read-only" in refused.document["error"]) == (403, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_a_viewer(bootstrap: str, tmp_path: Path, number: int) -> None:
    with ConsoleCommand(tmp_path, "--bootstrap", bootstrap) as console:
        with Visitor(console.url).live("/api/live/cluster") as viewer:
            viewer.event()
            assert console.stop(number) == 0
        assert "Traceback" not in console.log


def test_without_a_broker_it_starts_and_says_so(tmp_path: Path) -> None:
    with ConsoleCommand(tmp_path, "--bootstrap", "127.0.0.1:1") as console:
        visitor = Visitor(console.url)
        assert visitor.session()["logged_in"]
        answer = visitor.get("/api/views/cluster")
        told = answer.document.get("problem") or answer.document.get("error")
        assert "127.0.0.1:1" in told


def test_hostile_names_come_back_as_text_in_ascii(bootstrap: str, tmp_path: Path) -> None:
    with ConsoleCommand(tmp_path, "--bootstrap", bootstrap) as console:
        visitor = Visitor(console.url)
        session = visitor.session()
        assert session["csrf"]
        answer = visitor.get("/api/views/nonsense%3Cscript%3E%E2%80%A8")
        assert answer.status == 404
        assert answer.data.isascii()
        assert answer.headers["content-type"] == "application/json"


def test_a_taken_port_and_an_open_address_are_told_in_one_line(bootstrap: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        line = refused("--port", str(taken.getsockname()[1]), "--bootstrap", bootstrap)
        assert "cannot listen on" in line
    assert "needs logins and TLS" in refused("--host", "0.0.0.0", "--bootstrap", bootstrap)


def refused(*arguments: str) -> str:
    command = [sys.executable, "-m", "headrace.cli.main", "console", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


def test_up_runs_the_console_beside_the_nodes_and_ends_both(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "headrace.cli.main", "up", "--nodes", "1", "--port", "0"),
        *("--console-port", "0", "--dir", str(tmp_path / "cluster"), "--json"),
    ]
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, stdin=subprocess.DEVNULL)
    try:
        ready = _first_line(process)
        visitor = Visitor(ready["console"])
        assert visitor.session()["logged_in"]
        wait_until(
            lambda: (
                [node["state"] for node in visitor.get("/api/views/cluster").document.get("nodes", [])]
                == ["up"]
            ),
            timeout_s=60,
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (tmp_path / "err").read_text()
        with pytest.raises(OSError, match=r".*"):
            visitor.get("/")
        assert (tmp_path / "cluster" / "console.log").exists()
        assert "Traceback" not in (tmp_path / "err").read_text()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        process.communicate()


def _first_line(process: subprocess.Popen[bytes]) -> Any:
    """The ready line; the rest of the output is read and thrown away."""
    lines: list[bytes] = []
    stdout = process.stdout
    assert stdout is not None
    threading.Thread(target=lambda: lines.extend(stdout), daemon=True).start()
    poll(lambda: bool(lines) or process.poll() is not None, timeout_s=120)
    assert lines, "the cluster is not ready"
    return json.loads(lines[0])
