"""The driver's side of a streaming query: where it begins, how far the next micro-batch goes, what it lost.

Lives in the one Python process that Spark keeps for a query's planning. Read next: truth.py, limits.py,
progress.py; stream_reader.py is what Spark sees.
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
from pyspark_headrace import places
from pyspark_headrace.connections import Kept
from pyspark_headrace.limits import share, share_bytes
from pyspark_headrace.offsets import Offsets, Position
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.presence import Presence, asked_to_stop
from pyspark_headrace.progress import GroupProgress
from pyspark_headrace.row_sizes import RowSizes
from pyspark_headrace.survey import Picture, Survey
from pyspark_headrace.truth import Loss, hold_against

_log = logging.getLogger("pyspark_headrace")


class Planner:
    def __init__(self, settings: ReadSettings, connections: Kept) -> None:
        self._settings = settings
        self._survey = Survey(
            connections.cluster,
            settings.selection,
            committed_only=settings.committed_only,
            timeout_ms=settings.timeout_ms,
        )
        self._progress = (
            None if settings.group is None else GroupProgress(connections.cluster, settings.group)
        )
        self._row_sizes = RowSizes(connections.cluster, self._survey)
        self._members_refused = False
        self._presence = Presence()
        self._target: Picture | None = None
        """What was there when a run that stops by itself began."""
        self._latest: Picture = {}
        self._last_batch_s: float | None = None
        self._lost: Counter[str] = Counter()

    async def initial(self) -> Offsets:
        await self._refuse_members()
        picture = await self._survey.picture(all_there=True)
        start = await places.starting(
            self._settings, picture, self._survey, self._committed, query=str(uuid.uuid4())
        )
        return places.held(start, picture, self._settings.on_data_loss)

    async def stop_at_what_is_there(self) -> None:
        """Before anything else of such a run: a wrong address is said at once, and not after all patience."""
        await self._survey.reach()
        self._target = await self._survey.picture(all_there=False)

    async def latest(self, start: Offsets, *, limited: bool) -> Offsets | None:
        """The end of the next micro-batch; None when there is nothing for one, or none is wanted."""
        self._presence.show(start.query)
        await self._refuse_members()
        if self._settings.stop_file is not None and asked_to_stop(self._settings.stop_file):
            await self._tell_group(start)
            return None
        telling = asyncio.create_task(self._tell_group(start))
        try:
            return await self._next(start, limited=limited)
        finally:
            await telling

    def close(self) -> None:
        self._presence.close()

    def report(self) -> dict[str, Any]:
        """For the query's progress: the ends of the logs, and what went wrong so far."""
        ends = {
            topic: {str(number): each.end for number, each in sorted(now.partitions.items())}
            for topic, now in sorted(self._latest.items())
        }
        failed = {} if self._progress is None else {"groupCommitsFailed": self._progress.failures}
        return {"ends": ends, "lost": dict(sorted(self._lost.items())), **failed}

    # -- private -------------------------------------------------------------------------------------------

    async def _refuse_members(self) -> None:
        """When a query starts; members that come later make commits fail, not the query."""
        if self._progress is not None and not self._members_refused:
            await self._progress.refuse_members()
            self._members_refused = True

    async def _committed(self) -> Mapping[TopicPartition, int]:
        assert self._progress is not None
        return await self._progress.committed()

    async def _tell_group(self, start: Offsets) -> None:
        """`start` ends a batch of Spark's commit log, at every trigger and once more after the last batch."""
        if self._progress is not None:
            await self._progress.commit(start)

    async def _next(self, start: Offsets, *, limited: bool) -> Offsets | None:
        picture = await self._survey.picture(all_there=False)
        self._latest = picture
        standing = hold_against(
            start,
            picture,
            selection=self._settings.selection,
            ends_of_epochs=await self._survey.ends_of_epochs(start),
            policy=self._settings.on_data_loss,
        )
        lags = self._lags(standing.offsets, picture)
        if not standing.losses and not self._enough(sum(lags.values()), limited=limited):
            return None
        shares = await self._shares(lags, standing.offsets) if limited else lags
        end = _moved(start, standing.offsets, picture, shares)
        for loss in standing.losses:
            self._count(loss)
        if end == start:
            return None
        self._last_batch_s = time.monotonic()
        return end

    def _lags(self, offsets: Offsets, picture: Picture) -> dict[TopicPartition, int]:
        lags = {}
        for place, position in offsets:
            end = picture[place.topic].partitions[place.partition].end
            if self._target is not None:
                end = min(end, _end_in(self._target, place))
            if end > position.offset:
                lags[place] = end - position.offset
        return lags

    def _enough(self, rows: int, *, limited: bool) -> bool:
        """A run that stops by itself waits for nothing; neither does the first batch of a process."""
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
        _log.warning("%s; the query goes on (onDataLoss=%s)", loss.what, self._settings.on_data_loss)


def _end_in(target: Picture, place: TopicPartition) -> int:
    now = target.get(place.topic)
    if now is None or place.partition not in now.partitions:
        return 0
    return now.partitions[place.partition].end


def _moved(
    start: Offsets, offsets: Offsets, picture: Picture, shares: Mapping[TopicPartition, int]
) -> Offsets:
    """The positions after a batch. What does not move keeps its epoch, and a new partition stays unnamed."""
    topics = {}
    for topic, positions in offsets.topics.items():
        before = start.topics.get(topic)
        same_topic = before is not None and before.topic_id == positions.topic_id
        partitions = {}
        for partition, position in positions.partitions.items():
            rows = shares.get(TopicPartition(topic, partition), 0)
            if rows:
                epoch = picture[topic].partitions[partition].epoch
                partitions[partition] = Position(offset=position.offset + rows, epoch=epoch)
            elif before is not None and (not same_topic or partition in before.partitions):
                partitions[partition] = position
        if partitions or before is not None:
            topics[topic] = replace(positions, partitions=partitions)
    return replace(offsets, topics=topics)
