# SPDX-License-Identifier: Apache-2.0
"""One member of a consumer group: confluent-kafka's consumer, used by one thread.

Converts messages to records and errors to ClientError, and commits offsets. Rebalances are handled by the
listener (consumer.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Protocol

from headrace.client.cluster import Cluster, as_cluster
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error
from headrace.client.parallel.record import Record
from headrace.client.reachable import check_reachable
from headrace.client.settings import client_settings
from headrace.types import TopicPartition

GroupProtocol = Literal["cooperative", "eager", "consumer"]
Start = Literal["earliest", "latest"]
Setting = str | int | float | bool

_OURS = {"group.id", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"}
"""Settings that the guarantees of the parallel consumer depend on."""
_PASSING_TROUBLE = {
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    "_WAIT_COORD",
    "_MAX_POLL_EXCEEDED",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_OUT_OF_RANGE",
    "REBALANCE_IN_PROGRESS",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_TOPIC_OR_PART",
}
"""Errors that librdkafka retries itself."""
_COMMIT_AGAIN = {"REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "_WAIT_COORD"}
_COMMIT_ATTEMPTS = 3
_COMMIT_PAUSE_S = 0.1
_SHORT_POLL_S = 0.02
_LEAVE_S = 1.0
_NEXT_STEPS = {
    "INCONSISTENT_GROUP_PROTOCOL": "other members of the group rebalance in another way: try protocol eager, "
    "cooperative or consumer",
}


class Listener(Protocol):
    """Called inside `poll` and `close`."""

    def partitions_assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    def partitions_revoked(self, partitions: Collection[TopicPartition]) -> None: ...
    def partitions_lost(self, partitions: Collection[TopicPartition]) -> None: ...
    def offsets_committed(self, offsets: dict[TopicPartition, int]) -> None: ...
    def trouble(self, text: str) -> None: ...


class GroupMember:
    def __init__(
        self,
        bootstrap: str | Cluster,
        group: str,
        topics: Iterable[str],
        listener: Listener,
        *,
        protocol: GroupProtocol,
        start: Start,
        prefetch_bytes: int,
        settings: Mapping[str, Setting],
    ) -> None:
        check_reachable(bootstrap)
        import confluent_kafka

        self._kafka: Any = confluent_kafka
        self._group = group
        self._listener = listener
        self._incremental = protocol != "eager"
        self._static = "group.instance.id" in settings
        self._committing = False
        self._refusal: str | None = None
        """Why the last commit failed."""
        self.committed: dict[TopicPartition, int] = {}
        self.ended: set[TopicPartition] = set()
        """Assigned partitions that were read to their end."""
        self._client: Any = confluent_kafka.Consumer(
            client_settings(bootstrap)
            | {
                "group.id": group,
                # Names the member, as Java's default does.
                "client.id": as_cluster(bootstrap).client_id or f"consumer-{group}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": start,
                "queued.max.messages.kbytes": min(max(prefetch_bytes // 1024, 1), 2_097_151),
                "on_commit": self._on_commit,
                "error_cb": self._on_error,
            }
            | _protocol_settings(protocol)
            | _checked(settings)
        )
        self._client.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, timeout_s: float) -> Record | None:
        """The next record, or None after the timeout. Calls the listener during rebalances."""
        message = self._client.poll(timeout_s)
        if message is None:
            return None
        partition = TopicPartition(message.topic(), message.partition())
        error = message.error()
        if error is not None:
            self._take_error(error, partition)
            return None
        self.ended.discard(partition)
        kind, timestamp = message.timestamp()
        return Record(
            topic=partition.topic,
            partition=partition.partition,
            offset=message.offset(),
            timestamp_ms=None if kind == self._kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
            append_time=kind == self._kafka.TIMESTAMP_LOG_APPEND_TIME,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._client.pause(self._theirs(dict.fromkeys(partitions, self._kafka.OFFSET_INVALID)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._client.resume(self._theirs(dict.fromkeys(partitions, self._kafka.OFFSET_INVALID)))

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits new offsets without waiting; at most one commit is in flight."""
        news = self._news(positions)
        if not news or self._committing:
            return
        self._refusal = None
        try:
            self._client.commit(offsets=self._theirs(news), asynchronous=True)
            self._committing = True
        except self._kafka.KafkaException as error:
            self._commit_failed(error)

    def commit_now(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits synchronously while a partition is being revoked, when no join is pending.

        A failure is only reported: the records are delivered again.
        """
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            news = self._news(positions)
            if not news:
                return
            try:
                results = self._client.commit(offsets=self._theirs(news), asynchronous=False)
            except self._kafka.KafkaException as error:
                if error.args[0].name() not in _COMMIT_AGAIN or attempt == _COMMIT_ATTEMPTS:
                    self._commit_failed(error)
                    return
                time.sleep(_COMMIT_PAUSE_S)
            else:
                self._take_commit(results)
                return

    def commit_last(self, positions: Callable[[], Mapping[TopicPartition, int]], timeout_s: float) -> None:
        """Before closing. Polls meanwhile: a commit waits behind a join that waits for other members."""
        deadline = time.monotonic() + timeout_s
        self._refusal = None
        while self._news(positions()) and self._refusal in (None, *_COMMIT_AGAIN):
            if time.monotonic() > deadline:
                self._listener.trouble(
                    "timed out committing the last offsets: their records are delivered again"
                )
                return
            self.commit(positions())
            self._client.poll(_SHORT_POLL_S)

    def close(self) -> None:
        """Leaves the group.

        Unsubscribes first: a cooperative member without partitions sends no LeaveGroup when it is closed at
        once, and the others wait for its session timeout. A static member is only closed: it may come back.
        """
        if not self._static:
            self._unsubscribe()
        self._client.close()

    def _unsubscribe(self) -> None:
        self._client.unsubscribe()
        deadline = time.monotonic() + _LEAVE_S
        self._client.poll(_SHORT_POLL_S)
        while self._client.assignment() and time.monotonic() < deadline:
            self._client.poll(_SHORT_POLL_S)

    # -- librdkafka calls ----------------------------------------------------------------------------------

    def _on_assign(self, client: Any, partitions: list[Any]) -> None:
        # Assigned here and not by the library afterwards, so that the listener can already pause them.
        (client.incremental_assign if self._incremental else client.assign)(partitions)
        ours = _ours(partitions)
        self._forget(ours)
        self._listener.partitions_assigned(ours)

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        ours = _ours(partitions)
        self._listener.partitions_revoked(ours)
        self._forget(ours)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        ours = _ours(partitions)
        self._listener.partitions_lost(ours)
        self._forget(ours)

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        self._committing = False
        if error is not None:
            self._commit_failed(error)
        else:
            self._take_commit(partitions)

    def _on_error(self, error: Any) -> None:
        if not error.fatal():  # a fatal one also comes out of poll
            self._listener.trouble(str(error.str()))

    # -- inside --------------------------------------------------------------------------------------------

    def _take_error(self, error: Any, partition: TopicPartition) -> None:
        name = str(error.name())
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            self.ended.add(partition)
        elif name in _PASSING_TROUBLE and not error.fatal():
            self._listener.trouble(str(error.str()))
        else:
            failure = client_error(error, name=self._group, kind="group")
            raise ClientError(
                failure.what, next_step=_NEXT_STEPS.get(name, failure.next_step), code=failure.code
            )

    def _news(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {part: offset for part, offset in positions.items() if self.committed.get(part) != offset}

    def _take_commit(self, results: list[Any]) -> None:
        done = {
            TopicPartition(result.topic, result.partition): result.offset
            for result in results
            if result.error is None and result.offset >= 0
        }
        self.committed |= done
        if done:
            self._listener.offsets_committed(done)
        for result in results:
            if result.error is not None:
                self._commit_failed(result.error)
                break

    def _commit_failed(self, error: Any) -> None:
        failure = client_error(error, name=self._group, kind="group")
        self._refusal = failure.code
        self._listener.trouble(f"offsets could not be committed: {failure.what}")

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.committed.pop(partition, None)
            self.ended.discard(partition)

    def _theirs(self, offsets: Mapping[TopicPartition, int]) -> list[Any]:
        make = self._kafka.TopicPartition
        return [make(topic, index, offset) for (topic, index), offset in offsets.items()]


def _ours(partitions: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]


def _protocol_settings(protocol: GroupProtocol) -> dict[str, Setting]:
    if protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {"partition.assignment.strategy": "cooperative-sticky"} if protocol == "cooperative" else {}


def _checked(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    for key in sorted(_OURS & settings.keys()):
        raise ClientError(f"{key} cannot be set: the parallel consumer depends on it")
    for key in sorted({"group.protocol", "partition.assignment.strategy"} & settings.keys()):
        raise ClientError(f"{key} follows from protocol", next_step="use cooperative, eager or consumer")
    session_ms = settings.get("session.timeout.ms")
    if session_ms is None:
        return dict(settings)
    # librdkafka's default of three seconds is too long for a shorter session.
    return {"heartbeat.interval.ms": max(int(session_ms) // 3, 1), **settings}
