"""Who a stream is in its group: what a transaction sends along with offsets, so that a zombie's are refused.

Plain data. Made by a stream (`stream.group_metadata()`), used by a transaction's `send_offsets`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    group: str
    generation: int
    """Of the classic protocol; the member's epoch in KIP-848. -1 while it is in no group."""
    member_id: str
    instance_id: str | None = None
