# SPDX-License-Identifier: Apache-2.0
"""Turns Spark's exceptions into one line: what failed and what to do.

Spark wraps our errors into long stack traces; they are found there by class name. Read next: runner.py.
"""

from __future__ import annotations

import re

from headrace.client.errors import ClientError

_OURS = re.compile(r"(?:^|\W)headrace\.[\w.]*?Error: (.*)$|^headrace\.\S+: (.*)$", re.MULTILINE)
_SPARK_CLASS = re.compile(r"^\[([A-Z_.]+)\]\s*")
_NOISE = re.compile(
    r"^(=== |Current |An error occurred while calling .*|(: )?[\w.$]+Exception: )|SQLSTATE: \w+"
)
_NEXT_STEPS = {
    "CONCURRENT_STREAM_LOG_UPDATE": "another run uses this checkpoint, or its offsets were changed: "
    "stop that one, and start again",
    "UNRESOLVED_COLUMN": "fields of typed values are columns, beside key, value, topic, partition, offset, "
    "timestamp and headers",
    "failed to connect back": "the machine is very busy: start again",
}


def to_client_error(error: BaseException, name: str) -> ClientError:
    """The error for an exception that ended a pipeline or prevented its start."""
    if isinstance(error, ClientError):
        return error
    text = str(error)
    ours = [match[1] or match[2] for match in _OURS.finditer(text)]
    if ours:
        what, semicolon, next_step = str(ours[-1]).strip().partition("; ")
        return ClientError(f"pipeline {name!r}: {what}", next_step=next_step if semicolon else None)
    line = _plain(text) or type(error).__name__
    found = next((each for each in _NEXT_STEPS if each in text), None)
    return ClientError(f"pipeline {name!r}: {line}", next_step=_NEXT_STEPS.get(found or ""))


def _plain(text: str) -> str:
    """The first meaningful line, without Spark's decoration."""
    lines = [_NOISE.sub("", line).strip() for line in text.splitlines()]
    first = next((line for line in lines if line), "")
    return _SPARK_CLASS.sub("", first).rstrip(" ;.")
