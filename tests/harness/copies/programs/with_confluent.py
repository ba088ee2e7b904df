# SPDX-License-Identifier: Apache-2.0
"""Copies a topic with confluent-kafka as a member of a group, one transaction in sixteen aborted on purpose.

Ends where only a new producer helps; copier.py starts it again.
"""

from __future__ import annotations

import random

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.harness.copies.programs.arguments import CopyArguments

_TIMEOUT_S = 30.0
_ABORTED = 16


class Copier:
    def __init__(self, plan: CopyArguments) -> None:
        common = {
            "bootstrap.servers": plan.bootstrap,
            "reconnect.backoff.max.ms": 500,
            # When all brokers are down, a re-bootstrap forgets them, and librdkafka 2.16 then waits for ever
            # for the group's coordinator that it knew: send_offsets_to_transaction does not time out.
            "metadata.recovery.strategy": "none",
        }
        self._target = plan.target
        self._size = int(plan.size)
        self._producer = Producer(
            {
                **common,
                "transactional.id": plan.transactional_id,
                "transaction.timeout.ms": int(plan.timeout_ms),
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": plan.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._producer.init_transactions(_TIMEOUT_S)
        self._consumer.subscribe([plan.source])

    def run(self) -> None:
        while True:
            found = self._consumer.consume(self._size, timeout=0.2)
            records = [message for message in found if message.error() is None]
            if not records:
                continue
            try:
                self._copy(records)
            except KafkaException as error:
                print(f"again: {error}", flush=True)
                if not error.args[0].txn_requires_abort():
                    raise
                self._abort()

    def _copy(self, records: list[Message]) -> None:
        self._producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            topic, partition, offset = record.topic(), record.partition(), record.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self._producer.produce(self._target, record.value(), record.key(), partition=partition)
            ends[topic, partition] = offset + 1
        offsets = [TopicPartition(*place, end) for place, end in ends.items()]
        member = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, member, _TIMEOUT_S)
        if random.randrange(_ABORTED) == 0:
            self._abort()
            return
        self._producer.commit_transaction(_TIMEOUT_S)
        print(f"copied {len(records)}", flush=True)

    def _abort(self) -> None:
        """And back to what was committed."""
        self._producer.abort_transaction(_TIMEOUT_S)
        for place in self._consumer.committed(self._consumer.assignment(), timeout=_TIMEOUT_S):
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            self._consumer.seek(place)


if __name__ == "__main__":
    Copier(CopyArguments.given()).run()
