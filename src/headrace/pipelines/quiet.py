"""Spark's own words kept out of a user's sight: its processes write to a file instead of the terminal.

What counts of them reaches the user as an exception. Knows no Spark. Read next: session.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Processes started inside, and theirs, have the file as stderr for good; this one only while inside."""
    sys.stderr.flush()
    saved = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
