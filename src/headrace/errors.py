# SPDX-License-Identifier: Apache-2.0
"""The exception tree.

A protocol outcome is an error code (`ApiError`, turned into a reply in one place,
broker/dispatch/dispatcher.py).
Everything else is a fault of bytes, disk, configuration or the coordination store.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.wire.error_codes import ErrorCode as ErrorCode

LONGEST_MESSAGE = 1000
"""Characters: a message may quote what a client sent, and a string of a reply has at most 32,767 bytes."""
_NO_RECORDS: Mapping[int, str | None] = MappingProxyType({})


class HeadraceError(Exception):
    """Base of everything that Headrace raises on purpose."""


class ApiError(HeadraceError):
    """The request is answered with this Kafka error code.

    `records`: the invalid records by their index in the batch, each with what is wrong with it; None: the
    message says it.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        records: Mapping[int, str | None] = _NO_RECORDS,
    ) -> None:
        if message is not None and len(message) > LONGEST_MESSAGE:
            message = message[:LONGEST_MESSAGE] + "…"
        super().__init__(message or code.name)
        self.code = code
        self.message = message
        self.records = records


class DecodeError(HeadraceError):
    """Malformed bytes; the connection they came from is closed."""


class NewerRecordError(DecodeError):
    """A later release wrote the record. It must not be left out: what it says is the present state."""


class StorageError(HeadraceError):
    """The disk failed or returned corrupt data; the partition goes offline (R24)."""


class DiskFullError(StorageError):
    """The disk is full. Nothing was written; reads continue; writes resume when there is space."""


class CorruptLogError(StorageError):
    """Corruption below the recovery point (R27): reported, never truncated."""

    base_offset: int | None = None
    """Of the damaged segment, where it is known."""


class NewerFormatError(StorageError):
    """Not damage: a later release wrote it (docs/formats.md). Nothing is changed."""


class ConfigError(HeadraceError):
    """A setting is wrong; the message names where, what, and the nearest valid choice."""


class ArgumentError(ConfigError):
    """A setting on the command line is wrong: a usage error."""


class CoordinationError(HeadraceError):
    """The coordination store did not respond."""


class OutcomeUnknown(CoordinationError):
    """A commit may or may not have been applied: read again, then decide (R6)."""


def newer_format(what: object, found: object, newest: object) -> str:
    """What every refusal of a later release's data says."""
    return (
        f"{what} has format {found}, written by a newer Headrace (this one reads up to {newest}); "
        "use that version"
    )
