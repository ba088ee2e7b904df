# SPDX-License-Identifier: Apache-2.0
"""Samples log end offsets over time and writes them to `__headrace_lag`, for consumer lag in seconds.

Only of partitions for which some group has committed an offset, and never of internal topics of Headrace:
each sample would make them grow. Sampling costs a microsecond per partition; changed series are written,
at most MOST_WRITTEN at a time, the oldest first. After a restart the samples are loaded from the topic.
Read next: lag_series.py, client/tools/lag.py (reads them).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.reporting.internal_topics import InternalRecord, InternalTopicWriter
from headrace.broker.reporting.lag_series import LagSeries, Sample
from headrace.config import NodeConfig
from headrace.errors import HeadraceError
from headrace.types import LAG_VERSION, OWN_TOPICS, TopicPartition
from headrace.world import World

logger = logging.getLogger(__name__)

SAMPLE_INTERVAL_S = 5.0
MOST_WRITTEN = 200
"""In one run: with a thousand busy partitions each is written every 25 s."""
_RECORDS_PER_YIELD = 10
"""At some hundred microseconds each."""
_WRITTEN_WITHIN_MS = 5_000
_SCAN_S = 60.0
"""Interval at which partitions without committed offsets are looked for."""


class LagSamples:
    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        partitions: Partitions,
        groups: GroupCoordinator,
        topic: InternalTopicWriter,
    ) -> None:
        self._topic = topic
        self._clock = world.clock
        self._partitions = partitions
        self._groups = groups
        self._thread = world.tasks.thread("lag samples")
        self._series: dict[TopicPartition, LagSeries] = {}
        self._committed: set[tuple[str, int]] = set()
        """(topic, partition) with an offset committed since the last scan."""
        self._scan_at = 0.0
        self._ends_at_start: dict[TopicPartition, int] | None = None
        self._started_ms = 0
        self._enabled: bool = config["headrace.lag.enable"]
        if self._enabled:
            groups.on_commit = self.committed

    def start(self) -> None:
        """Before clients are admitted: notes the log end offsets at the start."""
        if self._enabled and self._topic.exists:
            every = self._partitions.all()
            self._ends_at_start = {each.topic_partition: each.log_end_offset for each in every}
            self._started_ms = self._clock.wall_ms()

    def committed(self, group_id: str, places: Iterable[tuple[str, int]]) -> None:
        self._committed.update(places)

    async def sample(self, most: int = MOST_WRITTEN) -> None:
        if not self._enabled:
            return
        if self._ends_at_start is not None:
            await self._restore(self._ends_at_start)
            self._ends_at_start = None
        gone = await self._refresh()
        now_ms = self._clock.wall_ms()
        async for where, series in yielding(list(self._series.items()), 1000):
            partition = self._partitions.get(*where)
            if partition is None:
                continue
            if series.topic_id != partition.topic_id:  # new, or deleted and made again
                series = self._series[where] = LagSeries(topic_id=partition.topic_id)
            series.observe(partition.log_end_offset, now_ms)
        await self._write(gone, now_ms, most)

    async def finish(self) -> None:
        """The node stops."""
        await self.sample(most=len(self._series) + len(self._committed))

    # Partitions

    async def _refresh(self) -> list[TopicPartition]:
        """Adds partitions with new commits; at intervals, removes and returns those without any."""
        fresh, self._committed = self._committed, set()
        for where in map(TopicPartition._make, sorted(fresh - self._series.keys())):
            if where.topic not in OWN_TOPICS:
                self._series[where] = LagSeries()
        now = self._clock.monotonic()
        if now < self._scan_at:
            return []
        read = await self._read_by_groups()
        self._scan_at = now + _SCAN_S
        if read is None:
            return []
        for where in sorted(read - self._series.keys()):
            self._series[where] = LagSeries()
        gone = sorted(self._series.keys() - read - self._committed)
        for where in gone:
            del self._series[where]
        return gone

    async def _read_by_groups(self) -> set[TopicPartition] | None:
        """Partitions with committed offsets; None while that cannot be read without waiting for a commit."""
        groups = self._groups.listed_now()
        if groups is None:
            return None
        read: set[TopicPartition] = set()
        async for group in yielding(groups):
            offsets = list(group.offsets.all())
            async for topic, partition, _ in yielding(offsets, 1000):
                if topic not in OWN_TOPICS and self._partitions.get(topic, partition) is not None:
                    read.add(TopicPartition(topic, partition))
        return read

    # The topic

    async def _write(self, gone: list[TopicPartition], now_ms: int, most: int) -> None:
        changed = [where for where, series in self._series.items() if series.changed]
        if len(changed) > most:
            changed = sorted(changed, key=lambda where: self._series[where].written_at)[:most]
        records, written = [], []
        async for where in yielding(changed, _RECORDS_PER_YIELD):
            series, partition = self._series.get(where), self._partitions.get(*where)
            if series is not None and partition is not None:
                records.append(_record(where, series, partition, now_ms))
                written.append(series)
                series.changed, series.written_at = False, self._clock.monotonic()
        records += [InternalRecord(now_ms, _key(where), None) for where in gone]
        if not records:
            return
        count = await self._topic.append(records)
        for series in written[count:]:
            series.changed = True

    async def _restore(self, ends: dict[TopicPartition, int]) -> None:
        try:
            values = await self._topic.newest(self._thread)
        except (HeadraceError, OSError) as error:
            logger.error("%s cannot be read: %s", self._topic.name, error)
            return
        async for key, value in yielding(list(values.items())):
            found = _read(key, value)
            partition = None if found is None else self._partitions.get(*found[0])
            if found is not None and partition is not None and found[0] in ends:
                where, samples = found
                series = self._series[where] = LagSeries(samples, topic_id=partition.topic_id)
                series.resume(ends[where], self._started_ms, _WRITTEN_WITHIN_MS)


def _key(where: TopicPartition) -> bytes:
    return json.dumps({"topic": where.topic, "partition": where.partition}, separators=(",", ":")).encode()


def _record(where: TopicPartition, series: LagSeries, partition: Partition, now_ms: int) -> InternalRecord:
    series.tidy(partition.log_start_offset, now_ms)
    value = {"version": LAG_VERSION, "samples": series.samples, "rate_in": series.rate_in(now_ms)}
    return InternalRecord(now_ms, _key(where), json.dumps(value, separators=(",", ":")).encode())


def _read(key: bytes, value: bytes) -> tuple[TopicPartition, list[Sample]] | None:
    """None for other records: those of a later release, and what clients could once write to the topic."""
    try:
        where, document = json.loads(key), json.loads(value)
        if int(document.get("version", LAG_VERSION)) > LAG_VERSION:
            return None
        samples = [Sample(int(offset), int(wall_ms)) for offset, wall_ms in document["samples"]]
        ordered = samples == sorted(samples, key=lambda each: (each.wall_ms, each.offset))
        if not samples or not ordered:
            return None
        return TopicPartition(str(where["topic"]), int(where["partition"])), samples
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
