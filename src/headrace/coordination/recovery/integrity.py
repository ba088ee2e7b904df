# SPDX-License-Identifier: Apache-2.0
"""Checks a SQLite file of the coordination store, and says what to do about a damaged one.

`integrity_check` and not `quick_check`: the latter leaves out whether an index has what its table has, and
changes are read by an index. A store has some megabytes at most: one of 20,000 entries is checked in a tenth
of a second, once per start. SQLite keeps no checksums: bits flipped inside a value are found when it is
decoded.
Read next: coordination/sqlite_files.py, restore/backups.py.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace.errors import CoordinationError

_MOST_FINDINGS = 20
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedDatabase(CoordinationError):
    """A database file is not what SQLite wrote; the message names the file and what is wrong."""


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """Raises DamagedDatabase with the first finding and the number of further ones."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({_MOST_FINDINGS})").fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        rows = [(str(error),)]
    findings = [line for (text,) in rows for line in str(text).splitlines() if not line.startswith("***")]
    if findings == ["ok"]:
        return
    more = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
    raise DamagedDatabase(f"the coordination database {path} is damaged: {findings[0]}{more}")


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE
