# SPDX-License-Identifier: Apache-2.0
"""Errors of the command line itself. Read next: main.py, which prints them."""

from __future__ import annotations

from headrace.errors import HeadraceError


class UsageError(HeadraceError):
    """The command line could not be parsed: exit code 2."""

    def __init__(self, what: str, next_step: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


class OutputClosed(Exception):
    """The reader of stdout has gone away (`… | head`): the command ends without an error."""
