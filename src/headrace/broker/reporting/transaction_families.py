# SPDX-License-Identifier: Apache-2.0
"""The metrics of the transactions that a node coordinates, and of those open in the partitions that it leads.

A scrape takes no longer with many transactional ids: their drivers keep sums. Read next: metrics_export.py,
transactions/coordinator.py.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.metrics import TransactionCounters
from headrace.broker.reporting.metric_family import Family, MetricSources, Read, Sample


def _transactions(sources: MetricSources) -> list[Sample]:
    return [((state,), count) for state, count in sources.transactions().by_state.items()]


def _pending_markers(sources: MetricSources) -> list[Sample]:
    return [((), sources.transactions().pending_markers)]


def _last_stable_lags(sources: MetricSources) -> list[Sample]:
    return [
        (
            (partition.topic_partition.topic, str(partition.topic_partition.partition)),
            partition.high_watermark - partition.last_stable_offset,
        )
        for partition in sources.partitions()
        if partition.leads and partition.open_transaction_since_ms is not None
    ]


def _open_seconds(sources: MetricSources) -> list[Sample]:
    now_ms = sources.wall_ms()
    return [
        ((name.topic, str(name.partition)), max(now_ms - since_ms, 0) / 1000)
        for name, since_ms in (
            (partition.topic_partition, partition.open_transaction_since_ms)
            for partition in sources.partitions()
            if partition.leads
        )
        if since_ms is not None
    ]


def _of_counters(read: Callable[[TransactionCounters], list[Sample]]) -> Read:
    return lambda sources: read(sources.metrics.transactions)


TRANSACTION_FAMILIES = (
    Family(
        name="headrace_transactions",
        kind="gauge",
        help="Transactional ids that this node coordinates, by the state of their transaction.",
        labels=("state",),
        read=_transactions,
    ),
    Family(
        name="headrace_transaction_ends",
        kind="counter",
        help="Transactions decided: by their client, because they timed out, or by a new producer.",
        labels=("cause",),
        read=_of_counters(lambda counters: [((cause,), count) for cause, count in counters.ends.items()]),
    ),
    Family(
        name="headrace_transaction_commit_seconds",
        kind="histogram",
        help="From the decision to commit to the last marker, in whole milliseconds.",
        read=_of_counters(lambda counters: [((), counters.commits)]),
    ),
    Family(
        name="headrace_transaction_markers_pending",
        kind="gauge",
        help="Markers of decided transactions that are not known to be written.",
        read=_pending_markers,
    ),
    Family(
        name="headrace_transaction_verifications_failed",
        kind="counter",
        help="Partitions that the coordinator did not confirm as part of a transaction.",
        read=_of_counters(lambda counters: [((), counters.failed_verifications)]),
    ),
    Family(
        name="headrace_transactional_ids_expired",
        kind="counter",
        help="Transactional ids that were forgotten because they were not used.",
        read=_of_counters(lambda counters: [((), counters.expired)]),
    ),
    Family(
        name="headrace_transaction_load_seconds",
        kind="histogram",
        help="Reading the transactional ids of one partition of __transaction_state.",
        read=_of_counters(lambda counters: [((), counters.loads)]),
    ),
    Family(
        name="headrace_partition_last_stable_lag",
        kind="gauge",
        help="Offsets from the last stable offset to the high watermark, where a transaction is open.",
        labels=("topic", "partition"),
        read=_last_stable_lags,
    ),
    Family(
        name="headrace_partition_open_transaction_seconds",
        kind="gauge",
        help="Age of the transaction that is open longest in the partition, where one is.",
        labels=("topic", "partition"),
        read=_open_seconds,
    ),
)
