# SPDX-License-Identifier: Apache-2.0
"""The counters under the names operators scrape, through prometheus_client, imported at the first scrape.

A scrape is rendered in slices and yields to the event loop between them, however many topics there are.
Every family here is in docs/metrics.md with the Kafka MBean it stands for (tests/docs holds that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from headrace.broker.metrics import LATENCY_BOUNDS, OTHER_API, Histogram, Metrics, TopicCounters
from headrace.broker.reporting.cluster_families import CLUSTER_FAMILIES
from headrace.broker.reporting.group_families import GROUP_FAMILIES
from headrace.broker.reporting.metric_family import Family, MetricSources, Read, Sample
from headrace.broker.reporting.scrub_families import SCRUB_FAMILIES
from headrace.broker.reporting.transaction_families import TRANSACTION_FAMILIES
from headrace.version import __version__
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SAMPLES_PER_YIELD = 500


def _one(read: Callable[[Metrics], float | Histogram | None]) -> Read:
    def samples(sources: MetricSources) -> Iterable[Sample]:
        value = read(sources.metrics)
        return [] if value is None else [((), value)]

    return samples


def _by_api(read: Callable[[Histogram], float | Histogram | None]) -> Read:
    def samples(sources: MetricSources) -> Iterable[Sample]:
        values = ((key, read(histogram)) for key, histogram in sources.metrics.requests())
        return [((api_label(key),), value) for key, value in values if value is not None]

    return samples


def _by_topic(read: Callable[[TopicCounters], int]) -> Read:
    return lambda sources: [((name,), read(topic)) for name, topic in sources.metrics.topics.items()]


def api_label(api_key: int) -> str:
    """Kafka's own name of the API, as its documentation writes it."""
    if api_key == OTHER_API:
        return "Unknown"
    api = APIS.get(api_key)
    return f"Key{api_key}" if api is None else api.label


def _errors(sources: MetricSources) -> list[Sample]:
    return [
        ((api_label(api_key), ErrorCode(code).name.upper()), count)
        for (api_key, code), count in sorted(sources.metrics.errors.items())
    ]


def _refused_batches(sources: MetricSources) -> list[Sample]:
    return [
        ((topic, codec, ErrorCode(code).name.upper()), count)
        for topic, counters in sources.metrics.topics.items()
        for (codec, code), count in sorted(counters.refused_batches.items())
    ]


def _log_sizes(sources: MetricSources) -> list[Sample]:
    sizes: Counter[str] = Counter()
    for partition in sources.partitions():
        sizes[partition.topic_partition.topic] += partition.size_bytes
    return [((topic,), size) for topic, size in sizes.items()]


def _offline_partitions(sources: MetricSources) -> list[Sample]:
    return [((name.topic, str(name.partition)), 1) for name, _ in sources.damaged().values()]


def _p99(histogram: Histogram) -> float | None:
    return histogram.recent_quantile(0.99)


