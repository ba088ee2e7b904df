# SPDX-License-Identifier: Apache-2.0
"""Locates and opens tables, without Spark.

An opened table is one version of its log: decisions based on it are committed on it, so that concurrent
commits are detected. Read next: protocol.py, optimize.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_path(written: str) -> Path:
    """The path of `/data/orders`, `orders` or `file:///data/orders`; ClientError for other schemes."""
    if _SCHEME.match(written) is None:
        return Path(os.path.abspath(written))
    parts = urlsplit(written)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ClientError(
            f"a table cannot be at {written!r}: only file systems are supported, not {parts.scheme}:",
            next_step="use a path that the driver and all workers share, like /data/orders",
        )
    return Path(os.path.abspath(unquote(parts.path)))


def open_table(path: Path) -> DeltaTable | None:
    """Open the latest version; None when there is no table."""
    delta = _deltalake()
    from deltalake.exceptions import DeltaError, TableNotFoundError

    if not (path / "_delta_log").is_dir():
        return None
    try:
        table: DeltaTable = delta(path)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise ClientError(
            f"the table {path} cannot be opened: {first_line(error)}",
            next_step=f"see whether the files in {path / '_delta_log'} are whole",
        ) from error
    return table


def first_line(error: Exception) -> str:
    """Errors of the library carry a trace of its own frames after their first line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _deltalake() -> type[DeltaTable]:
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed", next_step="pip install headrace[spark]"
        ) from error
    return DeltaTable
