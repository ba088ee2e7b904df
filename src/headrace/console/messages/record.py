# SPDX-License-Identifier: Apache-2.0
"""One record as it was read from a partition, and what became of its transaction.

Read next: scan.py (finds them), readable.py (their bytes as values), shown.py (their documents).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TransactionState = Literal["committed", "aborted", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    partition: int
    offset: int
    timestamp_ms: int | None
    append_time: bool = False
    """True when the broker set the timestamp, False when the producer did."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    producer_id: int | None = None
    transaction: TransactionState | None = None
    """None: it was not written in a transaction."""

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        fixed = len(self.key or b"") + len(self.value or b"")
        return fixed + sum(len(name) + len(value or b"") for name, value in self.headers)
