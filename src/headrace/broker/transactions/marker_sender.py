# SPDX-License-Identifier: Apache-2.0
"""Sends the markers of decided transactions to the leaders of their partitions.

Partitions that this node leads are written at once, without a socket. Markers for another node are batched:
those of one turn of the event loop, and all that come while MOST_IN_FLIGHT requests are not answered, go in
one WriteTxnMarkers. The leader is looked up at each send. Every partition is answered exactly once; what is
to be retried, and when, is the machine's decision (machines/transactions/markers.py), which is told when
another leader was elected meanwhile. A node that left the cluster is waited for no longer.
Read next: marker_writer.py, awaited_leaders.py, coordinator.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

from headrace.broker.network.yielding import yielding
from headrace.broker.replication.peers import PeerLost, PeerTimedOut
from headrace.broker.transactions.awaited_leaders import AwaitedLeaders, OnElected
from headrace.broker.transactions.marker_writer import Marker, MarkerCodes, OnWritten
from headrace.errors import HeadraceError
from headrace.machines.transactions.events import LeaderElected, MarkerOutcome, MarkersAnswered, SendMarkers
from headrace.machines.transactions.markers import outcome_of
from headrace.types import ClusterView, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock, Tasks

logger = logging.getLogger(__name__)

PURPOSE = "markers"
"""Of the connection: a marker waits for its replicas, and no other request may wait behind it."""
REQUEST_TIMEOUT_MS = 15_000
"""Longer than the leader waits for its replicas (ACK_TIMEOUT_S of marker_writer.py)."""
MOST_PARTITIONS = 10_000
"""Of one request: a receiver bounds what it reads (wire/request_bounds.py)."""
MOST_IN_FLIGHT = 2
"""Requests to one node. More markers per request cost both nodes less than more requests."""
LONGEST_WAIT_S = 0.02
"""Then a request is sent in any case: those before may wait for a replica of their partitions."""

OnAnswer = Callable[[MarkersAnswered], None]
Tell = Callable[[MarkersAnswered | LeaderElected], None]


class ClusterSource(Protocol):
    @property
    def view(self) -> ClusterView: ...

    async def catch_up(self) -> None:
        """Wait until the view includes everything committed so far by any process."""


class PeerRequests(Protocol):
    async def request(
        self,
        node_id: int,
        api_key: int,
        version: int | None,
        body: Mapping[str, Any],
        timeout_ms: int,
        *,
        purpose: str,
    ) -> Any: ...

    def drop(self, node_id: int, purpose: str) -> None: ...


class LocalMarkers(Protocol):
    def write(self, marker: Marker, partitions: Iterable[TopicPartition], answer: OnWritten) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    """A marker for partitions of one node, until the end of the turn."""

    marker: Marker
    partitions: tuple[TopicPartition, ...]
    answer: OnWritten


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unknown:
    """Partitions that this node's view does not have."""

    number: int
    partitions: tuple[TopicPartition, ...]
    answer: OnAnswer


