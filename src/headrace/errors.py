"""The exception tree.

A protocol outcome is an error code (`ApiError`, turned into a reply in one place, broker/dispatch.py).
Everything else is a fault of bytes, disk, configuration or the coordination store.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.wire.error_codes import ErrorCode as ErrorCode


class HeadraceError(Exception):
    """Base of everything that Headrace raises on purpose."""


class ApiError(HeadraceError):
    """The request is answered with this Kafka error code.

    `records`: places in the batch of those that were wrong, where the others would have been taken.
    """

    def __init__(
        self, code: ErrorCode, message: str | None = None, *, records: Sequence[int] = ()
    ) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
        self.records = records


class DecodeError(HeadraceError):
    """Bytes that are not what they claim to be; the connection they came from is closed."""


class StorageError(HeadraceError):
    """The disk failed or lied; the partition goes offline (R24)."""


class DiskFullError(StorageError):
    """No room for an append. Nothing was written; reads go on; writing resumes when room returns."""


class CorruptLogError(StorageError):
    """Bit rot below the recovery point (R27): reported, never cut."""


class ConfigError(HeadraceError):
    """A setting is wrong; the message names where, what, and the nearest valid choice."""


class CoordinationError(HeadraceError):
    """The coordination store could not answer."""


class OutcomeUnknown(CoordinationError):
    """A commit may or may not have been applied: re-read, then decide (R6)."""
