# SPDX-License-Identifier: Apache-2.0
"""`headrace users` on a store without a node: passwords from files, the environment or a prompt (S18)."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.users import password
from headrace.client.errors import ClientError


class Users:
    """Runs the command in this process; `out` and `err` are what it printed last."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data = directory / "data"
        self.secret = directory / "secret"
        self.secret.write_text("s3cret\n")
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        code = main.run(["users", *words, "--data", str(self.data)])
        self.out, self.err = self._capsys.readouterr()
        return code

    def listed(self) -> list[str]:
        assert self("list", "--json") == 0
        return [user["name"] for user in json.loads(self.out)]


@pytest.fixture
def users(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Users:
    monkeypatch.delenv(password.VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115 - no terminal
    return Users(tmp_path, capsys)


def test_a_user_from_add_to_remove(users: Users) -> None:
    file = str(users.secret)
    assert users("add", "ann", "--password-file", file) == 0
    assert users.out == "Added user ann.\n"
    assert users("add", "bob", "--password-file", file, "--iterations", "8192") == 0
    assert users.listed() == ["ann", "bob"]
    assert users("password", "ann", "--password-file", file) == 0
    assert users("list") == 0
    assert users.out.splitlines()[1:] == [
        "ann\tSCRAM-SHA-256, SCRAM-SHA-512", "bob\tSCRAM-SHA-256, SCRAM-SHA-512"
    ]  # fmt: skip
    assert users("remove", "ann") == 1
    assert "add --yes" in users.err
    assert users("remove", "ann", "--yes") == 0
    assert users.listed() == ["bob"]


def test_the_store_is_private(users: Users) -> None:
    assert users("add", "ann", "--password-file", str(users.secret)) == 0
    for path in (users.data, users.data / "coordination"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert b"s3cret" not in b"".join(file.read_bytes() for file in users.data.rglob("*.db*"))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("add", "ann"), "user 'ann' exists already; change the password"),
        (("password", "bob"), "there is no user 'bob'; list the users"),
        (("remove", "bob", "--yes"), "there is no user 'bob'"),
        (("add", ""), "cannot be the name of a user"),
        (("add", "eve", "--iterations", "4095"), "4096"),
    ],
)
def test_what_cannot_be_done_is_refused(users: Users, words: tuple[str, ...], problem: str) -> None:
    file = ("--password-file", str(users.secret))
    users("add", "ann", *file)
    assert users(*words, *(() if words[0] == "remove" else file)) != 0
    assert problem in users.err
    assert users.listed() == ["ann"]


def test_a_store_that_is_not_there_is_not_made_by_looking_at_it(users: Users) -> None:
    change = ("password", "ann", "--password-file", str(users.secret))
    for words in (("list",), ("remove", "ann", "--yes"), change):
        assert users(*words) == 1
        assert "there is no coordination store" in users.err
    assert not users.data.exists()


def test_a_password_is_never_an_argument_and_a_missing_one_is_asked_for(users: Users) -> None:
    assert users("add", "ann", "--password", "s3cret") == 2
    assert users("add", "ann") == 1
    assert "--password-file FILE, the variable HEADRACE_PASSWORD, or a terminal" in users.err


def test_a_password_comes_from_the_environment_or_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(password.VARIABLE, "from the environment")
    assert password.read_password(None) == b"from the environment"
    monkeypatch.delenv(password.VARIABLE)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    typed = iter(["one", "one", "one", "two"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert password.read_password(None) == b"one"
    with pytest.raises(ClientError, match="differ"):
        password.read_password(None)


@pytest.mark.parametrize("text", ["", "\n", "two\nlines\n", "x" * 1025, "a\0b"])
def test_a_password_that_cannot_be_typed_again_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ClientError, match="the password"):
        password.read_password(tmp_path / "file")
