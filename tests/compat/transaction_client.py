# SPDX-License-Identifier: Apache-2.0
"""Requests of transactional producers, one at a time and in any order, to any broker: the names of its codes.

Knows no retries but those of a client that waits for its coordinator.
Read next: test_jvm_transaction_orders.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.broker.coordinators.coordinated_topic import java_hash
from headrace.machines.transactions.events import Producer
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.live.raw_client import RawClient, simple_batch
from tests.harness.waiting import wait_until

TOPIC = "orders"
OTHER = "others"
PARTITIONS = 3
OFFSETS_PARTITIONS = 4
TIMEOUT_MS = 60_000
INIT_VERSIONS, ADD_VERSIONS, BATCHED_VERSIONS = range(6), range(4), range(4, 6)
ADD_OFFSETS_VERSIONS, END_VERSIONS, COMMIT_VERSIONS = range(5), range(6), range(6)
PRODUCE_VERSIONS = range(7, 13)
"""Without 13, which names topics by id. From 12 on the leader adds the partition."""
MARKER_VERSIONS = range(1, 3)
_NOT_READY = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
    }
)
_GROUP, _TRANSACTION = 0, 1


class Initialized(NamedTuple):
    error: str
    producer: Producer


class Broker:
    """One broker; transactional ids are new for each question."""

    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap, timeout_s=30)
        self._numbers = itertools.count()

    def close(self) -> None:
        self._client.socket.close()

    def create_topics(self) -> None:
        for name in (TOPIC, OTHER):
            self._client.create_topic(name, PARTITIONS)

    def call(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        return self._client.call(key, version, fields)

    # -- what cases begin with -------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A transactional id that nobody has used, with a coordinator that is ready."""
        name = f"id-{next(self._numbers)}"
        self._find(_TRANSACTION, name)
        wait_until(lambda: self.describe(name)[0] != "coordinator_load_in_progress", poll_s=0.05)
        return name

    def new_group(self) -> str:
        name = f"group-{next(self._numbers)}"
        self._find(_GROUP, name)
        return name

    def groups_apart(self) -> tuple[str, str]:
        """Two groups whose offsets are in different partitions."""
        one, other = self.new_group(), self.new_group()
        while java_hash(one) % OFFSETS_PARTITIONS == java_hash(other) % OFFSETS_PARTITIONS:
            other = self.new_group()
        return one, other

    def _find(self, key_type: int, key: str) -> None:
        fields = {"key_type": key_type, "coordinator_keys": [key]}

        def found() -> bool:
            (answer,) = self.call(ApiKey.FIND_COORDINATOR, 4, fields).coordinators
            return answer.error_code is ErrorCode.none

        wait_until(found, f"the coordinator of {key}", poll_s=0.05)

    def producer(self, transactional_id: str) -> Producer:
        """Of a new producer of that id."""
        error, producer = self.init(transactional_id)
        assert error == "none", error
        return producer

    def settle(self, transactional_id: str) -> str:
        """The state in which the id remains when all markers are written."""

        def settled() -> bool:
            return not self.describe(transactional_id)[1].startswith("Prepare")

        wait_until(settled, f"the end of the transaction of {transactional_id}", poll_s=0.02)
        return self.describe(transactional_id)[1]

    def until_aborted(self, transactional_id: str) -> str:
        """The state in which the id remains when the coordinator has ended its transaction by itself."""
        wait_until(
            lambda: self.describe(transactional_id)[1] == "CompleteAbort",
            f"the abort of the transaction of {transactional_id}",
            poll_s=0.05,
        )
        return self.describe(transactional_id)[1]

    # -- requests --------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str | None,
        *,
        version: int = 5,
        timeout_ms: int = TIMEOUT_MS,
        expected: Producer | None = None,
    ) -> Initialized:
        fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms}
        if expected is not None:
            fields |= {"producer_id": expected.producer_id, "producer_epoch": expected.epoch}
        reply = self._patiently(
            lambda: self.call(ApiKey.INIT_PRODUCER_ID, version, fields), lambda reply: [reply.error_code]
        )
        return Initialized(reply.error_code.name, Producer(reply.producer_id, reply.producer_epoch))

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[tuple[str, int]] = ((TOPIC, 0),),
        *,
        version: int = 3,
        verify_only: bool = False,
    ) -> str:
        """Codes in the order of the request's partitions, with blanks between."""
        topics = [{"name": name, "partitions": [index]} for name, index in partitions]
        if version in ADD_VERSIONS:
            fields: dict[str, Any] = {
                "v3_and_below_transactional_id": transactional_id,
                "v3_and_below_producer_id": producer.producer_id,
                "v3_and_below_producer_epoch": producer.epoch,
                "v3_and_below_topics": topics,
            }
        else:
            transaction = {
                "transactional_id": transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "verify_only": verify_only,
                "topics": topics,
            }
            fields = {"transactions": [transaction]}

        def codes(reply: Any) -> dict[tuple[str, int], ErrorCode]:
            if version in ADD_VERSIONS:
                results = reply.results_by_topic_v3_and_below
            else:
                (transaction,) = reply.results_by_transaction
                assert transaction.transactional_id == transactional_id
                results = transaction.topic_results
            return {
                (topic.name, part.partition_index): part.partition_error_code
                for topic in results
                for part in topic.results_by_partition
            }

        reply = self._patiently(
            lambda: self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields),
            lambda reply: codes(reply).values(),
        )
        found = codes(reply)
        return " ".join(found[each].name if each in found else "absent" for each in partitions)

    def add_offsets(self, transactional_id: str, producer: Producer, group: str, *, version: int = 4) -> str:
        fields = {**_of(transactional_id, producer), "group_id": group}
        return self._code(ApiKey.ADD_OFFSETS_TO_TXN, version, fields)

    def end(
        self, transactional_id: str, producer: Producer, *, committed: bool = True, version: int = 4
    ) -> str:
        """With the producer that goes on, as far as it differs, in version 5."""
        fields = {**_of(transactional_id, producer), "committed": committed}
        reply = self._patiently(
            lambda: self.call(ApiKey.END_TXN, version, fields), lambda reply: [reply.error_code]
        )
        name = str(reply.error_code.name)
        if version < 5 or reply.error_code is not ErrorCode.none:
            return name
        same = "same id" if reply.producer_id == producer.producer_id else "another id"
        return f"{name} {same} epoch {reply.producer_epoch}"

    def commit(
        self,
        transactional_id: str,
        producer: Producer,
        group: str,
        *,
        version: int = 3,
        topic: str = TOPIC,
        **member: Any,
    ) -> str:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        fields = {
            **_of(transactional_id, producer),
            "group_id": group,
            **member,
            "topics": [{"name": topic, "partitions": [partition]}],
        }

        def codes(reply: Any) -> list[ErrorCode]:
            return [part.error_code for topic in reply.topics for part in topic.partitions]

        reply = self._patiently(lambda: self.call(ApiKey.TXN_OFFSET_COMMIT, version, fields), codes)
        return " ".join(code.name for code in codes(reply))

    def produce(
        self,
        transactional_id: str | None,
        producer: Producer,
        *,
        version: int = 11,
        partition: int = 0,
        sequence: int = 0,
        is_transactional: bool = True,
    ) -> str:
        batch = simple_batch(
            b"value",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        data = [{"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}]
        fields = {"transactional_id": transactional_id, "acks": -1, "timeout": 30_000, "topic_data": data}

        def codes(reply: Any) -> list[ErrorCode]:
            return [part.error_code for topic in reply.responses for part in topic.partition_responses]

        reply = self._patiently(lambda: self.call(ApiKey.PRODUCE, version, fields), codes)
        return " ".join(code.name for code in codes(reply))

    def write_marker(
        self,
        producer: Producer,
        partitions: Sequence[tuple[str, int]],
        *,
        version: int = 2,
        transaction_version: int = 0,
        coordinator_epoch: int = 0,
    ) -> str:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": [{"name": name, "partition_indexes": [index]} for name, index in partitions],
            "coordinator_epoch": coordinator_epoch,
            **({"transaction_version": transaction_version} if version >= 2 else {}),
        }
        reply = self.call(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]})
        found = {
            (topic.name, part.partition_index): part.error_code.name
            for result in reply.markers
            for topic in result.topics
            for part in topic.partitions
        }
        return " ".join(found.get(each, "absent") for each in partitions)

    def describe(self, transactional_id: str) -> tuple[str, str]:
        """Error and state."""
        fields = {"transactional_ids": [transactional_id]}
        (found,) = self.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, fields).transaction_states
        return found.error_code.name, found.transaction_state

    def listed(self, *, version: int = 2, **filters: Any) -> tuple[str, list[str], set[str]]:
        """Error, unknown states, transactional ids."""
        fields = {"state_filters": [], "producer_id_filters": [], **filters}
        reply = self.call(ApiKey.LIST_TRANSACTIONS, version, fields)
        names = {found.transactional_id for found in reply.transaction_states}
        return reply.error_code.name, sorted(reply.unknown_state_filters), names

    def _code(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> str:
        reply = self._patiently(lambda: self.call(key, version, fields), lambda reply: [reply.error_code])
        return str(reply.error_code.name)

    def _patiently(self, ask: Callable[[], Any], codes: Callable[[Any], Iterable[ErrorCode]]) -> Any:
        """The reply, once it is none of those that a client answers by asking again."""
        replies: list[Any] = []

        def final() -> bool:
            replies[:] = [ask()]
            return _NOT_READY.isdisjoint(codes(replies[0]))

        wait_until(final, "an answer", poll_s=0.02)
        return replies[0]


def _of(transactional_id: str, producer: Producer) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
