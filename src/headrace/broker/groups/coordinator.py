"""The group coordinator of a node: a driver for each partition of `__consumer_offsets` that it leads.

A group belongs to the partition given by Java's hash of its id, as in Apache Kafka. The topic is created at
the first FindCoordinator. A group gets new cluster metadata before its next step, and all are notified of
deleted topics. Handlers call `submit` or `ask`; nothing here depends on protocol versions.
Read next: coordinators/machine_driver.py, group_log.py, handlers/groups.py, machines/groups/group.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from headrace.acls import Operation, ResourceType
from headrace.broker.controller.controller import Controller
from headrace.broker.coordinators.machine_driver import Answer, Check, MachineDriver, MachineKind
from headrace.broker.coordinators.machine_loading import MachineLoading
from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.broker.groups.group_log import pack_group_record, read_group_record
from headrace.broker.groups.group_settings import group_settings, offsets_topic, own_config
from headrace.broker.groups.topic_patterns import TopicPatterns
from headrace.broker.metrics import GroupCounters
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.security.authorization import Authorization
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, HeadraceError
from headrace.machines.groups.classic.membership import GROUP_TYPE as CLASSIC
from headrace.machines.groups.consumer.events import (
    ConfigChanged,
    MetadataChanged,
    RegexResolved,
    ResolveRegex,
)
from headrace.machines.groups.events import RetentionCheck, TopicsDeleted
from headrace.machines.groups.group import CONSUMER, Group
from headrace.machines.machine import Event, Loaded, Question, ReplyBody, ReplyToken, TimelineEvent
from headrace.types import ClusterView, Node, Topic, TopicId, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.commit_records import OffsetCommitsRecord
from headrace.wire.coordinator.group_records import TransactionMarkerRecord
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
RELOAD_AFTER_S = 1.0
"""Backoff after a failed append or load."""

Driver = MachineDriver[Group]


class GroupCoordinator:
    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        controller: Controller,
        partitions: Partitions,
        counters: GroupCounters,
        authorization: Authorization | None = None,
    ) -> None:
        """`authorization`: of the topics that regular expressions match."""
        self._authorization = authorization
        self.on_timeline: Callable[[str, TimelineEvent], None] | None = None
        self.on_commit: Callable[[str, Sequence[tuple[str, int]]], None] | None = None
        self.on_loaded: Callable[[Group], None] | None = None
        self._world = world
        self._config = config
        self._node_id: int = config["node.id"]
        self._cluster = cluster
        self._controller = controller
        self._partitions = partitions
        self._counters = counters
        self._settings = group_settings(config)
        self._timers = MachineTimers(world.clock, world.tasks)
        self._thread = world.tasks.thread("groups")
        self._patterns = TopicPatterns(world.tasks.thread("patterns"))
        self._drivers: dict[int, Driver] = {}
        self._deleted: dict[str, TopicId] = {}
        self._topics_created_at = cluster.view.version
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = self._stopped = False
        self._kind: MachineKind[Group] = MachineKind(
            make=self._make,
            pack=pack_group_record,
            refresh=self._refresh,
            answer_question=self._answer_question,
            committed=self._committed,
        )

    # Start and stop

    def start(self) -> None:
        """Called when the partitions of the view are open. Loads groups in the background."""
        self._started = True
        self._match_drivers(self._cluster.view)
        self._cluster.subscribe(self.apply_view)

    async def stop(self) -> None:
        """Rejects requests that wait for other members; those that wait for a commit are still answered."""
        self._stopped = True
        self._timers.stop()
        for driver in self._drivers.values():
            driver.reject_waiting(ErrorCode.not_coordinator)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def apply_view(self, old: ClusterView, new: ClusterView) -> None:
        deleted: dict[str, TopicId] = {}
        for name in self._cluster.changed_topics(old, new):
            before, after = old.topics.get(name), new.topics.get(name)
            replaced = before is None or after is None or before.topic_id != after.topic_id
            if after is not None and replaced:
                self._topics_created_at = new.version
            if before is not None and replaced:
                deleted[name] = before.topic_id
            if name == OFFSETS_TOPIC:
                self._match_drivers(new)
        if old.group_configs is not new.group_configs:
            self._configs_changed(old, new)
        if deleted and self._drivers:
            if not self._deleted:
                self._spawn(self._forget_deleted_topics(), "offsets of deleted topics")
            self._deleted.update(deleted)

    def opened_late(self, name: TopicPartition) -> None:
        """A log was opened after the view that brought it: the disk was full, or many were to be opened."""
        if name.topic == OFFSETS_TOPIC and self._started and not self._stopped:
            self._match_drivers(self._cluster.view)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = self._world.tasks.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _match_drivers(self, view: ClusterView) -> None:
        """Starts and ends drivers so that there is one for each partition that this node leads.

        Ending one answers its requests, and a request behind them may call this again before it returns.
        """
        topic = view.topics.get(OFFSETS_TOPIC)
        led: dict[int, Partition] = {}
        for index, state in enumerate(topic.partitions if topic is not None else ()):
            partition = self._partitions.get(OFFSETS_TOPIC, index)
            if state.leader == self._node_id and partition is not None:
                led[index] = partition
        for index, driver in list(self._drivers.items()):
            if driver.partition is not led.get(index) and self._drivers.get(index) is driver:
                del self._drivers[index]
                driver.end()
        for index, partition in led.items():
            if index not in self._drivers:
                self._start_driver(index, partition)

    def _start_driver(self, index: int, partition: Partition) -> None:
        driver = Driver(
            world=self._world,
            partition=partition,
            kind=self._kind,
            timers=self._timers,
            commit_timeout_ms=self._config["offsets.commit.timeout.ms"],
            on_end=lambda: self._driver_ended(index, partition),
        )
        self._drivers[index] = driver
        if partition.log_end_offset == partition.log_start_offset and partition.takes_writes:
            driver.serve()
        else:
            self._spawn(self._load(driver, partition), f"load {partition.topic_partition}")

    async def _load(self, driver: Driver, partition: Partition) -> None:
        loading = MachineLoading[Group](partition.topic_partition, self._make, read_group_record)
        version, began = self._cluster.view.version, self._world.clock.monotonic()
        try:
            await loading.load(partition, self._thread)
        except Exception as error:  # whatever it was: the driver would never end loading
            unforeseen = None if isinstance(error, (OSError, HeadraceError)) else error
            where = partition.topic_partition
            logger.error("%s: loading groups failed, will be retried: %s", where, error, exc_info=unforeseen)
            driver.end()
            return
        await partition.writable()
        driver.set_machines(loading.machines, version, loading.transactions)
        async for name in yielding(driver.names()):
            driver.notify(name, Loaded())
            if self.on_loaded is not None and (group := driver.get(name)) is not None:
                self.on_loaded(group)
        driver.serve()
        seconds = self._world.clock.monotonic() - began
        self._counters.loads.observe(seconds)
        logger.info(
            "%s: loaded %d groups from %d records in %.3f s",
            partition.topic_partition, len(loading.machines), loading.records, seconds,
        )  # fmt: skip

    def _driver_ended(self, index: int, partition: Partition) -> None:
        """Schedules another driver: the cause may have passed."""
        if not self._stopped:
            self._world.tasks.call_later(RELOAD_AFTER_S, self._restart, index, partition)

    def _restart(self, index: int, partition: Partition) -> None:
        driver = self._drivers.get(index)
        if self._stopped or driver is None or not driver.ended or driver.partition is not partition:
            return
        if partition.leads:
            self._start_driver(index, partition)
        else:
            self._driver_ended(index, partition)

    # The topic

    async def ensure_topic(self) -> Topic:
        """Returns `__consumer_offsets`, created when it does not exist."""
        topic = self._cluster.view.topics.get(OFFSETS_TOPIC)
        if topic is None:
            topic = await self._controller.ensure(offsets_topic(OFFSETS_TOPIC, self._config))
        return topic

    def partition_of(self, group_id: str) -> int:
        topic = self._cluster.view.topics.get(OFFSETS_TOPIC)
        count = self._config["offsets.topic.num.partitions"] if topic is None else len(topic.partitions)
        return java_hash(group_id) % int(count)

    def coordinator_of(self, group_id: str) -> Node | None:
        view = self._cluster.view
        topic = view.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        return view.nodes.get(topic.partitions[self.partition_of(group_id)].leader)

    def is_coordinator_of(self, group_id: str) -> bool:
        """By the present view, also while it cannot serve: session uncertain (R7), or log being loaded."""
        node = self.coordinator_of(group_id)
        return node is not None and node.node_id == self._node_id

    def _driver(self, group_id: str) -> Driver | None:
        return self._driver_of(self.partition_of(group_id))

    def _driver_of(self, index: int) -> Driver | None:
        if index not in self._drivers:  # its log may have been opened late, after a full disk
            self._match_drivers(self._cluster.view)
        return self._drivers.get(index)

    # Requests

    def submit(
        self,
        group_id: str,
        make_event: Callable[[ReplyToken], Event],
        answer: Answer,
        *,
        check: Check | None = None,
    ) -> None:
        """`answer` is called exactly once, perhaps before this returns, with the reply or an ApiError.

        `check`: of a transactional commit, whether its producer may write; called in the turn that writes.
        """
        driver = self._driver(group_id)
        if driver is None or self._stopped:
            answer(ApiError(ErrorCode.not_coordinator))
        else:
            driver.submit(group_id, make_event, answer, check=check)

    def end_transaction(
        self, index: int, marker: TransactionMarkerRecord, append: Callable[[], int], answer: Answer
    ) -> None:
        """Writes a marker to a partition of `__consumer_offsets`: pending offsets of its groups are committed
        or dropped there. `append` writes the control batch, returns its offset and raises ApiError."""
        driver = self._driver_of(index)
        if driver is None or self._stopped:
            answer(ApiError(ErrorCode.not_coordinator))
        else:
            driver.end_transaction(marker.producer_id, marker, append, answer)

    async def ask(self, group_id: str, make_event: Callable[[ReplyToken], Event]) -> ReplyBody:
        """As `submit`, for coroutines. Raises ApiError."""
        answered: asyncio.Future[ReplyBody] = asyncio.get_running_loop().create_future()

        def answer(body: ReplyBody | ApiError) -> None:
            if answered.done():  # the caller was cancelled
                return
            if isinstance(body, ApiError):
                answered.set_exception(body)
            else:
                answered.set_result(body)

        self.submit(group_id, make_event, answer)
        return await answered

    async def regex_problem(self, pattern: str) -> str | None:
        """Why the pattern is invalid; None when it is valid."""
        return await self._patterns.problem(pattern)

    # Reading

    async def group(self, group_id: str) -> Group | None:
        """The group with its state committed; None: there is no such group. Raises ApiError."""
        driver = self._driver(group_id)
        await _readable(driver)
        return None if driver is None else driver.get(group_id)

    def peek(self, group_id: str) -> Group | None:
        """The group as it is now, perhaps with uncommitted state."""
        driver = self._drivers.get(self.partition_of(group_id))
        return None if driver is None else driver.get(group_id)

    async def listed(self) -> list[Group]:
        """Every group of this node, with its state committed. Raises ApiError while some are being loaded."""
        groups: list[Group] = []
        for driver in list(self._drivers.values()):
            await _readable(driver)
            groups += driver.machines()
        return groups

    def listed_now(self) -> list[Group] | None:
        """As `listed`; None where that would fail or have to wait for a commit."""
        drivers = list(self._drivers.values())
        if not all(_may_be_read(driver) and driver.all_committed for driver in drivers):
            return None
        return [group for driver in drivers for group in driver.machines()]

    def groups(self) -> Iterable[Group]:
        """All groups as they are now, for metrics."""
        for driver in list(self._drivers.values()):
            yield from driver.machines()

    # Functions for the drivers

    def _make(self, group_id: str) -> Group:
        view = self._cluster.view
        own = view.group_configs.get(group_id)
        settings = self._settings
        if own:
            settings = replace(settings, consumer=own_config(settings.consumer, own))
        return Group(group_id, settings, view)

    def _configs_changed(self, old: ClusterView, new: ClusterView) -> None:
        for group_id in {**old.group_configs, **new.group_configs}:
            own = new.group_configs.get(group_id, {})
            driver = self._drivers.get(self.partition_of(group_id))
            if driver is not None and own != old.group_configs.get(group_id, {}):
                config = own_config(self._settings.consumer, own)
                driver.notify(group_id, ConfigChanged(config=config))

    def _refresh(self) -> tuple[int, Callable[[int], Event]]:
        return self._cluster.view.version, self._metadata_changed

    def _metadata_changed(self, known_version: int) -> Event:
        created = self._topics_created_at > known_version
        return MetadataChanged(view=self._cluster.view, topics_created=created)

    async def _answer_question(self, question: Question) -> Event:
        if not isinstance(question, ResolveRegex):
            raise TypeError(f"unknown question {question!r}")
        view = question.view
        try:
            found = await self._patterns.matching(question.regexes, view)
        except Exception:
            logger.exception("matching regular expressions of group %s failed", question.group_id)
            return RegexResolved(topics=None, version=view.version)
        return RegexResolved(topics=self._visible(question, found), version=view.version)

    def _visible(
        self, question: ResolveRegex, found: Mapping[str, frozenset[str]]
    ) -> Mapping[str, frozenset[str]]:
        """Without the topics that the member must not describe (S20)."""
        if self._authorization is None:
            return found
        peer = f"{question.client_host.removeprefix('/')}:"
        caller = self._authorization.sender(question.principal, peer, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        may = partial(caller.access.allows, Operation.DESCRIBE, ResourceType.TOPIC)
        return {regex: frozenset(filter(may, names)) for regex, names in found.items()}

    def _committed(
        self, group_id: str, records: list[CoordinatorRecord], timeline: list[TimelineEvent]
    ) -> None:
        for record in records:
            if not isinstance(record, OffsetCommitsRecord):
                continue
            where = record.partitions.names
            self._counters.commits += len(where)
            if self.on_commit is not None:
                self.on_commit(group_id, where)
        for line in timeline:
            self._count(line)
            if self.on_timeline is not None:
                self.on_timeline(group_id, line)

    def _count(self, line: TimelineEvent) -> None:
        if line.kind == "rebalance":
            self._counters.rebalances[CLASSIC if "generation" in line.details else CONSUMER] += 1
        elif line.kind == "offsets_expired":
            self._counters.expired += line.details["partitions"]

    # Periodic jobs

    async def check_retention(self) -> None:
        await self._notify_all(RetentionCheck(), may_be_skipped=True)

    async def _forget_deleted_topics(self) -> None:
        await self._world.tasks.sleep(0)  # more may be deleted in the same turn
        while self._deleted:
            deleted, self._deleted = self._deleted, {}
            await self._notify_all(TopicsDeleted(topics=deleted))

    async def _notify_all(self, event: Event, *, may_be_skipped: bool = False) -> None:
        everyone = [(driver, name) for driver in self._drivers.values() for name in driver.names()]
        async for driver, name in yielding(everyone):
            driver.notify(name, event, may_be_skipped=may_be_skipped)


def _may_be_read(driver: Driver) -> bool:
    return driver.serving and not driver.ended and driver.partition.leads


async def _readable(driver: Driver | None) -> None:
    """Waits until the driver's state is committed. Raises ApiError when it does not serve (any more)."""
    if driver is None:
        raise ApiError(ErrorCode.not_coordinator)
    _check_serving(driver)
    if not driver.all_committed:
        committed = asyncio.Event()
        driver.when_all_committed(committed.set)
        await committed.wait()
        _check_serving(driver)


def _check_serving(driver: Driver) -> None:
    if driver.ended or not driver.partition.leads:
        raise ApiError(ErrorCode.not_coordinator)
    if not driver.serving:
        raise ApiError(ErrorCode.coordinator_load_in_progress)


@lru_cache(maxsize=65_536)
def java_hash(text: str) -> int:
    """String.hashCode made positive, as Kafka's Utils.abs does."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value
