# SPDX-License-Identifier: Apache-2.0
"""A stateful stream processor: counts words, as Kafka Streams and Quix Streams do it, on confluent-kafka.

    lines -> (split) -> words, by word -> (count) -> counts, compacted

`counts` is the result and the changelog: a worker that gets a partition of `words` restores its state from
it. A count remembers the place of its last word, so that a word that is delivered again is not counted again.
After a failure the worker starts again with what is stored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

State = dict[str, dict[str, Any]]
"""By word: {"count": 2, "seen": {"0": [17, 3]}}, the last offset and position by partition of `lines`."""
_READING = {"group.id": "word-count", "auto.offset.reset": "earliest", "enable.auto.commit": False}
_MOST_AT_ONCE = 500
_TIMEOUT_S = 10.0


class WordCount:
    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "client.id": "word-count", **(settings or {})}
        self._states: dict[int, State] = {}
        self._failed: list[KafkaError] = []
        self._start()

    def step(self, timeout_s: float) -> bool:
        """Handles what came; whether there was something and all of it is stored."""
        arrived, stored = self._handle(timeout_s)
        if not stored:
            self.close()
            self._start()
        return arrived and stored

    def _handle(self, timeout_s: float) -> tuple[bool, bool]:
        arrived = self._take(timeout_s)
        for message in arrived:
            if message.topic() == "lines":
                self._split(message)
            else:
                self._count(message)
        try:
            stored = self._all_delivered()
            if arrived and stored:
                self._consumer.commit(offsets=_positions(arrived), asynchronous=False)
        except KafkaException:  # another worker has the partitions, or the producer met a fatal error
            stored = False
        return bool(arrived), stored

    def close(self) -> None:
        self._consumer.close()
        self._producer.purge()  # what is not stored is read again
        self._producer.close()

    def _start(self) -> None:
        """With the offsets that are committed and the state that is stored."""
        self._states.clear()
        self._failed.clear()
        self._producer = Producer({**self._settings, "enable.idempotence": True})
        self._consumer = Consumer({**self._settings, **_READING})
        self._consumer.subscribe(
            ["lines", "words"], on_assign=self._forget, on_revoke=self._forget, on_lost=self._forget
        )

    def _take(self, timeout_s: float) -> list[Message]:
        """What is there; waits only for the first."""
        found: list[Message] = []
        while (message := self._consumer.poll(0 if found else timeout_s)) is not None:
            if message.error() is None:
                found.append(message)
            if len(found) in (0, _MOST_AT_ONCE):
                break
        return found

    def _split(self, line: Message) -> None:
        for number, word in enumerate((line.value() or b"").decode(errors="replace").lower().split()):
            place = json.dumps([line.partition(), line.offset(), number])
            self._producer.produce("words", key=word, value=place, on_delivery=self._delivered)

    def _count(self, message: Message) -> None:
        word, partition = (message.key() or b"").decode(), message.partition() or 0
        source, *place = json.loads(message.value() or b"")
        if partition not in self._states:
            self._states[partition] = self._read_changelog(partition)
        before = self._states[partition].get(word, {"count": 0, "seen": {}})
        if place <= before["seen"].get(str(source), []):
            return  # delivered again
        after = {"count": before["count"] + 1, "seen": {**before["seen"], str(source): place}}
        self._states[partition][word] = after
        self._producer.produce(
            "counts", key=word, value=json.dumps(after), partition=partition, on_delivery=self._delivered
        )

    def _all_delivered(self) -> bool:
        """Raises KafkaException after a fatal error, which `flush` may hide behind a SystemError."""
        deadline = time.monotonic() + _TIMEOUT_S
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0.05)
        return len(self._producer) == 0 and not self._failed

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _forget(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """State of partitions that come and go: another worker may have changed it."""
        for place in partitions:
            self._states.pop(place.partition, None)

    def _read_changelog(self, partition: int) -> State:
        state: State = {}
        with Consumer({**self._settings, **_READING, "enable.partition.eof": True}) as reader:
            reader.assign([TopicPartition("counts", partition, 0)])
            while (message := reader.poll(_TIMEOUT_S)) is not None:
                error = message.error()
                if error is None:
                    state[(message.key() or b"").decode()] = json.loads(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return state
        raise TimeoutError(f"partition {partition} of the changelog could not be read")


def _positions(messages: list[Message]) -> list[TopicPartition]:
    ends = {(message.topic() or "", message.partition() or 0): message.offset() or 0 for message in messages}
    return [TopicPartition(topic, partition, last + 1) for (topic, partition), last in ends.items()]
