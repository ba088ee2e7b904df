# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the client package: what failed, and the next step.

The CLI prints them as one line; the next step is a command wherever there is one. A `NextStep` names an
argument, both as in Python and as a flag.
"""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.wire.error_codes import ErrorCode


class NextStep(str):
    """Advice that names an argument: its text is for callers in Python, `flags` for the command line."""

    flags: str

    def __new__(cls, python: str, flags: str) -> NextStep:
        step = super().__new__(cls, python)
        step.flags = flags
        return step

    def __reduce__(self) -> tuple[type[NextStep], tuple[str, str]]:
        """Errors of Spark tasks are pickled."""
        return NextStep, (str(self), self.flags)


def as_flags(next_step: str | None) -> str | None:
    """A next step as the command line prints it."""
    return next_step.flags if isinstance(next_step, NextStep) else next_step


class ClientError(HeadraceError):
    """What a client could not do.

    `what` says what failed and where, `next_step` what to do about it, `code` is Kafka's name of the error.
    """

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
