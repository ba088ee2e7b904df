# SPDX-License-Identifier: Apache-2.0
"""Opens input files or stdin for commands; errors name the file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from headrace.client.errors import ClientError

STDIN = Path("-")


@contextlib.contextmanager
def open_input(path: Path | None) -> Iterator[IO[bytes]]:
    """The file, or stdin for None and `-`."""
    if path is None or path == STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise ClientError(f"cannot read {path}: {error.strerror}") from error
    with file:
        yield file
