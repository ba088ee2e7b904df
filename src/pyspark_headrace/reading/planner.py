# SPDX-License-Identifier: Apache-2.0
"""Plans a streaming query on the driver: its initial offsets, the end of each micro-batch, data loss.

Runs in the one Python process in which Spark plans a query. Read next: data_loss.py, progress.py,
pyspark_headrace/limits.py; stream_reader.py is the interface to Spark.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.types import TopicPartition
from pyspark_headrace.client_pool import PooledClient
from pyspark_headrace.limits import share, share_bytes
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading import offset_specs
from pyspark_headrace.reading.data_loss import Loss, detect
from pyspark_headrace.reading.lag import Lags, behind_latest
from pyspark_headrace.reading.offset_lookup import OffsetLookup, Snapshot
from pyspark_headrace.reading.offsets import Offsets, Position
from pyspark_headrace.reading.progress import GroupProgress
from pyspark_headrace.reading.query_lock import QueryLock, stop_requested
from pyspark_headrace.reading.row_sizes import RowSizes

_log = logging.getLogger("pyspark_headrace")


class Planner:
    def __init__(self, settings: ReadSettings, connections: PooledClient) -> None:
        self._settings = settings
        self._lookup = OffsetLookup(
            connections.client,
            settings.selection,
            committed_only=settings.committed_only,
            timeout_ms=settings.timeout_ms,
        )
        self._progress = None if settings.group is None else GroupProgress(connections.client, settings.group)
        self._row_sizes = RowSizes(connections.client, self._lookup)
        self._members_checked = False
        self._other_queries_checked = False
        self._query_lock = QueryLock()
        self._target: Snapshot | None = None
        """The end offsets at the start of an availableNow run; None: no end."""
        self._latest: Snapshot = {}
        self._behind: Lags = {}
        self._last_batch_s: float | None = None
        self._lost: Counter[str] = Counter()

    async def initial(self) -> Offsets:
        await self._check_no_members()
        snapshot = await self._lookup.snapshot(topics_must_exist=True)
        if not snapshot:
            _log.warning(
                "no topic matches subscribePattern %r now: the query waits for the first one",
                self._settings.selection.pattern,
            )
        start = await offset_specs.resolve_starting(
            self._settings, snapshot, self._lookup, self._committed, query=str(uuid.uuid4())
        )
        return offset_specs.within_log(start, snapshot, self._settings.on_data_loss)

    async def stop_at_current_end(self) -> None:
        """End an availableNow run at the current end offsets. A wrong address fails without retries."""
        await self._lookup.reach()
        self._target = await self._lookup.snapshot(topics_must_exist=False)

    async def latest(self, start: Offsets, *, limited: bool) -> Offsets | None:
        """The end of the next micro-batch; None when there is no new record or the query is to stop."""
        self._query_lock.hold(start.query)
        await self._check_no_members()
        await self._check_other_queries(start.query)
        if self._settings.stop_file is not None and stop_requested(self._settings.stop_file):
            await self._commit_to_group(start)
            return None
        commit = asyncio.create_task(self._commit_to_group(start))
        try:
            end = await self._next(start, limited=limited)
            self._behind = behind_latest(start if end is None else end, self._latest)
            return end
        finally:
            await commit

    def close(self) -> None:
        self._query_lock.close()

    def report(self) -> dict[str, Any]:
        """For the query's progress: end offsets, how far the batch is behind, losses, failed commits."""
        ends = {
            topic: {str(number): each.end for number, each in sorted(now.partitions.items())}
            for topic, now in sorted(self._latest.items())
        }
        failed = {} if self._progress is None else {"groupCommitsFailed": self._progress.failures}
        lost = dict(sorted(self._lost.items()))
        return {"ends": ends, "behind": self._behind, "lost": lost, **failed}

    # -- private -------------------------------------------------------------------------------------------

    async def _check_no_members(self) -> None:
        """Checked once, at the start; members that join later make commits fail, not the query."""
        if self._progress is not None and not self._members_checked:
            await self._progress.check_no_members()
            self._members_checked = True

    async def _check_other_queries(self, query: str) -> None:
        """Once: a query with a new checkpoint may continue under the group of an earlier one."""
        if self._progress is None or self._other_queries_checked:
            return
        self._other_queries_checked = True
        other = await self._progress.other_query(query)
        if other is not None:
            _log.warning(
                "group %r has the offsets of another query, %s: if that one still runs, each overwrites the "
                "progress of the other; give every query a group of its own",
                self._settings.group,
                other,
            )

    async def _committed(self) -> Mapping[TopicPartition, int]:
        assert self._progress is not None
        return await self._progress.committed()

    async def _commit_to_group(self, start: Offsets) -> None:
        """Commit `start`, the end of the last batch in Spark's commit log, at every trigger."""
        if self._progress is not None:
            await self._progress.commit(start)

    async def _next(self, start: Offsets, *, limited: bool) -> Offsets | None:
        snapshot = await self._lookup.snapshot(topics_must_exist=False)
        self._latest = snapshot
        detection = detect(
            start,
            snapshot,
            selection=self._settings.selection,
            ends_of_epochs=await self._lookup.ends_of_epochs(start),
            policy=self._settings.on_data_loss,
        )
        lags = self._lags(detection.offsets, snapshot)
        if not detection.losses and not self._is_due(sum(lags.values()), limited=limited):
            return None
        shares = await self._shares(lags, detection.offsets) if limited else lags
        end = _advance(start, detection.offsets, snapshot, shares)
        for loss in detection.losses:
            self._count(loss)
        if end == start:
            return None
        self._last_batch_s = time.monotonic()
        return end

    def _lags(self, offsets: Offsets, snapshot: Snapshot) -> dict[TopicPartition, int]:
        lags = {}
        for place, position in offsets:
            end = snapshot[place.topic].partitions[place.partition].end
            if self._target is not None:
                end = min(end, _end_in(self._target, place))
            if end > position.offset:
                lags[place] = end - position.offset
        return lags

    def _is_due(self, rows: int, *, limited: bool) -> bool:
        """Whether to start a batch. availableNow runs and a process's first batch ignore `min_rows`."""
        limits = self._settings.limits
        if not limited or limits.min_rows is None or self._target is not None or rows >= limits.min_rows:
            return rows > 0
        waited = self._last_batch_s is None or (
            (time.monotonic() - self._last_batch_s) * 1000 >= limits.max_delay_ms
        )
        return rows > 0 and waited

    async def _shares(
        self, lags: Mapping[TopicPartition, int], offsets: Offsets
    ) -> Mapping[TopicPartition, int]:
        limits = self._settings.limits
        if limits.max_rows is not None:
            lags = share(limits.max_rows, lags)
        if limits.max_bytes is not None:
            positions = {place: position.offset for place, position in offsets if place in lags}
            lags = share_bytes(limits.max_bytes, lags, await self._row_sizes.of(positions))
        return lags

    def _count(self, loss: Loss) -> None:
        self._lost[loss.kind] += 1
        self._lost["records at most"] += loss.records or 0
        _log.warning("%s; the query continues (onDataLoss=%s)", loss.what, self._settings.on_data_loss)


def _end_in(target: Snapshot, place: TopicPartition) -> int:
    now = target.get(place.topic)
    if now is None or place.partition not in now.partitions:
        return 0
    return now.partitions[place.partition].end


def _advance(
    start: Offsets, offsets: Offsets, snapshot: Snapshot, shares: Mapping[TopicPartition, int]
) -> Offsets:
    """The offsets after a batch. Idle partitions keep their epoch; new ones without records are left out."""
    topics = {}
    for topic, positions in offsets.topics.items():
        before = start.topics.get(topic)
        same_topic = before is not None and before.topic_id == positions.topic_id
        partitions = {}
        for partition, position in positions.partitions.items():
            rows = shares.get(TopicPartition(topic, partition), 0)
            if rows:
                epoch = snapshot[topic].partitions[partition].epoch
                partitions[partition] = Position(offset=position.offset + rows, epoch=epoch)
            elif before is not None and (not same_topic or partition in before.partitions):
                partitions[partition] = position
        if partitions or before is not None:
            topics[topic] = replace(positions, partitions=partitions)
    return replace(offsets, topics=topics)
