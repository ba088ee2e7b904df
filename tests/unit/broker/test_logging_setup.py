# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headrace.broker.logging_setup import set_up_logging

HOSTILE = "topic \x1b[31mred\nfake line\x9b\u2028\u202e"


@pytest.fixture
def root_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(log_format: str) -> str:
    stream = io.StringIO()
    set_up_logging(log_format, stream=stream)
    logger = logging.getLogger("headrace.test")
    logger.debug("too quiet")
    logger.warning("refused %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("failed")
    return stream.getvalue()


@pytest.mark.usefixtures("root_logging")
def test_text_lines_hold_no_control_characters_and_no_made_up_lines() -> None:
    first, second, *traceback = written("text").splitlines()
    assert (
        "WARNING  headrace.test: refused topic \\u001b[31mred\\u000afake line\\u009b\\u2028\\u202e" in first
    )
    assert second.endswith("headrace.test: failed")
    assert all(line.startswith("    ") for line in traceback)
    assert not any(ord(letter) < 32 for line in traceback for letter in line)


@pytest.mark.usefixtures("root_logging")
def test_json_is_one_object_per_line() -> None:
    first, second = [json.loads(line) for line in written("json").splitlines()]
    assert (first["level"], first["logger"]) == ("warning", "headrace.test")
    assert "\x1b" not in first["message"]
    assert "ValueError" in second["exception"]
    assert first["time"].endswith("Z")


@pytest.mark.usefixtures("root_logging")
def test_setting_it_up_again_does_not_double_the_lines() -> None:
    set_up_logging("text", stream=io.StringIO())
    assert written("text").count("refused") == 1


@pytest.mark.usefixtures("root_logging")
@pytest.mark.parametrize(("level", "words"), [("debug", ["d", "i", "w"]), ("warning", ["w"]), ("error", [])])
def test_the_level_decides_which_lines_there_are(level: str, words: list[str]) -> None:
    stream = io.StringIO()
    set_up_logging("text", level, stream)
    logger = logging.getLogger("headrace.test")
    for write, word in ((logger.debug, "d"), (logger.info, "i"), (logger.warning, "w")):
        write(word)
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == words


@pytest.mark.usefixtures("root_logging")
def test_lines_of_a_core_name_it() -> None:
    lines = {}
    for log_format in ("text", "json"):
        stream = io.StringIO()
        set_up_logging(log_format, stream=stream, core=1)
        logging.getLogger("headrace.test").warning("full")
        lines[log_format] = stream.getvalue()
    assert " core 1: headrace.test: full\n" in lines["text"]
    assert json.loads(lines["json"])["core"] == 1
