# SPDX-License-Identifier: Apache-2.0
"""Exactly-once processing on confluent-kafka: transfers become entries of a ledger, in transactions.

    ledger = Ledger("127.0.0.1:9092", convert)
    while running:
        ledger.step(timeout_s=1)
    ledger.close()

Entries and the offsets of their transfers are committed together. A transaction that fails is aborted and its
transfers are read again. After `MustRestart` a new `Ledger` goes on with what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

Convert = Callable[[bytes], list[tuple[str, str]]]
"""From a transfer to its entries: account and amount. Raises ValueError for what is no transfer."""
_SETTINGS = {"client.id": "ledger", "group.id": "ledger", "auto.offset.reset": "earliest"}
_START_S = 30.0
_COMMITS = 2
_MOST_AT_ONCE = 100


class MustRestart(Exception):
    """Another process has the transactional id, or it is not known whether the transaction was committed."""


class Ledger:
    """Each process gets an `instance` of its own, which stays the same when it is started again."""

    def __init__(
        self,
        bootstrap: str,
        convert: Convert,
        *,
        instance: str = "ledger-1",
        timeout_s: float = 10.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        shared = {"bootstrap.servers": bootstrap, **(settings or {})}
        reading = {"enable.auto.commit": False, "isolation.level": "read_committed"}
        self._convert = convert
        self._timeout_s = timeout_s
        self._producer = Producer({**shared, "client.id": "ledger", "transactional.id": instance})
        self._producer.init_transactions(_START_S)  # ends what an earlier process left open
        self._consumer = Consumer({**_SETTINGS, **reading, **shared})
        self._consumer.subscribe(["transfers"])

    def step(self, timeout_s: float) -> int:
        """Handles the transfers that are there; how many were committed."""
        transfers = self._take(timeout_s)
        if not transfers:
            return 0
        self._producer.begin_transaction()
        try:
            for transfer in transfers:
                self._write_entries(transfer)
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(_positions(transfers), group, self._timeout_s)
            self._commit()
        except KafkaException as error:
            self._undo(error)
            return 0
        return len(transfers)

    def close(self) -> None:
        self._consumer.close()

    def _take(self, timeout_s: float) -> list[Message]:
        """What is there; waits only for the first."""
        found: list[Message] = []
        while (message := self._consumer.poll(0 if found else timeout_s)) is not None:
            if message.error() is None:
                found.append(message)
            if len(found) in (0, _MOST_AT_ONCE):
                break
        return found

    def _write_entries(self, transfer: Message) -> None:
        value = transfer.value() or b""
        try:
            entries = self._convert(value)
        except ValueError as error:
            self._producer.produce("transfers.dead", value, headers={"error": str(error)})
            return
        for account, amount in entries:
            self._producer.produce("entries", key=account, value=amount)

    def _commit(self) -> None:
        for left in reversed(range(_COMMITS)):
            try:
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if left == 0:
                    raise MustRestart(str(error)) from error
            else:
                return

    def _undo(self, error: KafkaException) -> None:
        """Aborts, and goes back to what is committed."""
        if error.args[0].fatal():
            raise MustRestart(str(error)) from error
        self._producer.abort_transaction(self._timeout_s)
        for place in self._consumer.committed(self._consumer.assignment(), self._timeout_s):
            if place.offset < 0:  # nothing was committed yet
                place.offset = OFFSET_BEGINNING
            self._consumer.seek(place)


def _positions(transfers: list[Message]) -> list[TopicPartition]:
    ends = {(message.topic() or "", message.partition() or 0): message.offset() or 0 for message in transfers}
    return [TopicPartition(topic, partition, last + 1) for (topic, partition), last in ends.items()]
