"""A command line that cannot be understood."""

from __future__ import annotations

from headrace.errors import HeadraceError


class WrongUsage(HeadraceError):
    def __init__(self, what: str, next_step: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
