"""Where a table lies, and opening it. Knows no Spark.

An opened table is one picture of the table's log: what is decided on it is committed on it, so that the log
itself finds out when somebody was faster. Read next: protocol.py, optimize.py.
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
    """Of `/data/orders`, `orders` or `file:///data/orders`; ClientError for other places."""
    if _SCHEME.match(written) is None:
        return Path(os.path.abspath(written))
    parts = urlsplit(written)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ClientError(
            f"a table cannot lie at {written!r}: only file systems are served, not {parts.scheme}:",
            next_step="give a path that the driver and all workers see, like /data/orders",
        )
    return Path(os.path.abspath(unquote(parts.path)))


def open_table(path: Path) -> DeltaTable | None:
    """The newest version; None where there is no table yet."""
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
