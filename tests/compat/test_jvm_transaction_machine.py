# SPDX-License-Identifier: Apache-2.0
"""The machine of a transactional id against Apache Kafka's coordinator: the same requests, the same replies.

CONCURRENT_TRANSACTIONS is asked again in both until it ends; after each request both describe the same state.
Left out: what takes time (timeouts have unit tests), and clients of both versions with one id, where we
differ on purpose: Kafka ends a leftover transaction by the version of the cluster, and gives a producer that
an older client fenced the epoch of that client (machines/transactions/ends.py).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.machines.transactions.events import Producer, ProducerReply
from headrace.machines.transactions.listing import describe
from headrace.machines.transactions.versions import (
    BEFORE_KIP_890,
    KIP_890,
    error_for,
    version_of_add_partitions,
    version_of_end,
)
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.decoder import Budget, message_decoder
from headrace.wire.kio_codec.encoder import message_encoder
from headrace.wire.primitives import skip_tagged_fields, string
from tests.harness.live.raw_client import RawClient
from tests.harness.transactions.coordinator import ID, START, TIMEOUT_MS, Coordinator
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

DESCRIBE_TRANSACTIONS = 65
NAMES = {
    ApiKey.INIT_PRODUCER_ID: ("init_producer_id", 2),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("add_partitions_to_txn", 3),
    ApiKey.END_TXN: ("end_txn", 3),
    ApiKey.FIND_COORDINATOR: ("find_coordinator", 3),
    DESCRIBE_TRANSACTIONS: ("describe_transactions", 0),
}
"""With the first version whose headers have tagged fields."""
STEPS = 60
NOBODY = Producer(999_999, 5)
NOT_READY = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class Kafka:
    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap, timeout_s=30)

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        return self.ask_often(key, version, fields, 1)

    def ask_often(self, key: int, version: int, fields: Mapping[str, Any], times: int) -> Any:
        """The same request, one after the other without waiting in between; the last reply."""
        name, flexible_from = NAMES[key]
        flexible = version >= flexible_from
        frame = bytearray(struct.pack(">ihhi", 0, key, version, 1) + string("client"))
        frame += b"\0" if flexible else b""
        message_encoder(name, version, "request")(frame, fields)
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        self._client.send(bytes(frame) * times)
        replies = [self._client.receive() for _ in range(times)]
        body = memoryview(replies[-1] or b"")
        position = skip_tagged_fields(body, 4, len(body)) if flexible else 4
        return message_decoder(name, version, "response")(body, position, len(body), Budget(len(body)))[0]

    def close(self) -> None:
        self._client.socket.close()


class Pair:
    """One transactional id in both."""

    def __init__(self, kafka: Kafka, name: str, coordinator: Coordinator | None = None) -> None:
        self.coordinator = Coordinator() if coordinator is None else coordinator
        self.told: list[str] = []
        self._kafka, self._name = kafka, name
        self._ids: dict[int, int] = {}
        """Kafka's producer id for each of ours."""

    @classmethod
    def at_epoch(cls, kafka: Kafka, name: str, epoch: int) -> Pair:
        """Both have raised the epoch so often."""
        metadata = TransactionMetadata(
            7,
            epoch,
            TIMEOUT_MS,
            TransactionState.EMPTY,
            frozenset(),
            START.wall_ms,
            previous_producer_id=7,
        )
        pair = cls(kafka, name, Coordinator(history=[TransactionRecord(ID, metadata)]))
        fields = {"transactional_id": name, "transaction_timeout": TIMEOUT_MS}
        left = epoch + 1
        while left:
            times = min(left, 100)
            reply = kafka.ask_often(ApiKey.INIT_PRODUCER_ID, 1, fields, times)
            left -= times
        assert reply.producer_epoch == epoch
        pair._ids[7] = reply.producer_id
        return pair

    def _theirs(self, producer: Producer) -> tuple[int, int]:
        return self._ids.get(producer.producer_id, producer.producer_id), producer.epoch

    def init(
        self, expected: Producer | None = None, *, timeout_ms: int = TIMEOUT_MS, version: int = 5
    ) -> ProducerReply:
        producer_id, epoch = (-1, -1) if expected is None else self._theirs(expected)
        fields = {
            "transactional_id": self._name,
            "transaction_timeout": timeout_ms,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        key = ApiKey.INIT_PRODUCER_ID
        ours = self._ours(lambda: self.coordinator.init(expected=expected, timeout_ms=timeout_ms))
        theirs = self._until_settled(
            lambda: self._kafka.ask(key, version, fields), lambda reply: reply.error_code
        )
        self._learn(ours, theirs)
        answer = (theirs.error_code.name, theirs.producer_id, theirs.producer_epoch)
        error = error_for(key, version, ours.error)
        self._agree(f"init {expected} v{version}", answer, (error.name, *self._theirs(ours.producer)))
        return ours

    def _learn(self, ours: ProducerReply, theirs: Any) -> None:
        if ours.error is ErrorCode.none is theirs.error_code:
            self._ids.setdefault(ours.producer.producer_id, theirs.producer_id)

    def end(self, producer: Producer, committed: bool, version: int) -> ProducerReply:
        producer_id, epoch = self._theirs(producer)
        fields = {
            "transactional_id": self._name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": committed,
        }
        key, ours_version = ApiKey.END_TXN, version_of_end(version)
        ours = self._ours(lambda: self.coordinator.end(producer, committed=committed, version=ours_version))
        theirs = self._until_settled(
            lambda: self._kafka.ask(key, version, fields), lambda reply: reply.error_code
        )
        answer = [theirs.error_code.name]
        expected = [error_for(key, version, ours.error).name]
        if version >= 5:
            self._learn(ours, theirs)
            answer += [theirs.producer_id, theirs.producer_epoch]
            expected += self._theirs(ours.producer)
        self._agree(f"end {producer} commit={committed} v{version}", answer, expected)
        return ours

    def add(self, producer: Producer, partitions: list[int], version: int) -> None:
        names = [f"t-{partition}" for partition in partitions]
        key, ours_version = ApiKey.ADD_PARTITIONS_TO_TXN, version_of_add_partitions(version)
        error = self._ours_error(lambda: self.coordinator.add(producer, *names, version=ours_version))
        theirs = self._add_in_kafka(producer, partitions, version, verify_only=False)
        expected = [error_for(key, version, error).name] * len(partitions)
        self._agree(f"add {producer} {names} v{version}", theirs, expected)

    def verify(self, producer: Producer, partitions: list[int], version: int) -> None:
        names = [f"t-{partition}" for partition in partitions]
        errors = self.coordinator.verify(producer, *names)
        theirs = self._add_in_kafka(producer, partitions, version, verify_only=True)
        self._agree(f"verify {producer} {names} v{version}", theirs, [error.name for error in errors])

    def _add_in_kafka(
        self, producer: Producer, partitions: list[int], version: int, *, verify_only: bool
    ) -> list[str]:
        producer_id, epoch = self._theirs(producer)
        topics = [{"name": "t", "partitions": partitions}]
        if version < 4:
            fields: dict[str, Any] = {
                "v3_and_below_transactional_id": self._name,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": topics,
            }
        else:
            transaction = {
                "transactional_id": self._name,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "verify_only": verify_only,
                "topics": topics,
            }
            fields = {"transactions": [transaction]}

        def ask() -> dict[int, ErrorCode]:
            reply = self._kafka.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)
            found = (
                reply.results_by_topic_v3_and_below
                if version < 4
                else reply.results_by_transaction[0].topic_results
            )
            return {each.partition_index: each.partition_error_code for each in found[0].results_by_partition}

        errors = self._until_settled(ask, lambda found: next(iter(found.values())))
        return [errors[partition].name for partition in partitions]

    def _ours(self, ask: Callable[[], ProducerReply]) -> ProducerReply:
        reply = ask()
        while reply.error is ErrorCode.concurrent_transactions:
            self.coordinator.write_markers()
            reply = ask()
        self.coordinator.write_markers()
        return reply

    def _ours_error(self, ask: Callable[[], ErrorCode]) -> ErrorCode:
        return self._ours(lambda: ProducerReply(error=ask())).error

    def _until_settled(self, ask: Callable[[], Any], error_of: Callable[[Any], ErrorCode]) -> Any:
        replies = []

        def settled() -> bool:
            replies.append(ask())
            return error_of(replies[-1]) is not ErrorCode.concurrent_transactions

        wait_until(settled, "an answer that is not CONCURRENT_TRANSACTIONS", timeout_s=30, poll_s=0.01)
        return replies[-1]

    def _agree(self, what: str, theirs: object, ours: object) -> None:
        self.told.append(f"{what} -> {theirs}")
        assert ours == theirs, "\n".join(self.told)
        self._compare_descriptions()

    def _compare_descriptions(self) -> None:
        ours = describe(self.coordinator.machine)
        expected: tuple[Any, ...] = ("transactional_id_not_found",)
        if ours is not None:
            producer = self._theirs(Producer(ours.producer_id, ours.producer_epoch))
            partitions = {partition for _, partition in ours.partitions}
            expected = ("none", ours.state, *producer, partitions, ours.start_timestamp == -1)
        found: list[tuple[Any, ...]] = []

        def is_same() -> bool:
            """Kafka writes its markers after the reply."""
            fields = {"transactional_ids": [self._name]}
            (theirs,) = self._kafka.ask(DESCRIBE_TRANSACTIONS, 0, fields).transaction_states
            if theirs.error_code is not ErrorCode.none:
                found.append((theirs.error_code.name,))
            else:
                partitions = {partition for topic in theirs.topics for partition in topic.partitions}
                found.append(
                    (
                        "none",
                        theirs.transaction_state,
                        theirs.producer_id,
                        theirs.producer_epoch,
                        partitions,
                        theirs.transaction_start_time.timestamp() < 0,
                    )
                )
            return found[-1] == expected

        try:
            wait_until(is_same, "the same description", timeout_s=5, poll_s=0.01)
        except AssertionError as problem:
            raise AssertionError("\n".join([*self.told, f"{found[-1]} is not {expected}"])) from problem


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    settings = {
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with kafka_engine.start(tmp_path_factory.mktemp("kafka"), settings) as node:
        with RawClient(node.bootstrap, timeout_s=30) as client:
            client.create_topic("t", 3)
        kafka = Kafka(node.bootstrap)
        _make_ready(kafka)
        yield kafka
        kafka.close()


def _make_ready(kafka: Kafka) -> None:
    def is_ready() -> bool:
        ready = True
        for name in ("a", "b"):  # one in each partition of the log
            kafka.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [name]})
            fields = {"transactional_ids": [name]}
            (state,) = kafka.ask(DESCRIBE_TRANSACTIONS, 0, fields).transaction_states
            ready = ready and state.error_code not in NOT_READY
        probe = {"transactional_id": "a", "transaction_timeout": TIMEOUT_MS}
        return ready and kafka.ask(ApiKey.INIT_PRODUCER_ID, 1, probe).error_code is ErrorCode.none

    wait_until(is_ready, "a transaction coordinator", timeout_s=60, poll_s=0.2)


