# SPDX-License-Identifier: Apache-2.0
"""The metrics of the scrub and of damage that is not repaired. Read next: metrics_export.py,
partition/scrubber.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.broker.metrics import ScrubCounters
from headrace.broker.reporting.metric_family import Family, MetricSources, Read, Sample


def _damaged_segments(sources: MetricSources) -> list[Sample]:
    return [
        ((partition.topic_partition.topic, str(partition.topic_partition.partition)), count)
        for partition in sources.partitions()
        if (count := len(partition.damaged_segments))
    ]


def _last_end(sources: MetricSources) -> list[Sample]:
    ended_ms = sources.metrics.scrub.ended_ms
    return [] if ended_ms is None else [((), ended_ms / 1000)]


def _one(read: Callable[[ScrubCounters], Any]) -> Read:
    return lambda sources: [((), read(sources.metrics.scrub))]


SCRUB_FAMILIES = (
    Family(
        name="headrace_scrub_checked_bytes",
        kind="counter",
        help="Bytes of record batches that the scrub read and checked.",
        read=_one(lambda scrub: scrub.bytes_checked),
    ),
    Family(
        name="headrace_scrub_left_bytes",
        kind="gauge",
        help="Bytes that the scrub has not checked yet in its present pass; 0 between two passes.",
        read=_one(lambda scrub: scrub.bytes_left),
    ),
    Family(
        name="headrace_scrub_passes",
        kind="counter",
        help="Passes of the scrub over all logs of this node.",
        read=_one(lambda scrub: scrub.passes),
    ),
    Family(
        name="headrace_scrub_last_pass_timestamp_seconds",
        kind="gauge",
        help="When the last of them ended.",
        read=_last_end,
    ),
    Family(
        name="headrace_scrub_faults",
        kind="counter",
        help="Segments that the scrub found damaged.",
        read=_one(lambda scrub: scrub.faults),
    ),
    Family(
        name="headrace_repaired_segments",
        kind="counter",
        help="Damaged segments that this node made whole with batches of their leader.",
        read=_one(lambda scrub: scrub.repaired),
    ),
    Family(
        name="headrace_repaired_bytes",
        kind="counter",
        help="Bytes fetched for them.",
        read=_one(lambda scrub: scrub.bytes_repaired),
    ),
    Family(
        name="headrace_refetched_logs",
        kind="counter",
        help="Damaged logs that were set aside and fetched as a whole.",
        read=_one(lambda scrub: scrub.refetched),
    ),
    Family(
        name="headrace_kept_aside",
        kind="gauge",
        help="Damaged files and logs that are kept aside until an operator removes them.",
        read=_one(lambda scrub: scrub.kept),
    ),
    Family(
        name="headrace_kept_aside_bytes",
        kind="gauge",
        help="Bytes that they take on the disk.",
        read=_one(lambda scrub: scrub.kept_bytes),
    ),
    Family(
        name="headrace_damaged_segments",
        kind="gauge",
        help="Damaged segments of partitions that stay online, since no other replica can take over.",
        labels=("topic", "partition"),
        read=_damaged_segments,
    ),
)
