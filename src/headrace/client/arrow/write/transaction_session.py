# SPDX-License-Identifier: Apache-2.0
"""The transaction protocol: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

Runs on one event loop. By the cluster's transaction.version: up to 1 the client adds every partition and
group first; from 2 on (KIP-890) brokers add them implicitly and every EndTxn bumps the producer epoch.
Read next: ../../coordinator.py, transaction.py (the states), sender.py (the batches).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from headrace.client.arrow.write.encode import NOBODY, Producer
from headrace.client.coordinator import Coordinator, CoordinatorError, CoordinatorType, RetriesExhausted
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.network_client import NetworkClient
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
_ABANDON_MS = 10_000
_FEATURE = "transaction.version"
_BROKERS_ADD_PARTITIONS_FROM = 2
_NEWEST = {"produce": 13, "commit": 5, "end": 5}
_NEWEST_WHERE_CLIENTS_ADD = {"produce": 11, "commit": 4, "end": 4}
"""Later versions make the broker add partitions implicitly."""
FENCED = frozenset(
    ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE")
)
_NOTHING_CHANGED = FENCED | {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "TRANSACTION_ABORTABLE",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
"""Answers to EndTxn that the coordinator gives before it writes anything. After the others, and without an
answer, the commit may have been carried out (Apache Kafka answers a failed append as a moved coordinator)."""

Offsets = Mapping[tuple[str, int], int] | Mapping[TopicPartition, int]
"""(topic, partition) to the offset of the next record to read."""


class TransactionFenced(ClientError):
    """A newer producer with the same transactional id fenced this one. Nothing was committed."""


class TransactionsNotServed(ClientError):
    """The broker has no transactions: EndTxn is not among its APIs."""


class OutcomeUnknown(ClientError):
    """Whether the transaction was committed is not known: a commit may have been carried out without a reply.

    `fenced`: a later attempt was refused because another producer uses the transactional id by now.
    """

    @property
    def fenced(self) -> bool:
        return self.code in FENCED


class TransactionSession:
    """`open`, then any number of: batches through a Sender, `send_offsets`, `end`."""

    def __init__(
        self, client: NetworkClient, transactional_id: str, *, transaction_timeout_ms: int, timeout_ms: int
    ) -> None:
        if not transactional_id:
            raise ClientError(
                "a transaction needs an id", next_step="give a transactional_id that is not empty"
            )
        self.transactional_id = transactional_id
        self.producer = NOBODY
        self.outcome_unknown = False
        """A batch may or may not be in the log, so the next sequence numbers are unknown."""
        self._client = client
        self._transaction_timeout_ms = transaction_timeout_ms
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(
            client, CoordinatorType.TRANSACTION, transactional_id, timeout_ms=timeout_ms
        )
        self._group_coordinators: dict[str, Coordinator] = {}
        self._brokers_add_partitions = False
        self._newest = _NEWEST_WHERE_CLIENTS_ADD
        self._sequences: dict[str, dict[int, int]] = defaultdict(dict)
        self._added: set[tuple[str, int]] = set()
        self._wanted: set[tuple[str, int]] = set()
        self._adding: asyncio.Task[None] | None = None
        self._groups: set[str] = set()

    async def open(self) -> None:
        """Aborts an open transaction of an older producer with the same id, and fences that producer."""
        await self._check_served()
        connection = await self._with_next_step(self._coordinator.connect_with_retries())
        self._brokers_add_partitions = connection.features.get(_FEATURE, 0) >= _BROKERS_ADD_PARTITIONS_FROM
        self._newest = _NEWEST if self._brokers_add_partitions else _NEWEST_WHERE_CLIENTS_ADD
        await self._become_producer(NOBODY)

    @property
    def newest_produce(self) -> int:
        return self._newest["produce"]

    def sequences(self, topic: str) -> dict[int, int]:
        """Partition to the next sequence number; whoever encodes batches advances it."""
        return self._sequences[topic]

    async def add_partition(self, topic: str, partition: int) -> None:
        """Adds a partition to the transaction. Concurrent calls share one request."""
        if self._brokers_add_partitions:
            self._added.add((topic, partition))
        while (topic, partition) not in self._added:
            self._wanted.add((topic, partition))
            if self._adding is None or self._adding.done():
                self._adding = asyncio.create_task(self._add_wanted())
            await asyncio.shield(self._adding)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commits a group's offsets as part of the transaction."""
        if not offsets:
            return
        if not self._brokers_add_partitions and group.group not in self._groups:
            await self._call(ApiKey.ADD_OFFSETS_TO_TXN, {**self._who(), "group_id": group.group}, _code)
        self._groups.add(group.group)
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (topic, partition), offset in offsets.items():
            by_topic[topic].append(
                {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            )
        fields = {
            **self._who(),
            "group_id": group.group,
            "generation_id": group.generation,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": [{"name": name, "partitions": entries} for name, entries in by_topic.items()],
        }
        coordinator = self._coordinator_of(group.group)
        await self._call(
            ApiKey.TXN_OFFSET_COMMIT,
            fields,
            _worst_commit,
            coordinator=coordinator,
            newest=self._newest["commit"],
        )

    async def end(self, *, committed: bool) -> None:
        """Commits or aborts the open transaction. Then the session is ready for the next."""
        if self._added or self._groups:
            reply = await self._end(committed)
            if self._brokers_add_partitions:
                self._set_producer(Producer(int(reply.producer_id), int(reply.producer_epoch), True))
            elif self.outcome_unknown:
                await self._become_producer(self.producer)
        self.outcome_unknown = False
        self._added.clear()
        self._groups.clear()

    async def abandon(self) -> None:
        """Aborts if the coordinator answers soon; if not, the broker aborts after the transaction timeout."""
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_ABANDON_MS / 1000):
                await self.end(committed=False)

    # -- private -------------------------------------------------------------------------------------------

    async def _check_served(self) -> None:
        connection = await self._client.any_connection()
        if ApiKey.END_TXN not in connection.versions:
            raise TransactionsNotServed(
                f"the broker at {connection.address} serves no transactions",
                next_step="write without transactional_id: retries still duplicate nothing",
                code="UNSUPPORTED_VERSION",
            )

    async def _become_producer(self, known: Producer) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": self._transaction_timeout_ms,
            "producer_id": known.producer_id,
            "producer_epoch": known.epoch,
        }
        reply = await self._call(ApiKey.INIT_PRODUCER_ID, fields, _code)
        self._set_producer(Producer(int(reply.producer_id), int(reply.producer_epoch), True))

    def _set_producer(self, producer: Producer) -> None:
        """Sequence numbers start at 0 with a new epoch."""
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer

    async def _add_wanted(self) -> None:
        await asyncio.sleep(0)  # collects the other partitions of a slice
        wanted, self._wanted = self._wanted, set()
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(wanted):
            by_topic[topic].append(partition)
        topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
        fields = {f"v3_and_below_{name}": value for name, value in {**self._who(), "topics": topics}.items()}
        await self._call(ApiKey.ADD_PARTITIONS_TO_TXN, fields, _worst_addition)
        self._added |= wanted

    async def _end(self, committed: bool) -> Any:
        fields = {**self._who(), "committed": committed}
        may_be_done = False

        def note(error: ClientError) -> None:
            nonlocal may_be_done
            may_be_done |= error.code not in _NOTHING_CHANGED

        try:
            return await self._coordinator.call_with_retries(
                ApiKey.END_TXN, fields, _code, newest=self._newest["end"], on_failure=note
            )
        except (CoordinatorError, RetriesExhausted) as error:
            if committed and (may_be_done or isinstance(error, RetriesExhausted)):
                raise self._unknown(error) from error
            if isinstance(error, RetriesExhausted):
                raise
            raise self.explained(error) from error

    def _unknown(self, error: ClientError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"whether {self.transactional_id!r} committed its transaction is not known: {error.what}",
            next_step="open the transactional id again: the coordinator completes it first; then check",
            code=error.code,
        )

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
        }

    def _coordinator_of(self, group: str) -> Coordinator:
        if group not in self._group_coordinators:
            self._group_coordinators[group] = Coordinator(
                self._client, CoordinatorType.GROUP, group, timeout_ms=self._timeout_ms
            )
        return self._group_coordinators[group]

    async def _call(
        self,
        api_key: int,
        fields: Mapping[str, Any],
        code_of: Callable[[Any], ErrorCode],
        *,
        coordinator: Coordinator | None = None,
        newest: int | None = None,
    ) -> Any:
        target = coordinator or self._coordinator
        return await self._with_next_step(target.call_with_retries(api_key, fields, code_of, newest=newest))

    async def _with_next_step(self, asking: Awaitable[Any]) -> Any:
        try:
            return await asking
        except CoordinatorError as error:
            raise self.explained(error) from error

    def explained(self, error: ClientError) -> ClientError:
        """A coordinator's error with the next step; other errors unchanged."""
        if error.code in FENCED:
            return TransactionFenced(
                f"transactional id {self.transactional_id!r} was taken over by another writer, or its "
                f"transaction was open for longer than {self._transaction_timeout_ms} ms and was aborted",
                next_step="nothing of it was committed: open it again and repeat the whole transaction",
                code=error.code,
            )
        if isinstance(error, CoordinatorError) and error.code in _NEXT_STEPS:
            return ClientError(error.what, next_step=_NEXT_STEPS[error.code], code=error.code)
        return error