@pytest.mark.parametrize("end_version", [0, 1, 2, 4, 5])
def test_bad_input_is_refused_with_the_same_codes(kafka: Kafka, end_version: int) -> None:
    pair = Pair(kafka, f"bad-input-{end_version}")
    add_version = {0: 0, 1: 1, 2: 2, 4: 3, 5: 5}[end_version]
    for timeout_ms in (0, -1, 900_001):
        pair.init(timeout_ms=timeout_ms)
    pair.end(NOBODY, True, end_version)
    pair.add(NOBODY, [0], add_version)
    pair.verify(NOBODY, [0, 1], 4)
    producer = pair.init().producer
    later = Producer(producer.producer_id, producer.epoch + 1)
    for committed in (True, False):
        for who in (NOBODY, later):
            pair.end(who, committed, end_version)
    pair.end(producer, True, end_version)
    for who in (NOBODY, later):
        pair.add(who, [0], add_version)
        pair.verify(who, [0], 5)
    pair.verify(producer, [0], 5)
    for version in (3, 4, 5):
        for who in (NOBODY, later):
            pair.init(who, version=version)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_ends_are_repeated_and_contradicted_alike(kafka: Kafka, committed: bool, version: int) -> None:
    pair = Pair(kafka, f"repeated-{version}-{committed}")
    producer = pair.init().producer
    for _ in range(2):
        pair.add(producer, [0, 2], 3 if version == 4 else 5)
        reply = pair.end(producer, committed, version)
        pair.end(producer, committed, version)
        pair.end(producer, not committed, version)
        producer = reply.producer if version == 5 else producer
    pair.end(producer, True, version)
    pair.end(producer, False, version)


