# SPDX-License-Identifier: Apache-2.0
"""Whether a process has a SQLite store or a data folder open: by locks, which the kernel releases with it.

A paused node is found, too; its session would have expired. Read next: local_store.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.realworld import RealFiles

try:
    import fcntl
except ImportError:  # Windows: development only
    fcntl = None  # type: ignore[assignment]

_OPEN_BYTE = 128
"""Of the -shm file: every process that has a database in WAL mode open holds a shared lock on this byte
(UNIX_SHM_DMS of SQLite's sources)."""


def check_nobody_has_open(database: Path) -> None:
    """Not to be called by a process that has the database open: closing the file here drops its locks."""
    if fcntl is None:
        return
    try:
        descriptor = os.open(f"{database}-shm", os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _OPEN_BYTE)
    except (BlockingIOError, PermissionError):
        raise ClientError(
            f"a node, or another process, has the coordination store {database} open",
            next_step="stop all nodes first",
        ) from None
    finally:
        os.close(descriptor)


def check_data_folder_is_free(directory: Path) -> None:
    if not directory.is_dir():
        return
    try:
        RealFiles().lock(directory / ".lock").release()
    except BlockingIOError:
        raise ClientError(
            f"the node of the data directory {directory} runs", next_step="stop it first"
        ) from None
