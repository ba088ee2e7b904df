# SPDX-License-Identifier: Apache-2.0
"""Redirects the stderr of Spark's processes from the terminal to a file.

Errors reach the user as exceptions. Independent of Spark. Read next: session.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def private_log_file() -> Path:
    """A new empty file of this user, with a name that nobody can guess and occupy."""
    file, path = tempfile.mkstemp(prefix="headrace-spark-", suffix=".log")
    os.close(file)
    return Path(path)


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Child processes started inside keep the file as stderr; this process only while inside."""
    sys.stderr.flush()
    saved = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
