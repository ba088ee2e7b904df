# SPDX-License-Identifier: Apache-2.0
"""The transaction coordinator of a node: transactional ids are machines on the partitions of
`__transaction_state` that it leads.

The topic is created when a producer first asks for its coordinator. Handlers call `submit` or `ask`; nothing
here depends on API versions. The epoch of a coordinator is the leader epoch of its partition: a partition
refuses markers of an older one. Read next: coordinators/coordinated_topic.py, transaction_log.py,
marker_sender.py, machines/transactions/transactional_id.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.broker.controller.controller import Controller
from headrace.broker.coordinators.coordinated_topic import CoordinatedTopic
from headrace.broker.coordinators.machine_driver import Answer, MachineKind
from headrace.broker.coordinators.machine_sums import Measures
from headrace.broker.metrics import TransactionCounters
from headrace.broker.partition.registry import Partitions
from headrace.broker.transactions.marker_sender import MarkerSender, retry
from headrace.broker.transactions.transaction_log import pack_transaction_record, read_transaction_record
from headrace.broker.transactions.transaction_settings import transaction_settings, transactions_topic
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.transaction_version import why_no_transactions
from headrace.errors import ApiError, HeadraceError
from headrace.machines.machine import Command, Event, Question, ReplyBody, ReplyToken, TimelineEvent
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    AllocateProducerId,
    ExpirationCheck,
    ProducerIdAllocated,
    SendMarkers,
)
from headrace.machines.transactions.transactional_id import TransactionalId
from headrace.types import ClusterView, Node, Topic, TopicPartition
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.coordinator.transaction_records import TransactionState
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
_NO_TOKEN = ReplyToken(-1)
COMMIT_TIMEOUT_MS = 5_000
"""Of a reply that waits for its records to be committed."""
_EMPTY = "The transactional id is empty."
_PENDING_MARKERS = "pending markers"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """Of the transactional ids that a node coordinates, for metrics."""

    by_state: Mapping[str, int]
    """How many there are; states that none is in are left out."""
    pending_markers: int
    """Of decided transactions: not known to be written."""


class TransactionCoordinator:
    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        controller: Controller,
        partitions: Partitions,
        markers: MarkerSender,
        counters: TransactionCounters,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._markers = markers
        self._counters = counters
        self._settings = transaction_settings(config)
        self._topic = CoordinatedTopic[TransactionalId](
            topic=transactions_topic(TRANSACTIONS_TOPIC, config),
            kind=self._kind(),
            read=read_transaction_record,
            plural="transactional ids",
            world=world,
            node_id=config["node.id"],
            cluster=cluster,
            controller=controller,
            partitions=partitions,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            loads=counters.loads,
        )

    def _kind(self) -> MachineKind[TransactionalId]:
        return MachineKind(
            make=self._make,
            pack=pack_transaction_record,
            answer_question=self._answer_question,
            committed=self._committed,
            start_command=self._start_command,
            acts_when_loaded=lambda machine: not machine.is_idle,
            measure=_measure,
        )

    # Start and stop

    def start(self) -> None:
        """Called when the partitions of the view are open. Loads transactional ids in the background."""
        self._topic.start()
        self._cluster.subscribe(self._apply_view)

    async def stop(self) -> None:
        """Requests that wait for a commit are still answered."""
        await self._topic.stop()
        await self._markers.stop()

    def _apply_view(self, old: ClusterView, new: ClusterView) -> None:
        if TRANSACTIONS_TOPIC in self._cluster.changed_topics(old, new):
            self._topic.match_drivers(new)
        self._markers.apply_view(old, new)

    def opened_late(self, name: TopicPartition) -> None:
        """A log was opened after the view that brought it: the disk was full, or many were to be opened."""
        self._topic.opened_late(name)

    # The topic

    async def ensure_topic(self) -> Topic:
        """Returns `__transaction_state`, created when it does not exist. Raises ApiError."""
        if not self._cluster.view.transaction_version:
            raise self._not_served()
        return await self._topic.ensure()

    def partition_of(self, transactional_id: str) -> int:
        return self._topic.partition_of(transactional_id)

    def coordinator_of(self, transactional_id: str) -> Node | None:
        return self._topic.coordinator_of(transactional_id)

    def is_coordinator_of(self, transactional_id: str) -> bool:
        """By the present view, also while it cannot serve: session uncertain (R7), or log being loaded."""
        return self._topic.is_coordinator_of(transactional_id)

    # Requests

    def submit(
        self, transactional_id: str, make_event: Callable[[ReplyToken], Event], answer: Answer
    ) -> None:
        """`answer` is called exactly once, perhaps before this returns, with the reply or an ApiError.

        Open transactions can always be ended; nothing is added to them while some node does not serve any.
        """
        held = not self._cluster.view.transaction_version
        if not transactional_id:
            answer(ApiError(ErrorCode.invalid_request, _EMPTY))
        elif held and isinstance(make_event(_NO_TOKEN), AddPartitionsToTxn):
            answer(self._not_served())
        else:
            self._topic.submit(transactional_id, make_event, answer)

    def _not_served(self) -> ApiError:
        return ApiError(ErrorCode.coordinator_not_available, why_no_transactions(self._cluster.view))

    async def ask(self, transactional_id: str, make_event: Callable[[ReplyToken], Event]) -> ReplyBody:
        """As `submit`, for coroutines. Raises ApiError."""
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request, _EMPTY)
        return await self._topic.ask(transactional_id, make_event)

    # Reading

    async def transactional_id(self, name: str) -> TransactionalId | None:
        """The transactional id with its state committed; None: there is none. Raises ApiError."""
        if not name:
            raise ApiError(ErrorCode.invalid_request, _EMPTY)
        return await self._topic.machine(name)

    async def listed(self) -> list[TransactionalId]:
        """Every transactional id of this node, with its state committed. Raises ApiError while some are being
        loaded."""
        return await self._topic.listed()

    def figures(self) -> TransactionFigures:
        """As they are now, without a visit to every transactional id."""
        sums = self._topic.sums()
        labels = (state.label for state in TransactionState)
        return TransactionFigures(
            by_state={label: sums[label] for label in labels if sums[label]},
            pending_markers=sums[_PENDING_MARKERS],
        )

    # Functions for the drivers

    def _make(self, transactional_id: str) -> TransactionalId:
        return TransactionalId(transactional_id, self._settings)

    async def _answer_question(self, question: Question) -> Event:
        if not isinstance(question, AllocateProducerId):
            raise TypeError(f"unknown question {question!r}")
        try:
            (producer_id,) = await self._cluster.allocate_producer_ids(1)
        except HeadraceError as error:
            logger.warning("no producer id could be allocated: %s", error)
            return ProducerIdAllocated(error=ErrorCode.coordinator_load_in_progress)  # clients retry it
        return ProducerIdAllocated(producer_id=producer_id)

    def _start_command(self, name: str, command: Command, tell: Callable[[Event], None]) -> None:
        if not isinstance(command, SendMarkers):
            raise TypeError(f"unknown command {command!r}")
        partition = self._partitions.get(TRANSACTIONS_TOPIC, self.partition_of(name))
        if partition is not None and partition.leads:
            self._markers.send(command, partition.leader_epoch, tell)
        else:  # the leader epoch may be that of another coordinator already
            tell(retry(command.number, command.partitions))

    def _committed(
        self, transactional_id: str, records: list[CoordinatorRecord], timeline: list[TimelineEvent]
    ) -> None:
        for line in timeline:
            self._count(transactional_id, line)

    def _count(self, transactional_id: str, line: TimelineEvent) -> None:
        details = line.details
        match line.kind:
            case "prepared":
                self._counters.ended(details["cause"], commits=details["state"] == _PREPARED_COMMIT)
                if details["cause"] == "timed out":
                    logger.info("the transaction of %r timed out and is aborted", transactional_id)
            case "completed" if details["state"] == _COMMITTED:
                self._counters.committed_in(details["milliseconds"])
            case "markers refused":
                logger.warning(
                    "%d markers of %r were refused: another coordinator has taken over",
                    details["missing"], transactional_id,
                )  # fmt: skip
            case "expired":
                self._counters.expired += 1

    # Periodic jobs

    async def check_expiration(self) -> None:
        await self._topic.notify_all(ExpirationCheck(), may_be_skipped=True)


_PREPARED_COMMIT = TransactionState.PREPARE_COMMIT.label
_COMMITTED = TransactionState.COMPLETE_COMMIT.label


def _measure(machine: TransactionalId) -> Measures:
    metadata = machine.metadata
    if metadata is None:
        return ()
    state = metadata.state
    if state is TransactionState.PREPARE_COMMIT or state is TransactionState.PREPARE_ABORT:
        return (*_ONE_IN[state], (_PENDING_MARKERS, machine.pending_markers))
    return _ONE_IN[state]


_ONE_IN: tuple[Measures, ...] = tuple(((state.label, 1),) for state in TransactionState)
"""By the number of the state, since hashing an Enum takes longer than all the rest."""