_GROUP_MOVED_ON = "the group removed this member: abort, and continue from the committed offsets"
_NEXT_STEPS = {
    "INVALID_TRANSACTION_TIMEOUT": "give less than the broker's transaction.max.timeout.ms",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "ask for WRITE on this transactional id, or use another",
    "UNKNOWN_TOPIC_OR_PARTITION": "use topics and partitions that exist",
    "TRANSACTION_ABORTABLE": "abort it and repeat the whole transaction",
    "ILLEGAL_GENERATION": _GROUP_MOVED_ON,
    "UNKNOWN_MEMBER_ID": _GROUP_MOVED_ON,
    "STALE_MEMBER_EPOCH": _GROUP_MOVED_ON,
    "FENCED_INSTANCE_ID": _GROUP_MOVED_ON,
}


def _code(reply: Any) -> ErrorCode:
    return ErrorCode(int(reply.error_code))


def _worst_addition(reply: Any) -> ErrorCode:
    """The error of the refused partition; those beside it are only not attempted."""
    codes = {
        ErrorCode(int(each.partition_error_code))
        for topic in reply.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    } - {ErrorCode.none, ErrorCode.operation_not_attempted}
    return _worst(codes)


def _worst_commit(reply: Any) -> ErrorCode:
    return _worst({ErrorCode(int(each.error_code)) for topic in reply.topics for each in topic.partitions})


def _worst(codes: set[ErrorCode]) -> ErrorCode:
    """An error that is not retriable comes before one that is."""
    return min(codes - {ErrorCode.none}, key=lambda code: code.retriable, default=ErrorCode.none)
