# SPDX-License-Identifier: Apache-2.0
"""Transactions of any Kafka cluster: what coordinators and partition leaders know of them, and ending them.

Each function makes requests over connections that `with_brokers` opens. What is open for which reason is
decided in transaction_report.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.coordinator import CoordinatorType
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import code_error
from headrace.client.reachable import check_reachable
from headrace.client.retry import Backoff, retry
from headrace.client.tools.brokers import Brokers, active_producers, milliseconds, partitions_of, run
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

COORDINATORS = (ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS)
"""APIs that say who has which transaction."""
MARKERS = (ApiKey.WRITE_TXN_MARKERS,)
"""The API that ends a transaction in a partition."""
_DURATION_FROM, _PATTERN_FROM = 1, 2
"""Versions of ListTransactions that filter by age, and by a pattern."""
_PARTITIONS_PER_REQUEST = 500
"""As Kafka's own tool, which does not want to overwhelm a broker."""
_FENCE_TIMEOUT_MS = 60_000
"""Of the transactional id until its next producer sets its own; no transaction can begin before that."""
_RETRIES_MS = 15_000
_RETRY_MS = 200
_RETRIED = (
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    "NOT_LEADER_OR_FOLLOWER",
    "LEADER_NOT_AVAILABLE",
)
_STATE_TOPIC = "__transaction_state"
_LATEST = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """What is left out matches all."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    id_pattern: str | None = None
    """A regular expression for the whole transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    node_id: int
    """The coordinator: only it lists the transactional id."""
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    node_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """None when no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    """Those of the open transaction; once it is being ended, those whose marker is still missing."""

    @property
    def ends_by_ms(self) -> int | None:
        """When the coordinator aborts it, unless its producer ends it before."""
        if self.state != "Ongoing" or self.start_ms is None:
            return None
        return self.start_ms + self.timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OpenTransaction:
    """A transaction that has no marker yet in one partition, as a replica of the partition knows it."""

    partition: TopicPartition
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the producer's last marker in the partition; -1 before the first."""
    last_timestamp_ms: int
    """Of its last record, as the producer set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMarker:
    """What WriteTxnMarkers needs to end a transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @classmethod
    def of(cls, found: OpenTransaction) -> AbortMarker:
        return cls(
            partition=found.partition,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            coordinator_epoch=found.coordinator_epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedProducer:
    """What the next producer of a transactional id comes after."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """How far readers get; None while the partition has no leader."""

    partition: TopicPartition
    high_watermark: int | None
    last_stable: int | None


def with_brokers(
    cluster: str | Cluster, action: Callable[[Brokers], Awaitable[T]], needs: Sequence[ApiKey] = COORDINATORS
) -> T:
    """Runs an action; again, over new connections, while a coordinator or a leader is moving.

    ClientError when the cluster does not serve what the action needs.
    """
    check_reachable(cluster)

    async def attempt() -> T:
        async with Brokers(cluster) as brokers:
            await _check_served(brokers, needs)
            return await action(brokers)

    backoff = Backoff(_RETRIES_MS, first_ms=_RETRY_MS, max_ms=_RETRY_MS)

    async def attempts() -> T:
        return await retry(attempt, backoff.wait, retriable=lambda error: error.code in _RETRIED)

    return run(attempts())


async def list_transactions(brokers: Brokers, wanted: TransactionFilter) -> list[TransactionListing]:
    """Of every coordinator, sorted by transactional id."""
    found: list[TransactionListing] = []
    for node_id in await brokers.node_ids():
        version = await brokers.version_of(node_id, ApiKey.LIST_TRANSACTIONS)
        reply = await brokers.call_node(node_id, ApiKey.LIST_TRANSACTIONS, _list_fields(wanted, version))
        _check_listing(reply.error_code, wanted, node_id)
        found += [
            TransactionListing(
                transactional_id=str(each.transactional_id),
                node_id=node_id,
                producer_id=int(each.producer_id),
                state=str(each.transaction_state),
            )
            for each in reply.transaction_states
            if version >= _PATTERN_FROM or _matches(str(each.transactional_id), wanted.id_pattern)
        ]
    return sorted(found, key=lambda each: (each.transactional_id, each.node_id))


async def describe_transactions(
    brokers: Brokers, coordinators: Mapping[str, int | None]
) -> dict[str, TransactionDescription]:
    """By transactional id; those that no coordinator knows are missing.

    `coordinators`: node by transactional id, None where that is not known.
    """
    asked: dict[int, list[str]] = defaultdict(list)
    for transactional_id, known in coordinators.items():
        node_id = await _coordinator(brokers, transactional_id) if known is None else known
        asked[node_id].append(transactional_id)
    found = {}
    for node_id, ids in asked.items():
        reply = await brokers.call_node(node_id, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ids})
        for each in reply.transaction_states:
            if int(each.error_code) == ErrorCode.transactional_id_not_found:
                continue
            _check(each.error_code, str(each.transactional_id), "transactional id")
            found[str(each.transactional_id)] = _description(node_id, each)
    return found


async def describe_transaction(brokers: Brokers, transactional_id: str) -> TransactionDescription:
    found = await describe_transactions(brokers, {transactional_id: None})
    if transactional_id not in found:
        raise code_error("TRANSACTIONAL_ID_NOT_FOUND", name=transactional_id, kind="transactional id")
    return found[transactional_id]


async def partition_leaders(brokers: Brokers, topic: str) -> dict[TopicPartition, int]:
    """Node by partition; -1 while a partition has no leader."""
    partitions = partitions_of(topic, await brokers.metadata([topic]))
    return {TopicPartition(topic, int(each.partition_index)): int(each.leader_id) for each in partitions}


async def partition_leader(brokers: Brokers, partition: TopicPartition) -> int:
    leaders = await partition_leaders(brokers, partition.topic)
    if partition not in leaders:
        raise ClientError(
            f"topic {partition.topic!r} has no partition {partition.partition}: it has {len(leaders)}",
            next_step=f"see which: headrace topics describe {partition.topic}",
        )
    if leaders[partition] < 0:
        raise code_error("LEADER_NOT_AVAILABLE", name=partition.topic)
    return leaders[partition]


async def check_coordinators(brokers: Brokers) -> None:
    """ClientError when some transactions have no coordinator now: what no coordinator lists may be theirs."""
    metadata = await brokers.metadata([_STATE_TOPIC])
    for partition in (each for entry in metadata.topics for each in entry.partitions):
        if int(partition.leader_id) < 0:
            raise ClientError(
                f"partition {partition.partition_index} of {_STATE_TOPIC} has no leader: "
                "its transactions have no coordinator",
                next_step=f"see which nodes are missing: headrace topics describe {_STATE_TOPIC}",
                code="COORDINATOR_NOT_AVAILABLE",
            )


async def hosted_partitions(brokers: Brokers, node_id: int, topic: str | None) -> list[TopicPartition]:
    """Partitions with a replica on a node: of one topic, or of all, internal ones too."""
    nodes = await brokers.node_ids()
    if node_id not in nodes:
        raise ClientError(
            f"node {node_id} is not in the cluster now: it has {', '.join(map(str, nodes))}",
            code="BROKER_NOT_AVAILABLE",
        )
    metadata = await brokers.metadata(None if topic is None else [topic])
    if topic is not None:
        partitions_of(topic, metadata)  # raises when there is no such topic
    return [
        TopicPartition(str(entry.name), int(partition.partition_index))
        for entry in metadata.topics
        for partition in entry.partitions
        if node_id in partition.replica_nodes
    ]


async def open_transactions(
    brokers: Brokers, asked: Mapping[int, Sequence[TopicPartition]]
) -> list[OpenTransaction]:
    """Transactions that have no marker yet, by partition and start offset. `asked`: partitions by node."""
    found: list[OpenTransaction] = []
    for node_id, partitions in asked.items():
        for first in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
            fields = _producers_fields(partitions[first : first + _PARTITIONS_PER_REQUEST])
            found += _opened(await brokers.call_node(node_id, ApiKey.DESCRIBE_PRODUCERS, fields))
    return sorted(found)


async def partition_ends(brokers: Brokers, leaders: Mapping[TopicPartition, int]) -> list[PartitionEnds]:
    """High watermarks first: a last stable offset below one of them, asked later, is really held back."""
    high_watermarks = await _latest_offsets(brokers, leaders, _READ_UNCOMMITTED)
    last_stable = await _latest_offsets(brokers, leaders, _READ_COMMITTED)
    return [
        PartitionEnds(
            partition=partition,
            high_watermark=high_watermarks.get(partition),
            last_stable=last_stable.get(partition),
        )
        for partition in sorted(leaders)
    ]


async def write_abort_marker(brokers: Brokers, marker: AbortMarker) -> None:
    """Ends a transaction in one partition, without its coordinator."""
    topic, index = marker.partition
    fields = {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [index]}],
        # Not lower than the last marker's; before the first one, 0 is not above any coordinator's.
        "coordinator_epoch": max(marker.coordinator_epoch, 0),
    }
    node_id = await partition_leader(brokers, marker.partition)
    reply = await brokers.call_node(node_id, ApiKey.WRITE_TXN_MARKERS, {"markers": [fields]})
    answers = [each for entry in reply.markers for found in entry.topics for each in found.partitions]
    if not answers:
        raise ClientError(f"node {node_id} did not say whether it wrote the marker")
    for each in answers:
        _check_marker(each.error_code, marker)


async def fence_producers(brokers: Brokers, transactional_id: str) -> FencedProducer:
    """Takes a new epoch for the id: its producers are refused, and its open transaction is aborted first.

    The coordinator answers CONCURRENT_TRANSACTIONS until all markers are written: `with_brokers` asks again.
    """
    node_id = await _coordinator(brokers, transactional_id)
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": _FENCE_TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    reply = await brokers.call_node(node_id, ApiKey.INIT_PRODUCER_ID, fields)
    _check(reply.error_code, transactional_id, "transactional id")
    return FencedProducer(
        transactional_id=transactional_id,
        producer_id=int(reply.producer_id),
        producer_epoch=int(reply.producer_epoch),
    )


async def _check_served(brokers: Brokers, needs: Sequence[ApiKey]) -> None:
    connection = await brokers.any_connection()
    missing = [key for key in needs if key not in connection.versions]
    if not missing:
        return
    if ApiKey.END_TXN not in connection.versions:
        raise ClientError(
            f"the broker at {connection.address} serves no transactions",
            next_step="on Headrace they are served once every node runs a release that has them, and "
            "headrace.transaction.version is not 0",
            code="UNSUPPORTED_VERSION",
        )
    raise ClientError(
        f"the broker at {connection.address} does not serve {missing[0].name.lower()}",
        next_step="Apache Kafka has it from version 3.0 on",
        code="UNSUPPORTED_VERSION",
    )


def _list_fields(wanted: TransactionFilter, version: int) -> dict[str, Any]:
    if wanted.longer_than_ms is not None and version < _DURATION_FROM:
        raise ClientError(
            "the broker is too old to list transactions by their age: Apache Kafka does from version 3.8 on",
            next_step="list them all: headrace transactions list --state Ongoing",
            code="UNSUPPORTED_VERSION",
        )
    fields: dict[str, Any] = {
        "state_filters": list(wanted.states),
        "producer_id_filters": list(wanted.producer_ids),
        "duration_filter": -1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        "transactional_id_pattern": wanted.id_pattern,
    }
    return fields


def _matches(transactional_id: str, pattern: str | None) -> bool:
    """For brokers that cannot do it."""
    if pattern is None:
        return True
    try:
        return re.fullmatch(pattern, transactional_id) is not None
    except re.error:
        raise _bad_pattern(pattern) from None


def _check_listing(code: Any, wanted: TransactionFilter, node_id: int) -> None:
    if int(code) == ErrorCode.invalid_regular_expression:
        raise _bad_pattern(wanted.id_pattern or "")
    _check(code, f"of node {node_id}", "the coordinator")


def _bad_pattern(pattern: str) -> ClientError:
    return ClientError(
        f"{pattern!r} is not a regular expression",
        next_step="ids that begin with copier: --id 'copier.*'",
        code="INVALID_REGULAR_EXPRESSION",
    )


async def _coordinator(brokers: Brokers, transactional_id: str) -> int:
    fields = {
        "key": transactional_id,
        "key_type": CoordinatorType.TRANSACTION.value,
        "coordinator_keys": [transactional_id],
    }
    reply = await brokers.call_any(ApiKey.FIND_COORDINATOR, fields)
    answer = reply.coordinators[0] if hasattr(reply, "coordinators") else reply
    _check(answer.error_code, transactional_id, "transactional id")
    return int(answer.node_id)


def _description(node_id: int, state: Any) -> TransactionDescription:
    start_ms = milliseconds(state.transaction_start_time)
    return TransactionDescription(
        transactional_id=str(state.transactional_id),
        node_id=node_id,
        state=str(state.transaction_state),
        producer_id=int(state.producer_id),
        producer_epoch=int(state.producer_epoch),
        timeout_ms=round(state.transaction_timeout.total_seconds() * 1000),
        start_ms=start_ms if start_ms >= 0 else None,
        partitions=tuple(
            sorted(
                TopicPartition(str(entry.topic), int(partition))
                for entry in state.topics
                for partition in entry.partitions
            )
        ),
    )


def _producers_fields(partitions: Sequence[TopicPartition]) -> dict[str, Any]:
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        indexes[topic].append(partition)
    return {"topics": [{"name": topic, "partition_indexes": each} for topic, each in indexes.items()]}


def _opened(reply: Any) -> list[OpenTransaction]:
    return [
        OpenTransaction(
            partition=TopicPartition(each.topic, each.partition),
            start_offset=each.transaction_start_offset,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            coordinator_epoch=each.coordinator_epoch,
            last_timestamp_ms=each.last_timestamp_ms,
        )
        for each in active_producers(reply)
        if each.transaction_start_offset is not None
    ]


async def _latest_offsets(
    brokers: Brokers, leaders: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, int]:
    found = {}
    for node_id, partitions in by_node(leaders).items():
        asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for topic, partition in partitions:
            asked[topic].append({"partition_index": partition, "timestamp": _LATEST})
        fields = {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": [{"name": topic, "partitions": each} for topic, each in asked.items()],
        }
        reply = await brokers.call_node(node_id, ApiKey.LIST_OFFSETS, fields)
        for topic, each in ((str(entry.name), each) for entry in reply.topics for each in entry.partitions):
            _check(each.error_code, topic, "topic")
            found[TopicPartition(topic, int(each.partition_index))] = int(each.offset)
    return found


def by_node(leaders: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
    """Partitions by their leader; those without one are left out."""
    found: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, node_id in leaders.items():
        if node_id >= 0:
            found[node_id].append(partition)
    return found


def _check_marker(code: Any, marker: AbortMarker) -> None:
    older = {
        ErrorCode.invalid_producer_epoch: f"producer epoch {marker.producer_epoch}",
        ErrorCode.transaction_coordinator_fenced: f"coordinator epoch {marker.coordinator_epoch}",
    }.get(ErrorCode(int(code)))
    if older is None:
        _check(code, marker.partition.topic, "topic")
        return
    raise ClientError(
        f"{marker.partition}: no marker was written: {older} is not the partition's",
        next_step="see which transaction is open now: "
        f"headrace transactions explain {marker.partition.topic}",
        code=ErrorCode(int(code)).name.upper(),
    )


def _check(code: Any, name: str, kind: str) -> None:
    if int(code) != 0:
        raise code_error(ErrorCode(int(code)).name.upper(), name=name, kind=kind)
