"""What a transactional id says to its coordinators: who it is, what a transaction touches, how it ends.

Runs on one event loop. Two ways, by the cluster's transaction.version: up to 1 the client names every
partition and group first; from 2 on (KIP-890) brokers do that themselves and every end brings a new epoch.
Read next: coordinator.py, transaction.py (the states), sender.py (the batches).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from headrace.client.arrow.cluster import GROUP, TRANSACTION, Cluster
from headrace.client.arrow.coordinator import Coordinator, GaveUp, Refused
from headrace.client.arrow.encode import NOBODY, Producer
from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
_ABANDON_MS = 10_000
_FEATURE = "transaction.version"
_BROKERS_ENROL_FROM = 2
_NEWEST = {"produce": 13, "commit": 5, "end": 5}
_NEWEST_WHERE_CLIENTS_ENROL = {"produce": 11, "commit": 4, "end": 4}
"""Later versions tell a broker that it has to enrol by itself."""
FENCED = frozenset(
    ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE")
)

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) to the offset of the next record to read."""


class TransactionFenced(ClientError):
    """This writer is no longer the one that its transactional id stands for. Nothing of it was committed."""


class OutcomeUnknown(ClientError):
    """The coordinator did not say in time whether the transaction was committed."""


class TransactionSession:
    """`open`, then any number of: batches through a Sender, `send_offsets`, `end`."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, transaction_timeout_ms: int, timeout_ms: int
    ) -> None:
        if not transactional_id:
            raise ClientError(
                "a transaction needs an id", next_step="give a transactional_id that is not empty"
            )
        self.transactional_id = transactional_id
        self.producer = NOBODY
        self.in_doubt = False
        """Some batch of this transaction may or may not be in a log: its sequence numbers are not known."""
        self._cluster = cluster
        self._transaction_timeout_ms = transaction_timeout_ms
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, TRANSACTION, transactional_id, timeout_ms=timeout_ms)
        self._group_coordinators: dict[str, Coordinator] = {}
        self._brokers_enrol = False
        self._newest = _NEWEST_WHERE_CLIENTS_ENROL
        self._sequences: dict[str, dict[int, int]] = defaultdict(dict)
        self._enrolled: set[tuple[str, int]] = set()
        self._wanted: set[tuple[str, int]] = set()
        self._enrolling: asyncio.Task[None] | None = None
        self._groups: set[str] = set()

    async def open(self) -> None:
        """Ends what a writer of the same id left open, and fences it off."""
        await self._check_served()
        connection = await self._explaining(self._coordinator.find())
        self._brokers_enrol = connection.features.get(_FEATURE, 0) >= _BROKERS_ENROL_FROM
        self._newest = _NEWEST if self._brokers_enrol else _NEWEST_WHERE_CLIENTS_ENROL
        await self._become_producer(NOBODY)

    @property
    def newest_produce(self) -> int:
        return self._newest["produce"]

    def sequences(self, topic: str) -> dict[int, int]:
        """Partition to the next sequence number, for whoever encodes batches to count on."""
        return self._sequences[topic]

    async def enrol(self, topic: str, partition: int) -> None:
        """Makes a partition part of the transaction. Those that come at the same time go in one request."""
        if self._brokers_enrol:
            self._enrolled.add((topic, partition))
        while (topic, partition) not in self._enrolled:
            self._wanted.add((topic, partition))
            if self._enrolling is None or self._enrolling.done():
                self._enrolling = asyncio.create_task(self._enrol_wanted())
            await asyncio.shield(self._enrolling)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """A group's progress, committed with the transaction or not at all."""
        if not offsets:
            return
        if not self._brokers_enrol and group.group not in self._groups:
            await self._call(ADD_OFFSETS, {**self._who(), "group_id": group.group}, _code)
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
            TXN_OFFSET_COMMIT, fields, _worst_commit, coordinator=coordinator, newest=self._newest["commit"]
        )

    async def end(self, *, committed: bool) -> None:
        """Commits or aborts all since the last end. Afterwards the session is ready for the next."""
        if self._enrolled or self._groups:
            reply = await self._end(committed)
            if self._brokers_enrol:
                self._be(Producer(int(reply.producer_id), int(reply.producer_epoch), True))
            elif self.in_doubt:
                await self._become_producer(self.producer)
        self.in_doubt = False
        self._enrolled.clear()
        self._groups.clear()

    async def abandon(self) -> None:
        """Aborts if anybody listens soon; if not, the broker does so when the transaction's time is over."""
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_ABANDON_MS / 1000):
                await self.end(committed=False)

    # -- private -------------------------------------------------------------------------------------------

    async def _check_served(self) -> None:
        connection = await self._cluster.any_connection()
        if END_TXN not in connection.versions:
            raise ClientError(
                f"the broker at {connection.address} serves no transactions",
                next_step="write without transactional_id: other tries then still duplicate nothing",
                code="UNSUPPORTED_VERSION",
            )

    async def _become_producer(self, known: Producer) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": self._transaction_timeout_ms,
            "producer_id": known.producer_id,
            "producer_epoch": known.epoch,
        }
        reply = await self._call(INIT_PRODUCER_ID, fields, _code)
        self._be(Producer(int(reply.producer_id), int(reply.producer_epoch), True))

    def _be(self, producer: Producer) -> None:
        """A new epoch counts from 0; an old one goes on."""
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer

    async def _enrol_wanted(self) -> None:
        await asyncio.sleep(0)  # the other partitions of a slice come in the same moment
        wanted, self._wanted = self._wanted, set()
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(wanted):
            by_topic[topic].append(partition)
        topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
        fields = {f"v3_and_below_{name}": value for name, value in {**self._who(), "topics": topics}.items()}
        await self._call(ADD_PARTITIONS, fields, _worst_enrolment)
        self._enrolled |= wanted

    async def _end(self, committed: bool) -> Any:
        fields = {**self._who(), "committed": committed}
        try:
            return await self._call(END_TXN, fields, _code, newest=self._newest["end"])
        except GaveUp as error:
            if not committed:
                raise
            raise OutcomeUnknown(
                f"whether {self.transactional_id!r} committed its transaction is not known: {error.what}",
                next_step="open the transactional id again: the coordinator settles it first; then look",
                code=error.code,
            ) from error

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
        }

    def _coordinator_of(self, group: str) -> Coordinator:
        if group not in self._group_coordinators:
            self._group_coordinators[group] = Coordinator(
                self._cluster, GROUP, group, timeout_ms=self._timeout_ms
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
        return await self._explaining(target.call(api_key, fields, code_of, newest=newest))

    async def _explaining(self, asking: Awaitable[Any]) -> Any:
        try:
            return await asking
        except Refused as error:
            raise self.explained(error) from error

    def explained(self, error: ClientError) -> ClientError:
        """A coordinator's refusal in words that say what to do; others as they are."""
        if error.code in FENCED:
            return TransactionFenced(
                f"transactional id {self.transactional_id!r} was taken over by another writer, or its "
                f"transaction was open for longer than {self._transaction_timeout_ms} ms and was aborted",
                next_step="nothing of it was committed: open it again and repeat the whole transaction",
                code=error.code,
            )
        if isinstance(error, Refused) and error.code in _NEXT_STEPS:
            return ClientError(error.what, next_step=_NEXT_STEPS[error.code], code=error.code)
        return error


_GROUP_MOVED_ON = "the group moved on without this member: abort, and read on from its committed offsets"
_NEXT_STEPS = {
    "INVALID_TRANSACTION_TIMEOUT": "give less than the broker's transaction.max.timeout.ms",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "ask for WRITE on this transactional id, or use another",
    "UNKNOWN_TOPIC_OR_PARTITION": "name topics and partitions that are there",
    "TRANSACTION_ABORTABLE": "abort it and repeat the whole transaction",
    "ILLEGAL_GENERATION": _GROUP_MOVED_ON,
    "UNKNOWN_MEMBER_ID": _GROUP_MOVED_ON,
    "STALE_MEMBER_EPOCH": _GROUP_MOVED_ON,
    "FENCED_INSTANCE_ID": _GROUP_MOVED_ON,
}


def _code(reply: Any) -> ErrorCode:
    return ErrorCode(int(reply.error_code))


def _worst_enrolment(reply: Any) -> ErrorCode:
    """Partitions beside a refused one are not attempted: it alone says why."""
    codes = {
        ErrorCode(int(each.partition_error_code))
        for topic in reply.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    } - {ErrorCode.none, ErrorCode.operation_not_attempted}
    return _worst(codes)


def _worst_commit(reply: Any) -> ErrorCode:
    return _worst({ErrorCode(int(each.error_code)) for topic in reply.topics for each in topic.partitions})


def _worst(codes: set[ErrorCode]) -> ErrorCode:
    """One that another try does not change, before one that it may."""
    return min(codes - {ErrorCode.none}, key=lambda code: code.retriable, default=ErrorCode.none)
