# SPDX-License-Identifier: Apache-2.0
"""Counters of one node and of its connections: plain integers, well under a microsecond on the hot path.

Independent of Prometheus and HTTP. Read next: reporting/metrics_export.py, docs/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock

LATENCY_BOUNDS = (
    0.00005, 0.0001, 0.0002, 0.0005,
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds in seconds; one more bucket has no bound."""

WINDOW_STEP_S = 10.0
WINDOW_STEPS = 6
"""A p99 gauge covers the last WINDOW_STEPS × WINDOW_STEP_S seconds."""

OTHER_API = -1
"""Unknown API keys are counted together: clients must not grow the memory of the node."""
_API_KEYS = range(128)

_MOST_CLIENTS = 500
_OTHER_CLIENT = ("other", "other")
_LONGEST_NAME = 255
_STEPS_OF_JOINING = frozenset({ErrorCode.member_id_required, ErrorCode.rebalance_in_progress})
"""Every member of a classic group is answered with these; nothing went wrong."""


class Histogram:
    """Latencies since the start, with snapshots for the p99 of the last minute."""

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
    """Interpolated within the bucket, as Prometheus does; at most the last bound."""
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
    """Counters of a topic, changed in place by its partitions."""

    __slots__ = ("bytes_in", "bytes_out", "fetches", "produces", "records_in", "refused_batches")

    def __init__(self) -> None:
        self.produces = 0
        self.records_in = 0
        self.bytes_in = 0
        self.fetches = 0
        self.bytes_out = 0
        self.refused_batches: dict[tuple[str, int], int] = {}
        """By codec and error code: batches that were damaged."""

    def refused(self, codec: str, code: int) -> None:
        key = (codec, code)
        self.refused_batches[key] = self.refused_batches.get(key, 0) + 1


class GroupCounters:
    """Of the groups that this node coordinates."""

    __slots__ = ("commits", "expired", "loads", "rebalances")

    def __init__(self) -> None:
        self.commits = 0
        """Committed offsets, not requests."""
        self.expired = 0
        self.rebalances = {"Classic": 0, "Consumer": 0}
        """By group type, as ListGroups names it."""
        self.loads = Histogram()


CLIENT_COMMIT, CLIENT_ABORT, TIMED_OUT, FENCED = "client_commit", "client_abort", "timeout", "fenced"
_HALF_A_MILLISECOND = 0.5


class TransactionCounters:
    """Of the transactions that this node coordinates, and of those it asked other nodes about."""

    __slots__ = ("commits", "ends", "expired", "failed_verifications", "loads")

    def __init__(self) -> None:
        self.ends = dict.fromkeys((CLIENT_COMMIT, CLIENT_ABORT, TIMED_OUT, FENCED), 0)
        """By cause: decided transactions."""
        self.commits = Histogram()
        """From the decision to the last marker."""
        self.expired = 0
        """Transactional ids."""
        self.failed_verifications = 0
        """Batches and offset commits whose partition the coordinator did not confirm."""
        self.loads = Histogram()

    def ended(self, cause: str, *, commits: bool) -> None:
        """`cause` as the timeline of a transactional id has it."""
        if cause == "client":
            self.ends[CLIENT_COMMIT if commits else CLIENT_ABORT] += 1
        else:
            self.ends[TIMED_OUT if cause == "timed out" else FENCED] += 1

    def committed_in(self, milliseconds: int) -> None:
        """Whole milliseconds: 0 is anything below one."""
        self.commits.observe(max(milliseconds, _HALF_A_MILLISECOND) / 1000)


class ControllerCounters:
    """Of the partition states that this node wrote as controller."""

    __slots__ = ("elections", "isr_expands", "isr_shrinks", "unclean_elections")

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    def count(self, before: PartitionState, after: PartitionState, *, lossy: bool) -> None:
        if after.leader not in (before.leader, NO_NODE):
            self.elections += 1
            self.unclean_elections += lossy
        self.isr_shrinks += bool(set(before.isr) - set(after.isr))
        self.isr_expands += bool(set(after.isr) - set(before.isr))


class ScrubCounters:
    """Of the scrub, which reads and checks all record batches on this node's disk, and of the repairs."""

    __slots__ = (
        "batches",
        "bytes_checked",
        "bytes_left",
        "bytes_repaired",
        "ended_ms",
        "faults",
        "kept",
        "kept_bytes",
        "passes",
        "refetched",
        "repaired",
    )

    def __init__(self) -> None:
        self.passes = 0
        self.batches = 0
        self.bytes_checked = 0
        self.bytes_left = 0
        """Of the pass under way."""
        self.faults = 0
        """Damaged segments found."""
        self.repaired = 0
        """Damaged segments that were made whole."""
        self.bytes_repaired = 0
        """Fetched for them."""
        self.refetched = 0
        """Damaged logs that were set aside and fetched as a whole."""
        self.kept = 0
        """Damaged files and logs that are kept aside, until somebody removes them."""
        self.kept_bytes = 0
        self.ended_ms: int | None = None
        """When the last pass ended."""


