# SPDX-License-Identifier: Apache-2.0
"""Why transactions are open in partitions: hanging ones, and what read_committed readers wait for.

A transaction that is open in a partition is ended by its coordinator, unless no coordinator knows it there:
then it hangs, and only a marker written by hand ends it. Requests: transactions.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.brokers import Brokers
from headrace.client.tools.transactions import (
    OpenTransaction,
    PartitionEnds,
    TransactionDescription,
    TransactionFilter,
    by_node,
    check_coordinators,
    describe_transactions,
    hosted_partitions,
    list_transactions,
    open_transactions,
    partition_ends,
    partition_leader,
    partition_leaders,
    with_brokers,
)
from headrace.types import TopicPartition

_UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort")
Verdict = Literal["hanging", "ongoing", "ending"]
"""hanging: no coordinator ends it; ongoing: its producer or its time-out will; ending: markers are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTransaction:
    open: OpenTransaction
    verdict: Verdict
    transaction: TransactionDescription | None
    """What the coordinator says of the producer; None when no coordinator knows the producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWait:
    """How far readers of one partition get, and the transactions that are open in it, the oldest first."""

    ends: PartitionEnds
    transactions: tuple[JudgedTransaction, ...] = ()

    @property
    def partition(self) -> TopicPartition:
        return self.ends.partition

    @property
    def waiting(self) -> int:
        """Offsets that readers of uncommitted records see, and those of committed ones do not."""
        if self.ends.high_watermark is None or self.ends.last_stable is None:
            return 0
        return max(self.ends.high_watermark - self.ends.last_stable, 0)

    @property
    def stands_still(self) -> bool:
        """Whether readers of committed records do not get what there is."""
        return self.waiting > 0 or self.ends.last_stable is None

    @property
    def held_by(self) -> JudgedTransaction | None:
        """The transaction at the last stable offset; readers go on when it has ended."""
        return self.transactions[0] if self.waiting and self.transactions else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingReport:
    hanging: tuple[JudgedTransaction, ...]
    known: tuple[JudgedTransaction, ...]
    """Open for as long, but their coordinators end them."""
    leaderless: tuple[TopicPartition, ...] = ()
    """Not searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Transactions of the whole cluster, and the partitions whose readers wait for one."""

    transactions: tuple[TransactionDescription, ...]
    """Those that are open or being ended."""
    waits: tuple[PartitionWait, ...]
    searched: int
    """Partitions that were asked; first those of the transactions."""
    partitions: int
    left_out: int
    """Transactions that are not described, because there are too many."""


def judge(found: OpenTransaction, transaction: TransactionDescription | None) -> Verdict:
    """As Kafka's find-hanging: a coordinator ends a transaction in the partitions that it lists alone."""
    if transaction is None or found.partition not in transaction.partitions:
        return "hanging"
    return "ongoing" if transaction.state == "Ongoing" else "ending"


def find_hanging(
    cluster: str | Cluster,
    *,
    topic: str | None,
    partition: int | None,
    node_id: int | None,
    older_than_ms: int,
    now_ms: int,
) -> HangingReport:
    """Among transactions whose last record is older than the limit; `node_id`: as that replica knows them."""

    async def ask(brokers: Brokers) -> HangingReport:
        asked, leaderless = await _partitions_to_ask(brokers, topic, partition, node_id)
        opened = await open_transactions(brokers, asked)
        old = [each for each in opened if now_ms - each.last_timestamp_ms > older_than_ms]
        judged = await _judged(brokers, old, asked)
        return HangingReport(
            hanging=tuple(each for each in judged if each.verdict == "hanging"),
            known=tuple(each for each in judged if each.verdict != "hanging"),
            leaderless=tuple(leaderless),
        )

    return with_brokers(cluster, ask)


def explain(cluster: str | Cluster, topic: str) -> list[PartitionWait]:
    """Every partition of a topic; those that hold readers back with the transactions that do."""

    async def ask(brokers: Brokers) -> list[PartitionWait]:
        leaders = await partition_leaders(brokers, topic)
        waits = [PartitionWait(ends=each) for each in await partition_ends(brokers, leaders)]
        asked = by_node({each.partition: leaders[each.partition] for each in waits if each.waiting})
        judged = await _judged(brokers, await open_transactions(brokers, asked), asked)
        return [_with_transactions(wait, judged) for wait in waits]

    return with_brokers(cluster, ask)