FAMILIES: tuple[Family, ...] = (
    Family(
        name="headrace_info",
        kind="gauge",
        help="Always 1; the version that runs is in the label.",
        labels=("version",),
        read=lambda sources: [((__version__,), 1)],
    ),
    Family(
        name="headrace_requests",
        kind="counter",
        help="Requests answered.",
        labels=("api",),
        read=_by_api(lambda histogram: histogram.count),
    ),
    Family(
        name="headrace_request_seconds",
        kind="histogram",
        help="From the whole request received to its reply handed to the network; Fetch includes its wait.",
        labels=("api",),
        read=_by_api(lambda histogram: histogram),
    ),
    Family(
        name="headrace_request_p99_seconds",
        kind="gauge",
        help="99th percentile of the last minute.",
        labels=("api",),
        read=_by_api(_p99),
    ),
    Family(
        name="headrace_request_errors",
        kind="counter",
        help="Replies, or partitions within replies, with this error code.",
        labels=("api", "error"),
        read=_errors,
    ),
    Family(
        name="headrace_connections",
        kind="gauge",
        help="Open client connections.",
        read=_one(lambda metrics: metrics.connections),
    ),
    Family(
        name="headrace_connections_opened",
        kind="counter",
        help="Client connections accepted.",
        read=_one(lambda metrics: metrics.connections_opened),
    ),
    Family(
        name="headrace_connections_refused",
        kind="counter",
        help="Connections refused because a limit of connections was reached.",
        read=_one(lambda metrics: metrics.connections_refused),
    ),
    Family(
        name="headrace_throttles",
        kind="counter",
        help="Replies and new connections that were throttled, by the quota that was exceeded.",
        labels=("quota",),
        read=lambda sources: [((name,), count) for name, (count, _) in sources.metrics.throttles.items()],
    ),
    Family(
        name="headrace_throttle_seconds",
        kind="counter",
        help="Throttle time of these altogether.",
        labels=("quota",),
        read=lambda sources: [((name,), total) for name, (_, total) in sources.metrics.throttles.items()],
    ),
    Family(
        name="headrace_clients_seen",
        kind="counter",
        help="Connections by the client software that announced itself in ApiVersions.",
        labels=("name", "version"),
        read=lambda sources: list(sources.metrics.clients.items()),
    ),
    Family(
        name="headrace_network_received_bytes",
        kind="counter",
        help="Bytes received from clients.",
        read=_one(lambda metrics: metrics.bytes_in),
    ),
    Family(
        name="headrace_network_sent_bytes",
        kind="counter",
        help="Bytes sent to clients.",
        read=_one(lambda metrics: metrics.bytes_out),
    ),
    Family(
        name="headrace_frames_bytes",
        kind="gauge",
        help="Memory held by requests that are being received or handled.",
        read=_one(lambda metrics: metrics.frames_bytes),
    ),
    Family(
        name="headrace_topic_produces",
        kind="counter",
        help="Batches appended.",
        labels=("topic",),
        read=_by_topic(lambda topic: topic.produces),
    ),
    Family(
        name="headrace_topic_received_records",
        kind="counter",
        help="Records appended.",
        labels=("topic",),
        read=_by_topic(lambda topic: topic.records_in),
    ),
    Family(
        name="headrace_topic_received_bytes",
        kind="counter",
        help="Bytes of record batches appended.",
        labels=("topic",),
        read=_by_topic(lambda topic: topic.bytes_in),
    ),
    Family(
        name="headrace_topic_refused_batches",
        kind="counter",
        help="Damaged batches that were refused.",
        labels=("topic", "codec", "error"),
        read=_refused_batches,
    ),
    Family(
        name="headrace_topic_fetches",
        kind="counter",
        help="Reads of a partition that found records.",
        labels=("topic",),
        read=_by_topic(lambda topic: topic.fetches),
    ),
    Family(
        name="headrace_topic_sent_bytes",
        kind="counter",
        help="Bytes of record batches given to fetches.",
        labels=("topic",),
        read=_by_topic(lambda topic: topic.bytes_out),
    ),
    Family(
        name="headrace_log_size_bytes",
        kind="gauge",
        help="Bytes of log segments on disk.",
        labels=("topic",),
        read=_log_sizes,
    ),
    Family(
        name="headrace_partitions",
        kind="gauge",
        help="Partitions held by this node.",
        read=lambda sources: [((), sum(1 for _ in sources.partitions()))],
    ),
    Family(
        name="headrace_partitions_offline",
        kind="gauge",
        help="Partitions held by this node that a disk fault took offline.",
        read=lambda sources: [((), len(sources.damaged()))],
    ),
    Family(
        name="headrace_partition_offline",
        kind="gauge",
        help="1 for each of them; its log cannot be read or written. Why is in the node's log.",
        labels=("topic", "partition"),
        read=_offline_partitions,
    ),
    *SCRUB_FAMILIES,
    *CLUSTER_FAMILIES,
    *GROUP_FAMILIES,
    *TRANSACTION_FAMILIES,
    Family(
        name="headrace_own_records_dropped",
        kind="counter",
        help="Records of the node's own topics (group events, lag samples) that could not be written.",
        labels=("topic",),
        read=lambda sources: [((name,), n) for name, n in sources.metrics.own_records_dropped.items()],
    ),
    Family(
        name="headrace_fsync_seconds",
        kind="histogram",
        help="Time of the disk for one flush of a log, from when a thread began it.",
        read=_one(lambda metrics: metrics.fsync),
    ),
    Family(
        name="headrace_fsync_p99_seconds",
        kind="gauge",
        help="99th percentile of the last minute.",
        read=_one(lambda metrics: _p99(metrics.fsync)),
    ),
    Family(
        name="headrace_fsync_wait_seconds",
        kind="histogram",
        help="Time of one flush besides: until a thread was free for it, and until its end was noticed.",
        read=_one(lambda metrics: metrics.fsync_wait),
    ),
    Family(
        name="headrace_event_loop_delay_seconds",
        kind="histogram",
        help="How late the event loop came to a timer: the wait before any request is looked at.",
        read=_one(lambda metrics: metrics.loop),
    ),
    Family(
        name="headrace_event_loop_delay_p99_seconds",
        kind="gauge",
        help="99th percentile of the last minute.",
        read=_one(lambda metrics: _p99(metrics.loop)),
    ),
)


class MetricsExport:
    def __init__(self, sources: MetricSources, world: World) -> None:
        self._sources = sources
        self._world = world
        self._process: Collector | None = None

    async def render(self) -> bytes:
        """The text of one scrape."""
        if self._process is None:
            # On a thread: the import takes 80 ms, which no request should wait for.
            thread = self._world.tasks.thread("metrics")
            self._process = await thread.run(_process_collector)
            thread.close()
        self._sources.metrics.move_window()
        slices = []
        for text in _render(self._sources, self._process):
            slices.append(text)
            await self._world.tasks.sleep(0)
        return b"".join(slices)


def _process_collector() -> Collector:
    """Memory, processor time and descriptors of the process; nothing where there is no /proc."""
    from prometheus_client import ProcessCollector

    return ProcessCollector(registry=None)


def _render(sources: MetricSources, process: Collector) -> Iterator[bytes]:
    from prometheus_client import generate_latest

    for family in FAMILIES:
        samples = iter(family.read(sources))
        head = True
        while chunk := list(islice(samples, _SAMPLES_PER_YIELD)):
            text = generate_latest(_OneFamily(_to_prometheus(family, chunk)))
            yield text if head else text.split(b"\n", 2)[2]  # HELP and TYPE come once per family
            head = False
    yield generate_latest(process)


class _OneFamily:
    """A collector, as prometheus_client understands it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _to_prometheus(family: Family, samples: Iterable[Sample]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == "histogram":
        histograms = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, histogram in samples:
            histograms.add_metric(labels, _cumulated(histogram), histogram.seconds)
        return histograms
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return metric


def _cumulated(histogram: Histogram) -> list[tuple[str, float]]:
    names = [*map(str, LATENCY_BOUNDS), "+Inf"]
    return [(name, float(count)) for name, count in zip(names, accumulate(histogram.buckets), strict=True)]
