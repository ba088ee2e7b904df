"""Counters of one node: plain integers, so that the hot path pays well under a microsecond.

Knows nothing of Prometheus or HTTP. Read next: metrics_export.py (names, help texts), docs/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.types import TopicPartition
from headrace.world import Clock

if TYPE_CHECKING:
    from headrace.broker.cluster_metrics import ClusterMetrics
    from headrace.broker.group_metrics import GroupMetrics

LATENCY_BOUNDS = (
    0.00005, 0.0001, 0.0002, 0.0005,
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds in seconds; what is slower counts in one more bucket without a bound."""

WINDOW_STEP_S = 10.0
WINDOW_STEPS = 6
"""A p99 gauge looks back over the last WINDOW_STEPS × WINDOW_STEP_S seconds."""

OTHER_API = -1
"""Keys that Kafka does not have are counted together: a client must not grow our memory."""
_API_KEYS = range(128)

_MOST_CLIENTS = 500
_OTHER_CLIENT = ("other", "other")


class Histogram:
    """Latencies since the start, and enough snapshots to tell the p99 of the last minute."""

    __slots__ = ("_snapshots", "buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self.seconds = 0.0
        self._snapshots: deque[list[int]] = deque(maxlen=WINDOW_STEPS)

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def end_window_step(self) -> None:
        self._snapshots.append(self.buckets.copy())

    def recent_quantile(self, quantile: float) -> float | None:
        """None when nothing was observed within the window."""
        whole = len(self._snapshots) == WINDOW_STEPS
        before = self._snapshots[0] if whole else [0] * len(self.buckets)
        recent = [now - then for now, then in zip(self.buckets, before, strict=True)]
        return quantile_of(recent, quantile)


def quantile_of(buckets: list[int], quantile: float) -> float | None:
    """Straight line within the bucket, as Prometheus does; the last bound for what is slower than it."""
    rank = sum(buckets) * quantile
    if rank <= 0:
        return None
    below = 0
    for index, (count, bound) in enumerate(zip(buckets, LATENCY_BOUNDS, strict=False)):
        if below + count >= rank:
            lower = LATENCY_BOUNDS[index - 1] if index else 0.0
            return lower + (bound - lower) * (rank - below) / count
        below += count
    return LATENCY_BOUNDS[-1]


class TopicCounters:
    """Held by the partitions of a topic, which add to it in place."""

    __slots__ = ("bytes_in", "bytes_out", "fetches", "produces", "records_in")

    def __init__(self) -> None:
        self.produces = 0
        self.records_in = 0
        self.bytes_in = 0
        self.fetches = 0
        self.bytes_out = 0


class PartitionFigures(Protocol):
    """What a scrape reads of a partition."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def online(self) -> bool: ...


class ReplicationFigures(NamedTuple):
    """Of this node's part in replicated partitions."""

    followed: int
    longest_lag: int
    below_min_insync: int


class Metrics:
    """One per node. Attributes without a method are changed in place by their owner."""

    __slots__ = (
        "_apis",
        "_clock",
        "_ticked_at",
        "_window_ends_at",
        "bytes_in",
        "bytes_out",
        "clients",
        "cluster",
        "connections",
        "connections_opened",
        "connections_refused",
        "damaged",
        "errors",
        "frames_bytes",
        "fsync",
        "groups",
        "loop",
        "own_records_dropped",
        "partitions",
        "replication",
        "topics",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_ends_at = clock.monotonic() + WINDOW_STEP_S
        self._ticked_at = clock.monotonic()
        self._apis: dict[int, Histogram] = {}
        self.errors: dict[tuple[int, int], int] = {}
        self.clients: dict[tuple[str, str], int] = {}
        self.topics: dict[str, TopicCounters] = {}
        self.connections = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_bytes = 0
        """Memory held by frames that are being received, handled or sent."""
        self.fsync = Histogram()
        self.loop = Histogram()
        self.own_records_dropped: dict[str, int] = {}
        """By topic: of what the node writes about itself, what could not be written."""
        self.partitions: Callable[[], Iterable[PartitionFigures]] = tuple
        self.damaged: Callable[[], Mapping[Any, tuple[TopicPartition, str]]] = dict
        self.groups: GroupMetrics | None = None
        self.replication: Callable[[], ReplicationFigures] | None = None
        self.cluster: ClusterMetrics | None = None

    def request_done(self, api_key: int, seconds: float) -> None:
        try:
            api = self._apis[api_key]
        except KeyError:
            api = self._apis.setdefault(api_key if api_key in _API_KEYS else OTHER_API, Histogram())
        api.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        api.seconds += seconds

    def requests_done(self, api_key: int, seconds: float, count: int) -> None:
        """Several that took so long together, one after the other."""
        each = seconds / count
        self.request_done(api_key, each)
        api = self._apis[api_key]
        api.buckets[bisect_left(LATENCY_BOUNDS, each)] += count - 1
        api.seconds += seconds - each

    def request_error(self, api_key: int, code: int) -> None:
        key = (api_key if api_key in _API_KEYS else OTHER_API, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def topic(self, name: str) -> TopicCounters:
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters()
        return counters

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def client_seen(self, name: str, version: str) -> None:
        """Clients tell who they are in ApiVersions; names beyond the first hundreds are lumped together."""
        key = (name, version)
        if key not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            key = _OTHER_CLIENT
        self.clients[key] = self.clients.get(key, 0) + 1

    def fsync_done(self, seconds: float) -> None:
        self.fsync.observe(seconds)

    def loop_delay(self, seconds: float) -> None:
        """Called some times a second by the probe; also moves the window of the p99 gauges."""
        self.loop.observe(seconds)
        self._ticked_at = self._clock.monotonic()
        self.move_window()

    def seconds_since_tick(self) -> float:
        """How long ago the probe last ran, or since the start."""
        return self._clock.monotonic() - self._ticked_at

    def move_window(self) -> None:
        now = self._clock.monotonic()
        if now < self._window_ends_at:
            return
        self._window_ends_at = now + WINDOW_STEP_S
        for histogram in (self.fsync, self.loop, *self._apis.values()):
            histogram.end_window_step()

    def requests(self) -> list[tuple[int, Histogram]]:
        """Api key and latencies of each API that was asked for, in the order of the keys."""
        return sorted(self._apis.items())
