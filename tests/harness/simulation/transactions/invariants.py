# SPDX-License-Identifier: Apache-2.0
"""Invariants of transactions in a simulated cluster, checked after every step on the node that made it.

On every replica the last stable offset and the aborted transactions are those of a fold of its own log (R28).
A transaction never gets both markers, and a marker that ends one is written only while the decision is a
committed record of the transaction log (R32). The coordinators of groups and transactions are in the state
that a replay of their logs gives (R33). Read next: log_fold.py, tests/harness/transactions/history.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.broker.coordinators.coordinated_topic import CoordinatedTopic
from headrace.broker.coordinators.machine_driver import MachineDriver
from headrace.broker.coordinators.machine_loading import MachineLoading
from headrace.broker.node import Broker
from headrace.broker.partition.partition import Partition
from headrace.testing.simloop import Process, SimLoop
from headrace.types import ClusterView, TopicPartition
from headrace.wire.coordinator.group_records import decode as decode_group_record
from headrace.wire.coordinator.transaction_records import TransactionMetadata, TransactionState
from headrace.wire.coordinator.transaction_records import decode as decode_transaction_record
from headrace.wire.key_values import iter_key_values
from tests.harness.simulation.clients import BrokenPromise
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.transactions.log_fold import Batch, Ending, LogFold, batches_of
from tests.harness.transactions.history import original_of

TRANSACTIONS_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
_PREPARED = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


class _Decisions:
    """What is committed in the transaction log, as any node shows it."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._by_producer: dict[int, TransactionMetadata] = {}

    def follow(self, partition: Partition) -> None:
        name, end = partition.topic_partition, partition.high_watermark
        known = self._ends.get(name, 0)
        if end <= known:
            return
        for _, data in batches_of(partition, known, end):
            for record in transaction_records(data):
                if record.value is not None:
                    self._by_producer[record.value.producer_id] = record.value
        self._ends[name] = end

    def is_prepared(self, producer_id: int) -> bool:
        decided = self._by_producer.get(producer_id)
        return decided is not None and decided.state in _PREPARED

    def check(self, where: str, name: TopicPartition, ending: Ending) -> None:
        header, marker = ending.marker.header, ending.marker.marker
        assert marker is not None
        decided = self._by_producer.get(header.producer_id)
        if (
            decided is None
            or _PREPARED.get(decided.state) is not marker.commits
            or decided.producer_epoch != header.producer_epoch
            or name not in decided.partitions
        ):
            raise BrokenPromise(
                f"{where}: {marker.kind} of producer {header.producer_id}, epoch {header.producer_epoch}, at "
                f"{header.base_offset}, while {decided} is committed (R32)"
            )


