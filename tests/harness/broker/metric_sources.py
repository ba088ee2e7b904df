# SPDX-License-Identifier: Apache-2.0
"""Sources of a scrape for tests: no partitions, groups or cluster unless a test names them."""

from __future__ import annotations

from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.replication.replicas import ReplicationFigures
from headrace.broker.reporting.metric_family import MetricSources
from headrace.broker.transactions.coordinator import TransactionFigures
from headrace.types import ClusterView


def metric_sources(metrics: Metrics, **sources: Any) -> MetricSources:
    view = ClusterView(version=1, cluster_id="")
    absent: dict[str, Any] = {
        "partitions": tuple,
        "damaged": dict,
        "groups": tuple,
        "transactions": lambda: TransactionFigures(by_state={}, pending_markers=0),
        "replication": lambda: ReplicationFigures(followed=0, longest_lag=0, below_min_insync=0),
        "view": lambda: view,
        "is_controller": lambda: True,
        "wall_ms": lambda: 0,
        "store_backup_age_s": lambda: None,
    }
    return MetricSources(metrics=metrics, **{**absent, **sources})
