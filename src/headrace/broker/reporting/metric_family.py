# SPDX-License-Identifier: Apache-2.0
"""A metric family: name, kind, help, labels, and how its samples are read. Read next: metrics_export.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headrace.broker.metrics import Metrics
from headrace.broker.replication.replicas import ReplicationFigures
from headrace.broker.transactions.coordinator import TransactionFigures
from headrace.machines.groups.group import Group
from headrace.types import ClusterView, TopicPartition

Sample = tuple[Sequence[str], Any]
"""Label values, and a number or a histogram."""


class PartitionFigures(Protocol):
    """What a scrape reads of a partition."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def damaged_segments(self) -> Mapping[int, str]: ...
    @property
    def open_transaction_since_ms(self) -> int | None:
        """When the transaction began that is open longest; None: none is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """The counters of a node, and the components whose gauges are read at each scrape."""

    metrics: Metrics
    partitions: Callable[[], Iterable[PartitionFigures]]
    damaged: Callable[[], Mapping[Any, tuple[TopicPartition, str]]]
    groups: Callable[[], Iterable[Group]]
    transactions: Callable[[], TransactionFigures]
    replication: Callable[[], ReplicationFigures]
    view: Callable[[], ClusterView]
    is_controller: Callable[[], bool]
    wall_ms: Callable[[], int]
    store_backup_age_s: Callable[[], float | None]


Read = Callable[[MetricSources], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    read: Read
