# SPDX-License-Identifier: Apache-2.0
"""The settings of a topic as the partition uses them, computed once per change instead of per request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import ApiError
from headrace.key_ranges import KeyRanges, parse_ranges
from headrace.log.log_config import LogConfig
from headrace.wire.batch import BatchHeader
from headrace.wire.error_codes import ErrorCode
from headrace.wire.record_layout import WALK

FLUSH_ACK, FLUSH_INTERVAL, FLUSH_OS = "ack", "interval", "os"

_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_CODEC_AND_TIMESTAMP_TYPE = 0b1111
_FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    log: LogConfig
    flush: str = FLUSH_ACK
    codec: int | None = None
    """None keeps the producer's."""
    validates_records: bool = False
    """Those of every batch, whatever it costs."""
    validates_by_kernels: bool = False
    """The same in the shortest way: those of most topics."""
    requires_key: bool = False
    key_ranges: KeyRanges | None = None
    """Those that records must be in; None: any record may be in any partition."""
    timestamp_before_max_ms: int = _FOREVER
    timestamp_after_max_ms: int = _FOREVER
    min_insync_replicas: int = 1
    checks_records: bool = field(init=False)
    is_plain: bool = field(init=False)
    """Batches are written as they come."""
    plain_attributes: int = field(init=False, default=_CODEC_AND_TIMESTAMP_TYPE)
    """The attribute bits that need no further check."""

    def __post_init__(self) -> None:
        checks = self.validates_records or self.codec is not None or self.key_ranges is not None
        object.__setattr__(self, "checks_records", checks)
        object.__setattr__(self, "is_plain", not (self.checks_records or self.log.append_time))

    def check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        """R34: a wrong producer clock must not make a segment immortal."""
        if self.log.append_time or header.max_timestamp < 0:
            return
        if header.max_timestamp > now_ms + self.timestamp_after_max_ms:
            limit, name = self.timestamp_after_max_ms, "message.timestamp.after.max.ms"
        else:
            limit, name = self.timestamp_before_max_ms, "message.timestamp.before.max.ms"
        raise ApiError(
            ErrorCode.invalid_timestamp,
            f"timestamp {header.max_timestamp} is more than {name}={limit} from the node's clock {now_ms}",
        )


def topic_settings(values: Mapping[str, Any], node: Mapping[str, Any]) -> TopicSettings:
    """From the typed values of every topic setting (config.resolve_topic) and of the node's settings."""
    compacted = "compact" in values["cleanup.policy"]
    validation = values["record.validation"]
    return TopicSettings(
        log=_log_config(values, node),
        flush=values["headrace.flush"],
        codec=_CODECS.get(values["compression.type"]),
        validates_records=compacted or validation == "full",
        validates_by_kernels=not compacted and validation == "auto" and WALK is not None,
        requires_key=compacted,
        key_ranges=_enforced_ranges(values),
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        min_insync_replicas=values["min.insync.replicas"],
    )


def _enforced_ranges(values: Mapping[str, Any]) -> KeyRanges | None:
    if values["headrace.partitioner"] != "enforce":
        return None
    ranges = parse_ranges(values["headrace.partitioner.ranges"])
    return KeyRanges(ranges=ranges, outside=values["headrace.partitioner.outside"])


def _log_config(values: Mapping[str, Any], node: Mapping[str, Any]) -> LogConfig:
    return LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        cleanup_policy=frozenset(values["cleanup.policy"]),
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        max_message_bytes=values["max.message.bytes"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        producer_id_expiration_ms=node["producer.id.expiration.ms"],
        append_time=values["message.timestamp.type"] == "LogAppendTime",
    )