class _Replay:
    """The machines of a coordinator, as a load of its log would find them now."""

    def __init__(self, topic: CoordinatedTopic[Any], partition: Any) -> None:
        self._partition = partition
        self._loading = MachineLoading[Any](partition.topic_partition, topic._kind.make, topic._read)
        self._empty = topic._kind.make("").snapshot()
        self.end = partition.log_start_offset

    def compare(self, machines: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Where they differ: live state, and that of the log."""
        end = self._partition.log_end_offset
        for header, data in batches_of(self._partition, self.end, end):
            self._loading._apply_batch(header, memoryview(data))
        self.end = end
        live, replayed = self._snapshots(machines), self._snapshots(self._loading.machines)
        if live == replayed:
            return []
        names = sorted({*live, *replayed})
        return [(live.get(n), replayed.get(n)) for n in names if live.get(n) != replayed.get(n)]

    def _snapshots(self, machines: Mapping[str, Any]) -> dict[str, Any]:
        """A machine without state may be there or not."""
        found = {name: machine.snapshot() for name, machine in machines.items()}
        return {name: snapshot for name, snapshot in found.items() if snapshot != self._empty}


class TransactionInvariants:
    """`output`: the topic whose values name their transactions. `view`: the store's truth."""

    def __init__(
        self, nodes: Sequence[SimNode], loop: SimLoop, view: Callable[[], ClusterView], *, output: str
    ) -> None:
        self._nodes = {node.machine.name: node for node in nodes}
        self._ids = {node: node_id for node_id, node in enumerate(nodes)}
        self._view = view
        self._brokers: dict[Process, Broker] = {}
        """By process, also of a node that stops: it decides until it has handed over its roles."""
        self._loop = loop
        self._output = output
        self._folds: dict[Partition, LogFold] = {}
        self._seen: dict[Partition, tuple[int, int]] = {}
        self._decisions = _Decisions()
        self._ends: dict[int, bool] = {}
        """By number of the transaction: whether it was committed."""
        self._replays: dict[MachineDriver[Any], _Replay] = {}
        self.endings = 0

    def check(self) -> None:
        process = self._loop.stepped
        node = self._nodes.get(process.host) if process is not None else None
        if node is None or process is None:
            return
        broker = node.broker or self._brokers.get(process)
        if broker is None:
            return
        self._brokers[process] = broker
        changed = [partition for partition in broker.partitions.all() if self._has_changed(partition)]
        if not changed:
            return
        for partition in changed:  # also of one that is offline by now: what is committed was decided
            if partition.topic_partition.topic == TRANSACTIONS_TOPIC:
                self._decisions.follow(partition)
        if node.broker is None:
            return
        for partition in changed:
            if partition.online:
                self._check_partition(node, partition)
        self._check_coordinators(node, node.broker)

    def is_prepared(self, producer_id: int) -> bool:
        """Whether the end of its transaction is decided and its markers may be missing."""
        return self._decisions.is_prepared(producer_id)

    def _has_changed(self, partition: Partition) -> bool:
        now = (partition.log.log_end_offset, partition.commits.high_watermark)
        if self._seen.get(partition) == now:
            return False
        self._seen[partition] = now
        return True

    # -- logs ---------------------------------------------------------------------------------------------

    def _check_partition(self, node: SimNode, partition: Partition) -> None:
        fold = self._folds.get(partition)
        is_new = fold is None
        if fold is None:
            fold = self._folds[partition] = LogFold(partition)
        was_cut = partition.log_end_offset < fold.end
        endings = fold.follow()
        where = f"{partition.topic_partition} on {node.machine.name}"
        expected = fold.last_stable_offset()
        if partition.last_stable_offset != expected:
            raise BrokenPromise(
                f"{where}: last stable offset {partition.last_stable_offset} instead of {expected}, high "
                f"watermark {partition.high_watermark}, log end {partition.log_end_offset}"
            )
        if endings or was_cut or is_new:
            self._check_index(where, partition, fold)
        for ending in endings:
            self._check_ending(node, where, partition, ending, is_new=is_new)

    def _check_index(self, where: str, partition: Partition, fold: LogFold) -> None:
        found = partition.log.aborted_transactions(partition.log_start_offset, partition.log_end_offset)
        if found != fold.aborted:
            raise BrokenPromise(f"{where}: aborted transactions {found} instead of {fold.aborted} (R28)")

    def _leads(self, node: SimNode, partition: Partition) -> bool:
        """Not one that was replaced and does not know: what it writes now is truncated (R12)."""
        topic = self._view().topics.get(partition.topic_partition.topic)
        state = None if topic is None else topic.partitions[partition.topic_partition.partition]
        return (
            state is not None
            and state.leader == self._ids[node]
            and state.leader_epoch == partition.leader_epoch
        )

    def _check_ending(
        self, node: SimNode, where: str, partition: Partition, ending: Ending, *, is_new: bool
    ) -> None:
        """Also of markers that are lost again: who wrote them had decided.

        Not of a leader that was replaced and does not know it: it may take a batch of the next transaction
        before the marker of the last one, which the new leader has long written.
        """
        if partition.leads and not self._leads(node, partition):
            return
        if not is_new and partition.leads:
            self._decisions.check(where, partition.topic_partition, ending)
        marker = ending.marker.marker
        assert marker is not None
        self.endings += 1
        for number in self._numbers(partition.topic_partition.topic, ending.batches):
            if self._ends.setdefault(number, marker.commits) is not marker.commits:
                raise BrokenPromise(
                    f"{where}: transaction {number} gets {marker.kind}, and got the other marker before (R32)"
                )

    def _numbers(self, topic: str, batches: Iterable[Batch]) -> Iterator[int]:
        for batch in batches:
            for _, key, value in iter_key_values(memoryview(batch.data)):
                if topic == self._output:
                    yield original_of(value or b"")[1]
                elif topic == OFFSETS_TOPIC and key is not None:
                    record = decode_group_record(key, value, producer_id=batch.header.producer_id)
                    yield int(record.value.metadata)  # type: ignore[union-attr]

    # -- coordinators -------------------------------------------------------------------------------------

    def _check_coordinators(self, node: SimNode, broker: Broker) -> None:
        for topic in (broker.transactions._topic, broker.groups._topic):
            for driver in topic.drivers.values():
                if driver.serving and driver.partition.leads and driver._open is None:
                    self._check_driver(node, topic, driver)

    def _check_driver(self, node: SimNode, topic: CoordinatedTopic[Any], driver: MachineDriver[Any]) -> None:
        replay = self._replays.get(driver)
        if replay is None:
            replay = self._replays[driver] = _Replay(topic, driver.partition)
        if replay.end == driver.partition.log_end_offset:
            return
        different = replay.compare({name: entry.machine for name, entry in driver._entries.items()})
        if different:
            raise BrokenPromise(
                f"{topic.name} on {node.machine.name}: live state and that of the log: {different} (R33)"
            )


def transaction_records(data: bytes) -> Iterator[Any]:
    for _, key, value in iter_key_values(memoryview(data)):
        record = None if key is None else decode_transaction_record(key, value)
        if record is not None:
            yield record
