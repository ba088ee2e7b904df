# SPDX-License-Identifier: Apache-2.0
"""The settings of one partition's log, typed and resolved.

Resolved by broker/partition/settings/topic_settings.py.
"""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000
FOR_EVER = -1
CLEANUP_DELETE = "delete"
CLEANUP_COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Kafka's topic settings of the same names; the defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = FOR_EVER
    cleanup_policy: frozenset[str] = frozenset({CLEANUP_DELETE})
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = DAY_MS
    append_time: bool = False
    """message.timestamp.type=LogAppendTime: the log stamps batches with its own clock."""

    @property
    def longest_segment_ms(self) -> int:
        """A record must leave the active segment in time to be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def deletes(self) -> bool:
        return CLEANUP_DELETE in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return CLEANUP_COMPACT in self.cleanup_policy
