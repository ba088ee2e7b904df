# SPDX-License-Identifier: Apache-2.0
"""Java's properties format with the line of each mistake."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.properties import Entry, parse_properties, read_properties
from headrace.errors import ConfigError


def _parse(text):
    return [(entry.key, entry.value) for entry in parse_properties(text, "server.properties")]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1\nb=2\n", [("a", "1"), ("b", "2")]),
        ("a = 1\r\nb:2\rc 3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("# comment\n! comment\n\n   \t\n  a=1", [("a", "1")]),
        (
            "listeners=PLAINTEXT://:9092,\\\n    INSIDE://:29092",
            [("listeners", "PLAINTEXT://:9092,INSIDE://:29092")],
        ),
        ("a=\n", [("a", "")]),
        ("a=b=c", [("a", "b=c")]),
        (r"path=C\:\\data", [("path", "C:\\data")]),
        (r"a\=b=1", [("a=b", "1")]),
        (r"a=\u00e9\t", [("a", "é\t")]),
        ("a=1\\", [("a", "1")]),
        ("a=x\\\\\nb=2", [("a", "x\\"), ("b", "2")]),
    ],
)
def test_the_spellings_that_java_reads(text, entries):
    assert _parse(text) == entries


def test_each_entry_knows_the_line_on_which_it_begins():
    assert parse_properties("\n# c\na=1,\\\n2\nb=3", "f") == [Entry("a", "1,2", 3), Entry("b", "3", 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\nb=2\na=3", r"server.properties:3: a is set a second time \(first on line 1\)"),
        (
            "a=1\nnum.partitions",
            "server.properties:2: 'num.partitions' has no value; write num.partitions=value",
        ),
        ("=1", "server.properties:1: .*has no key"),
        (r"a=\u12", "server.properties:1: .*not a character"),
        (r"a=\uzzzz", "server.properties:1: .*not a character"),
    ],
)
def test_a_mistake_names_file_and_line(text, message):
    with pytest.raises(ConfigError, match=message):
        _parse(text)


def test_values_are_never_substituted():
    assert _parse("a=${env:HOME}\nb=$HOME `id`") == [("a", "${env:HOME}"), ("b", "$HOME `id`")]


@given(st.text())
def test_any_text_is_entries_or_a_config_error(text):
    with contextlib.suppress(ConfigError):
        parse_properties(text, "f")


def test_unreadable_files_are_errors_with_the_reason(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.properties: no such configuration file"):
        read_properties(tmp_path / "missing.properties")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 2\)"):
        read_properties(binary)