def survey(cluster: str | Cluster, *, most_partitions: int, most_transactions: int) -> Survey:
    """What is open anywhere, within limits on what is asked."""

    async def ask(brokers: Brokers) -> Survey:
        listed = await list_transactions(brokers, TransactionFilter(states=_UNFINISHED))
        asked = {each.transactional_id: each.node_id for each in listed[:most_transactions]}
        described = (await describe_transactions(brokers, asked)).values()
        leaders = _led(await brokers.metadata(None))
        first = {each for found in described for each in found.partitions} & leaders.keys()
        chosen = [*sorted(first), *sorted(leaders.keys() - first)][:most_partitions]
        ends = await partition_ends(brokers, {each: leaders[each] for each in chosen})
        waits = [PartitionWait(ends=each) for each in ends]
        held = by_node({each.partition: leaders[each.partition] for each in waits if each.waiting})
        judged = await _judged(brokers, await open_transactions(brokers, held), held)
        return Survey(
            transactions=tuple(described),
            waits=tuple(_with_transactions(each, judged) for each in waits if each.waiting),
            searched=len(chosen),
            partitions=len(leaders),
            left_out=len(listed) - len(asked),
        )

    return with_brokers(cluster, ask)


def _led(metadata: Any) -> dict[TopicPartition, int]:
    """Partitions of ordinary topics that have a leader."""
    return {
        TopicPartition(str(entry.name), int(partition.partition_index)): int(partition.leader_id)
        for entry in metadata.topics
        if not entry.is_internal
        for partition in entry.partitions
        if int(partition.leader_id) >= 0
    }


def _with_transactions(wait: PartitionWait, judged: Sequence[JudgedTransaction]) -> PartitionWait:
    found = tuple(each for each in judged if each.open.partition == wait.partition)
    return PartitionWait(ends=wait.ends, transactions=found)


def find_open(cluster: str | Cluster, partition: TopicPartition) -> list[JudgedTransaction]:
    """The transactions that are open in one partition, the oldest first."""

    async def ask(brokers: Brokers) -> list[JudgedTransaction]:
        asked = {await partition_leader(brokers, partition): [partition]}
        return await _judged(brokers, await open_transactions(brokers, asked), asked)

    return with_brokers(cluster, ask)


async def _partitions_to_ask(
    brokers: Brokers, topic: str | None, partition: int | None, node_id: int | None
) -> tuple[Mapping[int, Sequence[TopicPartition]], list[TopicPartition]]:
    """Partitions by the node to ask, and those that have no leader to ask."""
    if node_id is not None:
        hosted = await hosted_partitions(brokers, node_id, topic)
        chosen = [each for each in hosted if partition in (None, each.partition)]
        if topic is not None and not chosen:
            what = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
            raise ClientError(
                f"node {node_id} has no replica of {what}",
                next_step=f"see which have: headrace topics describe {topic}",
            )
        return {node_id: chosen}, []
    assert topic is not None, "without a node, a topic limits the search"
    if partition is not None:
        where = TopicPartition(topic, partition)
        return {await partition_leader(brokers, where): [where]}, []
    leaders = await partition_leaders(brokers, topic)
    return by_node(leaders), [each for each, leader in leaders.items() if leader < 0]


async def _judged(
    brokers: Brokers, opened: Sequence[OpenTransaction], asked: Mapping[int, Sequence[TopicPartition]]
) -> list[JudgedTransaction]:
    transactions = await _by_producer_id(brokers, {each.producer_id for each in opened})
    judged = []
    for each in opened:
        known = transactions.get(each.producer_id)
        judged.append(JudgedTransaction(open=each, verdict=judge(each, known), transaction=known))
    return await _without_ended(brokers, judged, asked)


async def _by_producer_id(brokers: Brokers, producer_ids: set[int]) -> dict[int, TransactionDescription]:
    """What coordinators say of producers; those that none knows are missing."""
    if not producer_ids:
        return {}
    listed = await list_transactions(brokers, TransactionFilter(producer_ids=sorted(producer_ids)))
    described = await describe_transactions(brokers, {each.transactional_id: each.node_id for each in listed})
    return {
        each.producer_id: described[each.transactional_id]
        for each in listed
        if each.transactional_id in described
    }


async def _without_ended(
    brokers: Brokers, judged: list[JudgedTransaction], asked: Mapping[int, Sequence[TopicPartition]]
) -> list[JudgedTransaction]:
    """Leaves out what seems to hang and has ended between the two questions: its partition is asked again."""
    suspects = {each.open.partition for each in judged if each.verdict == "hanging"}
    if not suspects:
        return judged
    await check_coordinators(brokers)
    again = {node: [each for each in partitions if each in suspects] for node, partitions in asked.items()}
    still = {_identity(each) for each in await open_transactions(brokers, again)}
    return [each for each in judged if each.verdict != "hanging" or _identity(each.open) in still]


def _identity(found: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return found.partition, found.producer_id, found.start_offset