class ClientActivity:
    """What one connection says of itself, what it asked for, and its last error (network/client_list.py).

    Bounded: APIs are a closed set, and what the client says is cut.
    """

    __slots__ = (
        "_clock",
        "client_id",
        "error",
        "error_api",
        "error_ms",
        "opened_ms",
        "requests",
        "software_name",
        "software_version",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.opened_ms = clock.wall_ms()
        self.client_id: str | None = None
        self.software_name: str | None = None
        self.software_version: str | None = None
        self.requests: dict[int, int] = {}
        """By API key; changed in place by whoever starts a request."""
        self.error = 0
        """The last error code, 0 while there is none, with its API and time."""
        self.error_api = OTHER_API
        self.error_ms = 0

    def named(self, client_id: str | None) -> None:
        """Its first client id; clients do not change it."""
        if client_id is not None and self.client_id is None:
            self.client_id = client_id[:_LONGEST_NAME]

    def is_software(self, name: str, version: str) -> None:
        self.software_name = name[:_LONGEST_NAME]
        self.software_version = version[:_LONGEST_NAME]

    def failed(self, api_key: int, code: int) -> None:
        if code in _STEPS_OF_JOINING:
            return
        self.error, self.error_api, self.error_ms = code, api_key, self._clock.wall_ms()


class Metrics:
    """One per node. Attributes without a method are changed in place by the component that counts."""

    __slots__ = (
        "_apis",
        "_clock",
        "_ticked_at",
        "_window_ends_at",
        "bytes_in",
        "bytes_out",
        "clients",
        "connections",
        "connections_opened",
        "connections_refused",
        "controller",
        "errors",
        "frames_bytes",
        "fsync",
        "fsync_wait",
        "groups",
        "loop",
        "own_records_dropped",
        "scrub",
        "throttles",
        "topics",
        "transactions",
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
        """Of the disk alone: from when a thread began a flush until it was done."""
        self.fsync_wait = Histogram()
        """What flushes took besides: until a thread was free, and until the event loop knew the outcome."""
        self.loop = Histogram()
        self.own_records_dropped: dict[str, int] = {}
        """By internal topic: records about this node that could not be written."""
        self.throttles: dict[str, list[float]] = {}
        """By quota: how often clients were throttled, and for how many seconds altogether."""
        self.groups = GroupCounters()
        self.transactions = TransactionCounters()
        self.controller = ControllerCounters()
        self.scrub = ScrubCounters()

    def request_done(self, api_key: int, seconds: float) -> None:
        try:
            api = self._apis[api_key]
        except KeyError:
            api = self._apis.setdefault(api_key if api_key in _API_KEYS else OTHER_API, Histogram())
        api.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        api.seconds += seconds

    def requests_done(self, api_key: int, seconds: float, count: int) -> None:
        """Counts requests handled one after the other in `seconds` altogether."""
        each = seconds / count
        self.request_done(api_key, each)
        api = self._apis[api_key]
        api.buckets[bisect_left(LATENCY_BOUNDS, each)] += count - 1
        api.seconds += seconds - each

    def request_error(self, api_key: int, code: int, client: ClientActivity | None = None) -> None:
        """`client`: whose connection asked; None when another node forwarded the request."""
        key = (api_key if api_key in _API_KEYS else OTHER_API, code)
        self.errors[key] = self.errors.get(key, 0) + 1
        if client is not None:
            client.failed(api_key, code)

    def throttled(self, quota: str, seconds: float) -> None:
        counted = self.throttles.setdefault(quota, [0, 0.0])
        counted[0] += 1
        counted[1] += seconds

    def topic(self, name: str) -> TopicCounters:
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters()
        return counters

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def client_seen(self, name: str, version: str) -> None:
        """Counts a client by the software name in ApiVersions; names beyond _MOST_CLIENTS count as one."""
        key = (name, version)
        if key not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            key = _OTHER_CLIENT
        self.clients[key] = self.clients.get(key, 0) + 1

    def loop_delay(self, seconds: float) -> None:
        """Called by the event-loop probe, ten times a second; also moves the window of the p99 gauges."""
        self.loop.observe(seconds)
        self._ticked_at = self._clock.monotonic()
        self.move_window()

    def seconds_since_tick(self) -> float:
        """Time since the event-loop probe last ran, or since the start."""
        return self._clock.monotonic() - self._ticked_at

    def move_window(self) -> None:
        now = self._clock.monotonic()
        if now < self._window_ends_at:
            return
        self._window_ends_at = now + WINDOW_STEP_S
        for histogram in (self.fsync, self.loop, *self._apis.values()):
            histogram.end_window_step()

    def requests(self) -> list[tuple[int, Histogram]]:
        """API key and latencies of each API that was requested, by key."""
        return sorted(self._apis.items())
