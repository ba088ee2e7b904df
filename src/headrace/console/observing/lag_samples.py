# SPDX-License-Identifier: Apache-2.0
"""How long groups are behind, from the samples in `__headrace_lag`: one Fetch for all groups.

The topic is compacted; the newest record of a partition counts. What samples mean is client/tools/lag.py's.
"""

from __future__ import annotations

from headrace.client.tools.lag import Sample, TimeBehind, time_behind
from headrace.client.tools.lag_samples import read_samples
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.event_log import EARLIEST, EventLog
from headrace.console.state.folding import find_partition
from headrace.console.state.model import GroupState, Snapshot
from headrace.types import LAG_TOPIC, TopicPartition

_MOST_BYTES = 2 << 20
_MOST_READS = 8
"""In one round; the rest comes in the next ones."""


class LagSampleLog:
    def __init__(self, calls: BrokerCalls) -> None:
        self._log = EventLog(calls, LAG_TOPIC)
        self._offset: int | None = None
        self._samples: dict[TopicPartition, tuple[Sample, ...]] = {}

    async def update(self, snapshot: Snapshot) -> bool:
        """Reads what was written since; whether the cluster keeps samples. Raises ClientError."""
        leader = self._log.leader(snapshot)
        if leader is None:
            return False
        if self._offset is None:
            self._offset = await self._log.offset_at(leader, EARLIEST)
        for _ in range(_MOST_READS):
            records, following = await self._log.read(
                leader, self._offset, wait_ms=0, max_bytes=_MOST_BYTES, lane=""
            )
            if following == self._offset:
                break
            self._offset = following
            for record in records:
                if (entry := read_samples(record.key, record.value)) is not None:
                    self._samples[entry[0]] = entry[1]
            if following >= _end(snapshot, self._log.where):
                break
        self._forget(snapshot)
        return True

    def _forget(self, snapshot: Snapshot) -> None:
        for where in [each for each in self._samples if each.topic not in snapshot.topics]:
            del self._samples[where]

    def behind(self, snapshot: Snapshot, group: GroupState, now_ms: int) -> dict[TopicPartition, TimeBehind]:
        found = {}
        for where, progress in group.progress.items():
            partition = find_partition(snapshot, where)
            if partition is None or partition.end is None or progress.committed is None:
                continue
            samples = self._samples.get(where, ())
            behind = time_behind(samples, progress.committed, partition.end, now_ms)
            if behind is not None:
                found[where] = behind
        return found


def _end(snapshot: Snapshot, where: TopicPartition) -> int:
    partition = find_partition(snapshot, where)
    return (partition.end if partition else None) or 0
