"""What the classic `consumer` protocol puts into its opaque bytes: topics subscribed to, partitions assigned.

Read only to say what a group subscribes to and what a rebalance moved; the bytes themselves pass through
untouched. Only the part that every version begins with. Read next: group_classic.py.
"""

from __future__ import annotations

from headrace.errors import DecodeError
from headrace.machines.record_bytes import Reader
from headrace.wire.primitives import MALFORMED

PROTOCOL_TYPE = "consumer"


def _text(reader: Reader) -> str:
    return reader.string(compact=False)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a member's subscription, or None for bytes of somebody else's making."""
    try:
        reader = Reader(metadata)
        reader.int16()
        return frozenset(reader.array(_text, compact=False))
    except (DecodeError, *MALFORMED):
        return None


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; empty for an empty assignment and for bytes of somebody else's making."""
    try:
        reader = Reader(assignment)
        reader.int16()
        return dict(reader.array(_topic_partitions, compact=False))
    except (DecodeError, *MALFORMED):
        return {}


def _topic_partitions(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string(compact=False), reader.array(Reader.int32, compact=False)
