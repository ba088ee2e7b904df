# SPDX-License-Identifier: Apache-2.0
"""A password for a command: from a file, the environment or a prompt, never from an argument (S18)."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from headrace.client.errors import ClientError

VARIABLE = "HEADRACE_PASSWORD"
_LONGEST = 1024


def read_password(file: Path | None) -> bytes:
    """One line of the file without its end, else the variable, else what is typed twice."""
    text = _given(file)
    if not text:
        raise ClientError("the password is empty", next_step="give one of at least one character")
    if len(text) > _LONGEST or "\n" in text or "\0" in text:
        raise ClientError(f"the password must be one line of at most {_LONGEST} characters")
    return text.encode()


def _given(file: Path | None) -> str:
    if file is not None:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    if (from_environment := os.environ.get(VARIABLE)) is not None:
        return from_environment
    if not sys.stdin.isatty():
        raise ClientError(
            "no password is given",
            next_step=f"use --password-file FILE, the variable {VARIABLE}, or a terminal",
        )
    typed = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != typed:
        raise ClientError("the two passwords differ, nothing was changed")
    return typed
