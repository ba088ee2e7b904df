# SPDX-License-Identifier: Apache-2.0
"""What commands print: on a terminal, in a pipe, as JSON; and that hostile text stays text (S17)."""

from __future__ import annotations

import io
import json

import pytest

from headrace.cli.errors import OutputClosed
from headrace.cli.output import Output, clean, human_bytes, json_bytes, json_text

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\r\n\tb\x9b2J\u202egnp.exe\u200b\x00é漢 \u3000."


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_control_ansi_and_invisible_characters_are_made_visible() -> None:
    shown = clean(HOSTILE)
    assert shown == ("a\\x1b[31mred\\x1b]0;title\\x07\\r\\n\\tb\\x9b2J\\u202egnp.exe\\u200b\\x00é漢 \u3000.")


def test_json_neither_moves_the_cursor_nor_loses_anything() -> None:
    text = json_text({"value": HOSTILE})
    assert all(letter.isprintable() or letter in " \u3000" for letter in text)
    assert json.loads(text) == {"value": HOSTILE}
    assert "漢" in text


def test_bytes_that_are_no_text_become_base64_in_json() -> None:
    assert json_bytes(b"ok") == "ok"
    assert json_bytes(b"\xff\x00") == {"base64": "/wA="}
    assert json_bytes(None) is None


def test_a_table_in_a_pipe_is_tab_separated_under_one_header() -> None:
    stdout = io.StringIO()
    Output(stdout=stdout).table(("NAME", "COUNT"), [("a", 1234567), ("x\ty\n", None)])
    assert stdout.getvalue() == "NAME\tCOUNT\na\t1234567\nx\\ty\\n\t-\n"


def test_a_table_on_a_terminal_has_colours_and_readable_numbers() -> None:
    stdout = Terminal()
    Output(stdout=stdout).table(("NAME", "COUNT"), [("a", 1234567), ("[bold]\x1b[5m", None)])
    text = stdout.getvalue()
    assert "1,234,567" in text
    assert "\x1b[36m" in text
    assert "[bold]\\x1b[5m" in text, "neither markup nor ANSI codes of a name are obeyed"


def test_fields_on_terminal_and_pipe() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    Output(stdout=pipe).fields({"topic": "t", "records": 3})
    Output(stdout=terminal).fields({"topic": "t", "records": 3000})
    assert pipe.getvalue() == "topic\tt\nrecords\t3\n"
    assert "3,000" in terminal.getvalue()


def test_a_document_is_one_line_in_a_pipe_and_indented_on_a_terminal() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    Output(stdout=pipe).document({"a": [1]})
    Output(stdout=terminal).document({"a": [1]})
    assert pipe.getvalue() == '{"a": [1]}\n'
    assert json.loads(terminal.getvalue()) == {"a": [1]}
    assert terminal.getvalue().count("\n") > 1


def test_styles_show_only_on_a_terminal() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for stdout in (pipe, terminal):
        Output(stdout=stdout).styled(("ready", "bold green"), (" at\x1b[2J", ""))
    assert pipe.getvalue() == "ready at\\x1b[2J\n"
    assert terminal.getvalue().startswith("\x1b[1;32mready\x1b[0m at\\x1b[2J")


def test_notes_go_to_stderr_in_one_clean_line() -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    Output(stdout=stdout, stderr=stderr).note("one\ntwo\x1b[1m")
    assert stdout.getvalue() == ""
    assert stderr.getvalue() == "one\\ntwo\\x1b[1m\n"


def test_a_closed_pipe_raises_its_own_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.output.drop_stdout", lambda: None)
    with pytest.raises(OutputClosed):
        Output(stdout=ClosedPipe()).line("x")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text
