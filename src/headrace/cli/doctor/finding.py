# SPDX-License-Identifier: Apache-2.0
"""One result of `headrace doctor`: what was checked, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    status: Status = "ok"
    """warn: it works, with a drawback; fail: something will not work."""
    found: str
    fix: str | None = None

    def document(self) -> dict[str, str | None]:
        return {"check": self.check, "status": self.status, "found": self.found, "fix": self.fix}
