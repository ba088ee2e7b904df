"""The one exception of the client package: what went wrong, and what to do next.

The CLI prints it as one line; the next step is a command wherever there is one.
"""

from __future__ import annotations

from headrace.errors import HeadraceError


class ClientError(HeadraceError):
    """Says what failed and where; `next_step` says what to do about it; `code` is Kafka's name for it."""

    def __init__(self, what: str, *, next_step: str | None = None, code: str | None = None) -> None:
        super().__init__(what if next_step is None else f"{what}; {next_step}")
        self.what = what
        self.next_step = next_step
        self.code = code
