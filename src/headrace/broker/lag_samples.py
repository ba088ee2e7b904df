"""Looks how far partitions have grown and writes it to `__headrace_lag`, so that lag can be told in seconds.

Only partitions for which some group has committed an offset, and never the node's own topics: what is written
about them would make them grow for ever. A look costs a microsecond for each; written are
those that changed, at most so many at a time, those first that have waited longest. After a restart the
samples come back from the topic. Read next: lag_series.py (what is kept), client/lag.py (what it is for).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.lag_series import LagSeries, Sample
from headrace.broker.own_topics import OwnRecord, OwnTopic
from headrace.broker.partition import Partition
from headrace.broker.turns import in_turns
from headrace.errors import HeadraceError
from headrace.types import OWN_TOPICS, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

LOOK_S = 5.0
MOST_WRITTEN = 200
"""In one look: with a thousand busy partitions each is written every 25 s."""
_RECORDS_PER_TURN = 10
"""At some hundred microseconds each."""
_WRITTEN_WITHIN_MS = 5_000
_SCAN_S = 60.0
"""How often it is looked for what no group reads any more."""


class LagSamples:
    def __init__(self, broker: Broker, topic: OwnTopic) -> None:
        self._topic = topic
        self._clock = broker.world.clock
        self._partitions = broker.partitions
        self._groups = broker.groups
        self._thread = broker.world.tasks.thread("lag samples")
        self._series: dict[TopicPartition, LagSeries] = {}
        self._committed: set[tuple[str, int]] = set()
        """For which an offset was committed since the last scan."""
        self._scan_at = 0.0
        self._ends_at_start: dict[TopicPartition, int] | None = None
        self._started_ms = 0
        self._enabled: bool = broker.config["headrace.lag.enable"]
        if self._enabled:
            broker.groups.on_commit = self.committed

    def start(self) -> None:
        """Before clients are let in: what is there now came before the node stopped."""
        if self._enabled and self._topic.exists:
            every = self._partitions.all()
            self._ends_at_start = {each.topic_partition: each.log_end_offset for each in every}
            self._started_ms = self._clock.wall_ms()

    def committed(self, group_id: str, places: Iterable[tuple[str, int]]) -> None:
        self._committed.update(places)

    async def look(self, most: int = MOST_WRITTEN) -> None:
        if not self._enabled:
            return
        if self._ends_at_start is not None:
            await self._restore(self._ends_at_start)
            self._ends_at_start = None
        gone = await self._refresh()
        now_ms = self._clock.wall_ms()
        async for where, series in in_turns(list(self._series.items()), 1000):
            partition = self._partitions.get(*where)
            if partition is None:
                continue
            if series.topic_id != partition.topic_id:  # new, or deleted and made again
                series = self._series[where] = LagSeries(topic_id=partition.topic_id)
            series.observe(partition.log_end_offset, now_ms)
        await self._write(gone, now_ms, most)

    async def finish(self) -> None:
        """The node stops."""
        await self.look(most=len(self._series) + len(self._committed))

    # Which partitions

    async def _refresh(self) -> list[TopicPartition]:
        """Takes up what was committed meanwhile; once in a while, finds what is read no more."""
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
        """None while that cannot be known. Nothing waits here: other replicas may be away for long."""
        groups = self._groups.listed_now()
        if groups is None:
            return None
        read: set[TopicPartition] = set()
        async for group in in_turns(groups):
            offsets = list(group.offsets.all())
            async for topic, partition, _ in in_turns(offsets, 1000):
                if topic not in OWN_TOPICS and self._partitions.get(topic, partition) is not None:
                    read.add(TopicPartition(topic, partition))
        return read

    # The topic

    async def _write(self, gone: list[TopicPartition], now_ms: int, most: int) -> None:
        changed = [where for where, series in self._series.items() if series.changed]
        if len(changed) > most:
            changed = sorted(changed, key=lambda where: self._series[where].written_at)[:most]
        records, written = [], []
        async for where in in_turns(changed, _RECORDS_PER_TURN):
            series, partition = self._series.get(where), self._partitions.get(*where)
            if series is not None and partition is not None:
                records.append(_record(where, series, partition, now_ms))
                written.append(series)
                series.changed, series.written_at = False, self._clock.monotonic()
        records += [OwnRecord(now_ms, _key(where), None) for where in gone]
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
        async for key, value in in_turns(list(values.items())):
            found = _read(key, value)
            partition = None if found is None else self._partitions.get(*found[0])
            if found is not None and partition is not None and found[0] in ends:
                where, samples = found
                series = self._series[where] = LagSeries(samples, topic_id=partition.topic_id)
                series.resume(ends[where], self._started_ms, _WRITTEN_WITHIN_MS)


def _key(where: TopicPartition) -> bytes:
    return json.dumps({"topic": where.topic, "partition": where.partition}, separators=(",", ":")).encode()


def _record(where: TopicPartition, series: LagSeries, partition: Partition, now_ms: int) -> OwnRecord:
    series.tidy(partition.log_start_offset, now_ms)
    value = {"samples": series.samples, "rate_in": series.rate_in(now_ms)}
    return OwnRecord(now_ms, _key(where), json.dumps(value, separators=(",", ":")).encode())


def _read(key: bytes, value: bytes) -> tuple[TopicPartition, list[Sample]] | None:
    """None for what is not ours: anyone may write to a topic."""
    try:
        where, document = json.loads(key), json.loads(value)
        samples = [Sample(int(offset), int(wall_ms)) for offset, wall_ms in document["samples"]]
        ordered = samples == sorted(samples, key=lambda each: (each.wall_ms, each.offset))
        if not samples or not ordered:
            return None
        return TopicPartition(str(where["topic"]), int(where["partition"])), samples
    except (ValueError, KeyError, TypeError):
        return None
