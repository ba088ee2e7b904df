# SPDX-License-Identifier: Apache-2.0
"""Unmodified librdkafka clients as a load: producers, a reader and a group, each recording what it did.

Every outcome goes to a History; what it must not hold is history.py's to say. Knows no node and no fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headrace import types
from tests.harness.history import FinalLog, History, Poll, Send

FLUSH_S = 60
_PADDING = b"." * 200
_POLL_S = 0.1
_COMMIT_EVERY_S = 0.5


class Background:
    """A thread that goes on until it is told to stop; what ended it early is raised by `finish`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Without waiting for its end."""
        self._stopping.set()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float) -> None:
        """Less when it is told to stop."""
        self._stopping.wait(seconds)

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for the thread
            self.failure = error

    def _run(self) -> None:
        raise NotImplementedError


class HeavyProducer(Background):
    """Sends unique values to one partition, as fast as it may or with a pause between them."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        partition: types.TopicPartition,
        options: Mapping[str, Any],
        *,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(name)
        self.history = History()
        self.acknowledged_at: list[float] = []
        """By time.monotonic(), in order."""
        self._partition = partition
        self._pause_s = pause_s
        self._ordered = bool(options.get("enable.idempotence"))
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "queue.buffering.max.messages": 5000,
                "message.timeout.ms": FLUSH_S * 1000,
                "reconnect.backoff.max.ms": 200,
                **options,
            }
        )

    def finish(self) -> None:
        super().finish()
        assert self._producer.flush(FLUSH_S) == 0, f"{self.name} could not send all within {FLUSH_S} s"

    def longest_gap_s(self) -> float:
        """Between two acknowledgements."""
        moments = self.acknowledged_at
        return max((after - before for before, after in pairwise(moments)), default=0.0)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value = f"{self.name}-{number}".encode() + _PADDING
            send = Send(
                producer=self.name,
                partition=self._partition,
                value=value,
                durable=True,
                ordered=self._ordered,
            )
            try:
                self._producer.produce(
                    self._partition.topic,
                    value,
                    partition=self._partition.partition,
                    on_delivery=self._delivered(send),
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.history.sent(send)
            number += 1
            self._producer.poll(self._pause_s)

    def _delivered(self, send: Send) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.history.ended(send, "ok", message.offset())
                self.acknowledged_at.append(time.monotonic())

        return note


class SteadyReader(Background):
    """Reads partitions from their beginning by `assign`: it may see nothing twice, and skip nothing."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        topic: str,
        partitions: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.history = History()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
                **(options or {}),
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self.records_read = 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition, records in _by_partition(self._consumer.consume(500, _POLL_S)).items():
                self.history.polled(Poll(reader=self.name, partition=partition, records=records))
                self.records_read += len(records)
        self._consumer.close()


class GroupCommitter(Background):
    """A member of a group that commits what it has read; `committed` is what was acknowledged to it."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(group)
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            **(options or {}),
        }
        self._topic = topic
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.refused = 0

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        next_commit = 0.0
        while not self._stopping.is_set():
            consumer.consume(500, _POLL_S)
            if time.monotonic() >= next_commit:
                self._commit(consumer)
                next_commit = time.monotonic() + _COMMIT_EVERY_S
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self.refused += 1
            return
        self.commits += 1
        for each in done or ():
            if each.error is None and each.offset >= 0:
                self.committed[each.partition] = each.offset

    def use(self, options: Mapping[str, Any]) -> None:
        """For `stored`."""
        self._settings |= options

    def stored(self) -> dict[int, int]:
        """What the group's coordinator answers now."""
        consumer = Consumer(self._settings)
        try:
            asked = [TopicPartition(self._topic, index) for index in self.committed]
            return {each.partition: each.offset for each in consumer.committed(asked, timeout=30)}
        finally:
            consumer.close()


def read_all(
    bootstrap: str,
    partition: types.TopicPartition,
    *,
    timeout_s: float = 60,
    options: Mapping[str, Any] | None = None,
) -> FinalLog:
    """Everything that a reader finds in a partition now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "final", "auto.offset.reset": "error"}
    consumer = Consumer({**settings, **(options or {})})
    records: list[tuple[int, bytes]] = []
    try:
        asked = TopicPartition(partition.topic, partition.partition, 0)
        _, end = consumer.get_watermark_offsets(asked, timeout=timeout_s)
        consumer.assign([asked])
        deadline = time.monotonic() + timeout_s
        while not records or records[-1][0] + 1 < end:
            assert time.monotonic() < deadline, f"{partition} could not be read to {end}, only {len(records)}"
            for found in _by_partition(consumer.consume(1000, _POLL_S)).values():
                records += found
            if end == 0:
                break
    finally:
        consumer.close()
    return FinalLog(records=records)


def _by_partition(messages: list[Message]) -> dict[types.TopicPartition, list[tuple[int, bytes]]]:
    """Errors that librdkafka goes on after by itself are left out; a lost position is not among them."""
    found: dict[types.TopicPartition, list[tuple[int, bytes]]] = {}
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise AssertionError(f"a reader lost its position: {error}")
            continue
        partition = types.TopicPartition(message.topic() or "", message.partition() or 0)
        found.setdefault(partition, []).append((message.offset() or 0, message.value() or b""))
    return found
