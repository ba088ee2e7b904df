"""The group coordinator of a node: a driver for each partition of `__consumer_offsets` that it leads.

A group belongs to the partition that Java's hash of its id names, as in Apache Kafka. The topic is made when
a coordinator is first asked for. What the cluster looks like reaches a group before its next step; the end of
a topic reaches all groups at once. Handlers ask through `submit` or `ask`; nothing here knows versions of the
protocol. Read next: machine_driver.py, group_log.py, handlers/groups.py, machines/group.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.broker.group_log import pack_group_record, read_group_record
from headrace.broker.group_metrics import GroupMetrics
from headrace.broker.group_settings import group_settings, offsets_topic, own_config
from headrace.broker.machine_driver import Answer, MachineDriver, MachineKind
from headrace.broker.machine_loading import MachineLoading
from headrace.broker.machine_timers import MachineTimers
from headrace.broker.partition import Partition
from headrace.broker.topic_patterns import TopicPatterns
from headrace.broker.turns import in_turns
from headrace.errors import ApiError, HeadraceError
from headrace.machines.consumer_events import ConfigChanged, MetadataChanged, RegexResolved, ResolveRegex
from headrace.machines.group import Group
from headrace.machines.group_events import RetentionCheck, TopicsDeleted
from headrace.machines.group_records import OffsetCommitRecord
from headrace.machines.machine import (
    Event,
    Loaded,
    Question,
    Record,
    ReplyBody,
    ReplyToken,
    TimelineEvent,
)
from headrace.machines.repeated_commit import RepeatedCommitRecord
from headrace.types import ClusterView, Node, Topic, TopicId, TopicPartition
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
RELOAD_AFTER_S = 1.0
"""After a failed append or load; a full disk would make it fail again at once."""

Driver = MachineDriver[Group]


class GroupCoordinator:
    def __init__(self, broker: Broker) -> None:
        self.on_timeline: Callable[[str, TimelineEvent], None] | None = None
        self.on_commit: Callable[[str, Sequence[tuple[str, int]]], None] | None = None
        self.on_loaded: Callable[[Group], None] | None = None
        self._world = broker.world
        self._config = broker.config
        self._node_id = broker.node_id
        self._cluster = broker.cluster
        self._controller = broker.controller
        self._partitions = broker.partitions
        self._settings = group_settings(broker.config)
        self._timers = MachineTimers(broker.world.clock, broker.world.tasks)
        self._thread = broker.world.tasks.thread("groups")
        self._patterns = TopicPatterns(broker.world.tasks.thread("patterns"))
        self._drivers: dict[int, Driver] = {}
        self._deleted: dict[str, TopicId] = {}
        self._topics_created_at = broker.cluster.view.version
        self._metrics = broker.metrics.groups = GroupMetrics(self.groups)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._kind: MachineKind[Group] = MachineKind(
            make=self._make,
            pack=pack_group_record,
            refresh=self._refresh,
            find_out=self._find_out,
            committed=self._committed,
        )

    # Life

    def start(self) -> None:
        """The partitions of the present view are open. Loading goes on behind."""
        self._lead(self._cluster.view)
        self._cluster.subscribe(self.follow)
        self._partitions.opened_late = self._opened_late

    async def stop(self) -> None:
        """Who waits for other members is sent away; who waits for the disk still gets its answer."""
        self._stopped = True
        self._timers.stop()
        for driver in self._drivers.values():
            driver.answer_open(ErrorCode.not_coordinator)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def follow(self, old: ClusterView, new: ClusterView) -> None:
        deleted: dict[str, TopicId] = {}
        for name in self._cluster.changed_topics(old, new):
            before, after = old.topics.get(name), new.topics.get(name)
            replaced = before is None or after is None or before.topic_id != after.topic_id
            if after is not None and replaced:
                self._topics_created_at = new.version
            if before is not None and replaced:
                deleted[name] = before.topic_id
            if name == OFFSETS_TOPIC:
                self._lead(new)
        if old.group_configs is not new.group_configs:
            self._configs_changed(old, new)
        if deleted and self._drivers:
            if not self._deleted:
                self._spawn(self._forget_deleted_topics(), "offsets of deleted topics")
            self._deleted.update(deleted)

    def _opened_late(self, name: TopicPartition) -> None:
        if name.topic == OFFSETS_TOPIC and not self._stopped:
            self._lead(self._cluster.view)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = self._world.tasks.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lead(self, view: ClusterView) -> None:
        """Makes the drivers match what this node leads."""
        topic = view.topics.get(OFFSETS_TOPIC)
        led: dict[int, Partition] = {}
        for index, state in enumerate(topic.partitions if topic is not None else ()):
            partition = self._partitions.get(OFFSETS_TOPIC, index)
            if state.leader == self._node_id and partition is not None:
                led[index] = partition
        for index, driver in list(self._drivers.items()):
            if driver.partition is not led.get(index):
                del self._drivers[index]
                driver.end()
        for index, partition in led.items():
            if index not in self._drivers:
                self._begin(index, partition)

    def _begin(self, index: int, partition: Partition) -> None:
        driver = Driver(
            world=self._world,
            partition=partition,
            kind=self._kind,
            timers=self._timers,
            commit_timeout_ms=self._config["offsets.commit.timeout.ms"],
            on_end=lambda: self._ended(index, partition),
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
        except Exception as error:  # whatever it was: else they would be loading for ever
            unforeseen = None if isinstance(error, (OSError, HeadraceError)) else error
            where = partition.topic_partition
            logger.error("the groups of %s cannot be read: %s", where, error, exc_info=unforeseen)
            driver.end()
            return
        await partition.writable()
        driver.take_over(loading.machines, version)
        async for name in in_turns(driver.names()):
            driver.tell(name, Loaded())
            if self.on_loaded is not None and (group := driver.get(name)) is not None:
                self.on_loaded(group)
        driver.serve()
        seconds = self._world.clock.monotonic() - began
        self._metrics.loads.observe(seconds)
        logger.info(
            "%s: %d groups from %d records in %.3f s",
            partition.topic_partition, len(loading.machines), loading.records, seconds,
        )  # fmt: skip

    def _ended(self, index: int, partition: Partition) -> None:
        """Its log may be good again in a moment."""
        if not self._stopped:
            self._world.tasks.call_later(RELOAD_AFTER_S, self._begin_again, index, partition)

    def _begin_again(self, index: int, partition: Partition) -> None:
        driver = self._drivers.get(index)
        if self._stopped or driver is None or not driver.ended or driver.partition is not partition:
            return
        if partition.leads:
            self._begin(index, partition)
        else:
            self._ended(index, partition)

    # The topic

    async def ensure_topic(self) -> Topic:
        """`__consumer_offsets`, made when it is not there."""
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
        """By the present view, also while it cannot answer: its session in doubt, its log being read."""
        node = self.coordinator_of(group_id)
        return node is not None and node.node_id == self._node_id

    def _driver(self, group_id: str) -> Driver | None:
        index = self.partition_of(group_id)
        if index not in self._drivers:  # its log may have been opened late, when there was room again
            self._lead(self._cluster.view)
        return self._drivers.get(index)

    # Asking

    def submit(self, group_id: str, make_event: Callable[[ReplyToken], Event], answer: Answer) -> None:
        """`answer` is called exactly once, perhaps before this returns, with the reply or an ApiError."""
        driver = self._driver(group_id)
        if driver is None or self._stopped:
            answer(ApiError(ErrorCode.not_coordinator))
        else:
            driver.submit(group_id, make_event, answer)

    async def ask(self, group_id: str, make_event: Callable[[ReplyToken], Event]) -> ReplyBody:
        """The same for a coroutine. Raises ApiError."""
        answered: asyncio.Future[ReplyBody] = asyncio.get_running_loop().create_future()

        def answer(body: ReplyBody | ApiError) -> None:
            if answered.done():  # whoever asked is gone
                return
            if isinstance(body, ApiError):
                answered.set_exception(body)
            else:
                answered.set_result(body)

        self.submit(group_id, make_event, answer)
        return await answered

    async def regex_problem(self, pattern: str) -> str | None:
        """Why it is no regular expression; None when it is one."""
        return await self._patterns.problem(pattern)

    # Reading

    async def group(self, group_id: str) -> Group | None:
        """The group as committed; None: there is no such group. Raises ApiError."""
        driver = self._driver(group_id)
        await _readable(driver)
        return None if driver is None else driver.get(group_id)

    def peek(self, group_id: str) -> Group | None:
        """As it is now, committed or not."""
        driver = self._drivers.get(self.partition_of(group_id))
        return None if driver is None else driver.get(group_id)

    async def listed(self) -> list[Group]:
        """Every group of this node, as committed. Raises ApiError while some are being loaded."""
        groups: list[Group] = []
        for driver in list(self._drivers.values()):
            await _readable(driver)
            groups += driver.machines()
        return groups

    def listed_now(self) -> list[Group] | None:
        """As `listed`; None where that would fail or have to wait for what is not committed yet."""
        drivers = list(self._drivers.values())
        if not all(_may_be_read(driver) and driver.settled for driver in drivers):
            return None
        return [group for driver in drivers for group in driver.machines()]

    def groups(self) -> Iterable[Group]:
        """As they are now, for metrics."""
        for driver in list(self._drivers.values()):
            yield from driver.machines()

    # What drivers ask of their surroundings

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
                driver.tell(group_id, ConfigChanged(config=config))

    def _refresh(self) -> tuple[int, Callable[[int], Event]]:
        return self._cluster.view.version, self._metadata_changed

    def _metadata_changed(self, known_version: int) -> Event:
        created = self._topics_created_at > known_version
        return MetadataChanged(view=self._cluster.view, topics_created=created)

    async def _find_out(self, question: Question) -> Event:
        if not isinstance(question, ResolveRegex):
            raise TypeError(f"nobody knows how to answer {question!r}")
        view = question.view
        try:
            found = await self._patterns.matching(question.regexes, view)
        except Exception:
            logger.exception("regular expressions of group %s", question.group_id)
            return RegexResolved(topics=None, version=view.version)
        return RegexResolved(topics=found, version=view.version)

    def _committed(self, group_id: str, records: list[Record], timeline: list[TimelineEvent]) -> None:
        for where in _committed_places(records):
            self._metrics.commits += len(where)
            if self.on_commit is not None:
                self.on_commit(group_id, where)
        for line in timeline:
            self._metrics.told(line)
            if self.on_timeline is not None:
                self.on_timeline(group_id, line)

    # Chores

    async def check_retention(self) -> None:
        await self._tell_all(RetentionCheck())

    async def _forget_deleted_topics(self) -> None:
        await self._world.tasks.sleep(0)  # more may be deleted in the same breath
        while self._deleted:
            deleted, self._deleted = self._deleted, {}
            await self._tell_all(TopicsDeleted(topics=deleted))

    async def _tell_all(self, event: Event) -> None:
        everyone = [(driver, name) for driver in self._drivers.values() for name in driver.names()]
        async for driver, name in in_turns(everyone):
            driver.tell(name, event)


def _may_be_read(driver: Driver) -> bool:
    return driver.serving and not driver.ended and driver.partition.leads


async def _readable(driver: Driver | None) -> None:
    """Waits for what is not committed yet; a term that ends meanwhile knows no group any more."""
    if driver is None:
        raise ApiError(ErrorCode.not_coordinator)
    _check_serving(driver)
    if not driver.settled:
        settled = asyncio.Event()
        driver.when_settled(settled.set)
        await settled.wait()
        _check_serving(driver)


def _check_serving(driver: Driver) -> None:
    if driver.ended or not driver.partition.leads:
        raise ApiError(ErrorCode.not_coordinator)
    if not driver.serving:
        raise ApiError(ErrorCode.coordinator_load_in_progress)


def _committed_places(records: list[Record]) -> Iterator[Sequence[tuple[str, int]]]:
    """(topic, partition) of what was committed."""
    single: list[tuple[str, int]] = []
    for record in records:
        if isinstance(record, RepeatedCommitRecord):
            yield record.places.where
        elif isinstance(record, OffsetCommitRecord) and record.value:
            single.append((record.topic, record.partition))
    if single:
        yield single


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
