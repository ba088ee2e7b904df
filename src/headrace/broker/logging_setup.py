# SPDX-License-Identifier: Apache-2.0
"""Sets up logging to standard error, as text or as one JSON object per line.

Names, keys and error texts come from clients, so control characters are always escaped (S17).
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Includes escape, Unicode line separators and characters that change the text direction."""


def set_up_logging(
    log_format: str, level: str = "info", stream: TextIO | None = None, *, core: int | None = None
) -> None:
    """As headrace.log.format and headrace.log.level say. Called once, before the node starts.

    `core`: of a host whose cores all write to one stream; each line names it.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(core) if log_format == "json" else TextFormatter(core))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kazoo logs every connection attempt, several per second; the store logs what matters.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


def without_control_characters(text: str) -> str:
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """One line per message; the lines of a traceback follow, indented."""

    def __init__(self, core: int | None = None) -> None:
        super().__init__()
        self._core = "" if core is None else f"core {core}: "

    def format(self, record: logging.LogRecord) -> str:
        message = without_control_characters(record.getMessage())
        line = f"{_time(record)} {record.levelname:<8} {self._core}{record.name}: {message}"
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            line = "\n    ".join((line, *map(without_control_characters, lines)))
        return line


class JsonFormatter(logging.Formatter):
    def __init__(self, core: int | None = None) -> None:
        super().__init__()
        self._core: dict[str, Any] = {} if core is None else {"core": core}

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_control_characters(record.getMessage()),
            **self._core,
        }
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            fields["exception"] = "\n".join(map(without_control_characters, lines))
        return json.dumps(fields, ensure_ascii=False)
