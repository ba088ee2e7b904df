# SPDX-License-Identifier: Apache-2.0
"""Identity of a stream in its group: sent with a transaction's offsets, so that fenced members are refused.

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
