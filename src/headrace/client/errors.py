"""Exceptions of the client package: what failed, and the next step.

The CLI prints them as one line; the next step is a command wherever there is one.
"""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.wire.error_codes import ErrorCode


class ClientError(HeadraceError):
    """Says what failed and where; `next_step` says what to do about it; `code` is Kafka's name for it."""

    def __init__(self, what: str, *, next_step: str | None = None, code: str | None = None) -> None:
        super().__init__(what if next_step is None else f"{what}; {next_step}")
        self.what = what
        self.next_step = next_step
        self.code = code


class BrokerError(ClientError):
    """A broker's reply has an error code."""

    def __init__(self, what: str, code: ErrorCode, *, next_step: str | None = None) -> None:
        super().__init__(what, next_step=next_step, code=code.name.upper())
        self.error_code = code

    @property
    def retriable(self) -> bool:
        """Whether Kafka says that a retry may succeed."""
        return bool(self.error_code.retriable)