@pytest.mark.parametrize("seed", range(4))
def test_epochs_that_are_used_up_bring_the_same_new_producers(kafka: Kafka, seed: int) -> None:
    """Only with KIP-890: our leftovers of older clients keep their producer id until InitProducerId."""
    pair = Pair.at_epoch(kafka, f"used-up-{seed}", 32_763)
    history = _History(pair, random.Random(seed), KIP_890)
    history.seen.append(Producer(7, 32_763))
    history.run()
    assert pair.coordinator.metadata.producer_id != 7


@pytest.mark.parametrize("version", [BEFORE_KIP_890, KIP_890])
@pytest.mark.parametrize("seed", range(6))
def test_arbitrary_histories_are_answered_alike(kafka: Kafka, version: int, seed: int) -> None:
    _History(Pair(kafka, f"history-{version}-{seed}"), random.Random(seed), version).run()


class _History:
    def __init__(self, pair: Pair, chance: random.Random, version: int) -> None:
        self._pair, self._chance = pair, chance
        self._kip_890 = version == KIP_890
        self.seen = [NOBODY]

    def run(self) -> None:
        actions = {self._init: 2.0, self._go_on: 1.0, self._add: 5.0, self._verify: 2.0, self._end: 5.0}
        for _ in range(STEPS):
            (action,) = self._chance.choices(list(actions), list(actions.values()))
            action()

    def _someone(self) -> Producer:
        """Mostly the newest producer, else one of those before."""
        return self.seen[-1] if self._chance.random() < 0.7 else self._chance.choice(self.seen[-4:])

    def _partitions(self) -> list[int]:
        return sorted(self._chance.sample(range(3), self._chance.randint(1, 2)))

    def _learn(self, reply: ProducerReply) -> None:
        if reply.error is ErrorCode.none and reply.producer.producer_id != -1:
            self.seen.append(reply.producer)

    def _init(self) -> None:
        self._learn(self._pair.init(version=self._chance.randint(3, 5)))

    def _go_on(self) -> None:
        self._learn(self._pair.init(self._someone(), version=self._chance.randint(3, 5)))

    def _add(self) -> None:
        version = 5 if self._kip_890 else self._chance.randint(0, 3)
        self._pair.add(self._someone(), self._partitions(), version)

    def _verify(self) -> None:
        self._pair.verify(self._someone(), self._partitions(), self._chance.choice([4, 5]))

    def _end(self) -> None:
        version = 5 if self._kip_890 else self._chance.randint(0, 4)
        self._learn(self._pair.end(self._someone(), self._chance.random() < 0.5, version))