class MarkerSender:
    def __init__(
        self,
        *,
        node_id: int,
        cluster: ClusterSource,
        peers: PeerRequests,
        writer: LocalMarkers,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._peers = peers
        self._writer = writer
        self._tasks = tasks
        self._queues: dict[int, list[_Queued]] = {}
        self._in_flight: Counter[int] = Counter()
        self._awaited = AwaitedLeaders(clock)
        self._unknown: list[_Unknown] = []
        self._looking_up = False
        self._running: set[asyncio.Task[None]] = set()
        self._stopped = False

    def send(self, command: SendMarkers, coordinator_epoch: int, tell: Tell) -> None:
        """`tell` is called in any turn, also before this returns. Its answers cover each partition once; for
        one that is to be retried a LeaderElected may follow."""
        marker = Marker(
            producer_id=command.producer.producer_id,
            producer_epoch=command.producer.epoch,
            committed=command.committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=command.transaction_version,
        )
        number = command.number
        self._awaited.remove(command.partitions, marker.producer_id)
        answer = partial(self._answer, marker.producer_id, tell)
        answer_codes = partial(_answer_codes, number, answer)
        for leader, partitions in self._by_leader(command.partitions).items():
            if leader is None:
                self._check_deleted(_Unknown(number=number, partitions=partitions, answer=answer))
            elif leader == self._node_id:
                self._writer.write(marker, partitions, answer_codes)
            elif leader not in self._cluster.view.nodes:
                answer(retry(number, partitions))
            else:
                for start in range(0, len(partitions), MOST_PARTITIONS):
                    part = partitions[start : start + MOST_PARTITIONS]
                    self._queue(leader, _Queued(marker=marker, partitions=part, answer=answer_codes))

    def _answer(self, producer_id: int, tell: Tell, answered: MarkersAnswered) -> None:
        for name, outcome in answered.outcomes:
            if outcome is MarkerOutcome.RETRY:
                self._awaited.add(name, producer_id, answered.number, tell)
        tell(answered)

    def apply_view(self, old: ClusterView, new: ClusterView) -> None:
        for node_id in self._in_flight:
            if node_id in old.nodes and node_id not in new.nodes:
                self._peers.drop(node_id, PURPOSE)  # it may hang, and others lead its partitions now
        elected = self._awaited.take_elected(old, new)
        if elected:
            self._spawn(_tell_all(elected), "markers for new leaders")

    async def stop(self) -> None:
        """Requests under way are not answered any more; the next coordinator sends the markers again."""
        self._stopped = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int | None, tuple[TopicPartition, ...]]:
        """By node id, or NO_NODE; None: for partitions that the view does not have. Sorted, so that equal
        transactions are written in the same order everywhere."""
        view = self._cluster.view
        found: dict[int | None, list[TopicPartition]] = {}
        for name in sorted(partitions):
            found.setdefault(_leader_of(view, name), []).append(name)
        return {leader: tuple(names) for leader, names in found.items()}

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        if self._stopped:
            coroutine.close()
            return
        task = self._tasks.spawn(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # Other nodes

    def _queue(self, node_id: int, queued: _Queued) -> None:
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = []
            if self._in_flight[node_id] < MOST_IN_FLIGHT:
                self._tasks.call_soon(self._send_queue, node_id)
            else:
                self._tasks.call_later(LONGEST_WAIT_S, self._send_queue, node_id)
        queue.append(queued)

    def _send_queue(self, node_id: int) -> None:
        queue = self._queues.pop(node_id, None)
        if queue is not None:
            taken, later = _fitting(queue)
            if later:
                self._queues[node_id] = later  # sent when this request is answered
            self._in_flight[node_id] += 1
            self._spawn(self._request(node_id, taken), f"markers for node {node_id}")

    async def _request(self, node_id: int, queue: list[_Queued]) -> None:
        body = {"markers": [_fields(each) for each in queue]}
        codes: dict[tuple[int, str, int], ErrorCode] = {}
        try:
            reply = await self._peers.request(
                node_id, ApiKey.WRITE_TXN_MARKERS, None, body, REQUEST_TIMEOUT_MS, purpose=PURPOSE
            )
            codes = _codes_of(reply)
        except PeerLost as error:
            logger.info("transaction markers will be sent again: %s", error)
            if isinstance(error, PeerTimedOut):  # replies come in order: this one would delay the next
                self._peers.drop(node_id, PURPOSE)
        except Exception:  # whatever it was: a marker without an answer would never be sent again
            logger.exception("transaction markers for node %d will be sent again", node_id)
        self._in_flight[node_id] -= 1
        self._send_queue(node_id)
        for each in queue:
            producer_id = each.marker.producer_id
            each.answer({
                name: codes.get((producer_id, *name), ErrorCode.network_exception) for name in each.partitions
            })  # fmt: skip

    # Deleted topics

    def _check_deleted(self, unknown: _Unknown) -> None:
        self._unknown.append(unknown)
        if not self._looking_up:
            self._looking_up = True
            self._spawn(self._look_up_unknown(), "unknown partitions of transactions")

    async def _look_up_unknown(self) -> None:
        """A partition is deleted when the newest view does not have it: one from before the topic was created
        does not have it either, and its transaction would never end there."""
        while self._unknown:
            unknown, self._unknown = self._unknown, []
            view = await self._newest_view()
            for each in unknown:
                each.answer(_outcomes_in(view, each))
        self._looking_up = False

    async def _newest_view(self) -> ClusterView | None:
        """None: the store did not answer."""
        try:
            await self._cluster.catch_up()
        except (HeadraceError, OSError) as error:
            logger.warning("cannot tell whether partitions of a transaction were deleted: %s", error)
            return None
        except Exception:  # whatever it was: the markers would never be sent again
            logger.exception("cannot tell whether partitions of a transaction were deleted")
            return None
        return self._cluster.view


async def _tell_all(elected: list[tuple[OnElected, LeaderElected]]) -> None:
    async for tell, event in yielding(elected):
        tell(event)


def retry(number: int, partitions: Iterable[TopicPartition]) -> MarkersAnswered:
    return MarkersAnswered(number=number, outcomes=[(name, MarkerOutcome.RETRY) for name in partitions])


def _answer_codes(number: int, answer: OnAnswer, codes: MarkerCodes) -> None:
    outcomes = [(name, outcome_of(code)) for name, code in codes.items()]
    answer(MarkersAnswered(number=number, outcomes=outcomes))


def _leader_of(view: ClusterView, name: TopicPartition) -> int | None:
    topic = view.topics.get(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return None
    return topic.partitions[name.partition].leader


def _outcomes_in(view: ClusterView | None, unknown: _Unknown) -> MarkersAnswered:
    def outcome(name: TopicPartition) -> MarkerOutcome:
        deleted = view is not None and _leader_of(view, name) is None
        return MarkerOutcome.PARTITION_DELETED if deleted else MarkerOutcome.RETRY

    return MarkersAnswered(
        number=unknown.number, outcomes=[(name, outcome(name)) for name in unknown.partitions]
    )


def _fitting(queue: list[_Queued]) -> tuple[list[_Queued], list[_Queued]]:
    """What fits into one request, and the rest."""
    partitions = 0
    for place, each in enumerate(queue):
        partitions += len(each.partitions)
        if partitions > MOST_PARTITIONS and place:
            return queue[:place], queue[place:]
    return queue, []


def _fields(queued: _Queued) -> dict[str, Any]:
    marker = queued.marker
    by_topic = groupby(queued.partitions, key=itemgetter(0))
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.committed,
        "topics": [
            {"name": topic, "partition_indexes": [index for _, index in names]} for topic, names in by_topic
        ],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }


def _codes_of(reply: Any) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for marker in reply.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
