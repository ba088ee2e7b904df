# SPDX-License-Identifier: Apache-2.0
"""A topic whose partitions hold the state of coordinators: a driver for each partition that this node leads.

What groups and transactions have in common. A name (group, transactional id) belongs to the partition given
by Java's hash of it, as in Apache Kafka; the leader of that partition coordinates it. The topic is created
when it is needed. Drivers are started, loaded, ended and replaced here. Independent of what machines decide.
Read next: machine_driver.py, machine_loading.py, groups/coordinator.py, transactions/coordinator.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import lru_cache
from typing import Any, Generic, TypeVar

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.coordinators.load_summary import LoadSummary
from headrace.broker.coordinators.machine_driver import (
    Answer,
    Check,
    DrivenMachine,
    MachineDriver,
    MachineKind,
)
from headrace.broker.coordinators.machine_loading import MachineLoading, ReadRecord
from headrace.broker.coordinators.machine_sums import MachineSums
from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.broker.metrics import Histogram
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, HeadraceError, NewerFormatError
from headrace.machines.machine import Event, Loaded, ReplyBody, ReplyToken
from headrace.types import ClusterView, Node, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

RELOAD_AFTER_S = 1.0
"""Backoff after a failed append or load."""
RELOAD_NEWER_AFTER_S = 60.0
"""After records of a later release: they stay until compaction removes them."""

M = TypeVar("M", bound=DrivenMachine)


class CoordinatedTopic(Generic[M]):
    def __init__(
        self,
        *,
        topic: NewTopic,
        kind: MachineKind[M],
        read: ReadRecord,
        plural: str,
        world: World,
        node_id: int,
        cluster: ClusterMetadata,
        controller: Controller,
        partitions: Partitions,
        commit_timeout_ms: int,
        loads: Histogram,
        on_loaded: Callable[[M], None] | None = None,
    ) -> None:
        """`topic`: as it is created. `plural`: what the machines are, for log lines. `on_loaded`: called with
        each machine that was loaded."""
        self.name = topic.name
        self.drivers: dict[int, MachineDriver[M]] = {}
        """By partition. To read only."""
        self.stopped = False
        self._new_topic = topic
        self._kind = kind
        self._read = read
        self._plural = plural
        self._world = world
        self._node_id = node_id
        self._cluster = cluster
        self._controller = controller
        self._partitions = partitions
        self._commit_timeout_ms = commit_timeout_ms
        self._loads = loads
        self._on_loaded = on_loaded
        self._summary = LoadSummary(topic.name, plural, world.clock)
        self._timers = MachineTimers(world.clock, world.tasks)
        self._thread = world.tasks.thread(plural)
        self._tasks: set[asyncio.Task[None]] = set()
        self._of_newer_release: set[int] = set()
        self._started = False

    # Start and stop

    def start(self) -> None:
        """Called when the partitions of the view are open. Loads in the background."""
        self._started = True
        self.match_drivers(self._cluster.view)

    async def stop(self) -> None:
        """Rejects requests that wait for other requests; those that wait for a commit are still answered."""
        self.stopped = True
        self._timers.stop()
        for driver in self.drivers.values():
            driver.reject_waiting(ErrorCode.not_coordinator)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def opened_late(self, name: TopicPartition) -> None:
        """A log was opened after the view that brought it: the disk was full, or many were to be opened."""
        if name.topic == self.name and self._started and not self.stopped:
            self.match_drivers(self._cluster.view)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """A task that ends with this coordinator."""
        task = self._world.tasks.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def match_drivers(self, view: ClusterView) -> None:
        """Starts and ends drivers so that there is one for each partition that this node leads.

        Ending one answers its requests, and a request behind them may call this again before it returns.
        """
        topic = view.topics.get(self.name)
        led: dict[int, Partition] = {}
        for index, state in enumerate(topic.partitions if topic is not None else ()):
            partition = self._partitions.get(self.name, index)
            if state.leader == self._node_id and partition is not None:
                led[index] = partition
        for index, driver in list(self.drivers.items()):
            if driver.partition is not led.get(index) and self.drivers.get(index) is driver:
                del self.drivers[index]
                driver.end()
        for index, partition in led.items():
            if index not in self.drivers:
                self._start_driver(index, partition)

    def _start_driver(self, index: int, partition: Partition) -> None:
        driver = MachineDriver[M](
            world=self._world,
            partition=partition,
            kind=self._kind,
            timers=self._timers,
            commit_timeout_ms=self._commit_timeout_ms,
            on_end=lambda: self._driver_ended(index, partition),
        )
        self.drivers[index] = driver
        if partition.log_end_offset == partition.log_start_offset and partition.takes_writes:
            driver.serve()
        else:
            self.spawn(self._load(driver, partition), f"load {partition.topic_partition}")

    async def _load(self, driver: MachineDriver[M], partition: Partition) -> None:
        with self._summary.load():
            await self._load_machines(driver, partition)

    async def _load_machines(self, driver: MachineDriver[M], partition: Partition) -> None:
        loading = MachineLoading[M](partition.topic_partition, self._kind.make, self._read)
        version, began = self._cluster.view.version, self._world.clock.monotonic()
        try:
            await loading.load(partition, self._thread)
            sums = await self._thread.run(MachineSums, self._kind.measure, loading.machines.values())
        except Exception as error:  # whatever it was: the driver would never end loading
            unforeseen = None if isinstance(error, (OSError, HeadraceError)) else error
            logger.error(
                "%s: loading %s failed, will be retried: %s",
                partition.topic_partition, self._plural, error, exc_info=unforeseen,
            )  # fmt: skip
            if isinstance(error, NewerFormatError):
                self._of_newer_release.add(partition.topic_partition.partition)
            driver.end()
            return
        await partition.writable()
        driver.set_machines(loading.machines, version, loading.transactions, sums)
        acts = self._kind.acts_when_loaded
        async for name in yielding([name for name, machine in loading.machines.items() if acts(machine)]):
            driver.notify(name, Loaded())
            if self._on_loaded is not None and (machine := driver.get(name)) is not None:
                self._on_loaded(machine)
        driver.serve()
        seconds = self._world.clock.monotonic() - began
        self._loads.observe(seconds)
        logger.debug(
            "%s: loaded %d %s from %d records in %.3f s",
            partition.topic_partition, len(loading.machines), self._plural, loading.records, seconds,
        )  # fmt: skip
        self._summary.add(len(loading.machines), loading.records)

    def _driver_ended(self, index: int, partition: Partition) -> None:
        """Schedules another driver: the cause may have passed."""
        if not self.stopped:
            after_s = RELOAD_NEWER_AFTER_S if index in self._of_newer_release else RELOAD_AFTER_S
            self._of_newer_release.discard(index)
            self._world.tasks.call_later(after_s, self._restart, index, partition)

    def _restart(self, index: int, partition: Partition) -> None:
        driver = self.drivers.get(index)
        if self.stopped or driver is None or not driver.ended or driver.partition is not partition:
            return
        if partition.leads:
            self._start_driver(index, partition)
        else:
            self._driver_ended(index, partition)

    # The topic

    async def ensure(self) -> Topic:
        """Returns the topic, created when it does not exist. Raises ApiError."""
        topic = self._cluster.view.topics.get(self.name)
        return topic if topic is not None else await self._controller.ensure(self._new_topic)

    def partition_of(self, name: str) -> int:
        topic = self._cluster.view.topics.get(self.name)
        count = self._new_topic.partition_count if topic is None else len(topic.partitions)
        return java_hash(name) % count

    def coordinator_of(self, name: str) -> Node | None:
        view = self._cluster.view
        topic = view.topics.get(self.name)
        if topic is None:
            return None
        return view.nodes.get(topic.partitions[self.partition_of(name)].leader)

    def is_coordinator_of(self, name: str) -> bool:
        """By the present view, also while it cannot serve: session uncertain (R7), or log being loaded."""
        node = self.coordinator_of(name)
        return node is not None and node.node_id == self._node_id

    # Requests

    def driver(self, name: str) -> MachineDriver[M] | None:
        """None: this node does not coordinate it."""
        return self.driver_of(self.partition_of(name))

    def driver_of(self, index: int) -> MachineDriver[M] | None:
        if index not in self.drivers:  # its log may have been opened late, after a full disk
            self.match_drivers(self._cluster.view)
        return self.drivers.get(index)

    def submit(
        self,
        name: str,
        make_event: Callable[[ReplyToken], Event],
        answer: Answer,
        *,
        check: Check | None = None,
    ) -> None:
        """`answer` is called exactly once, perhaps before this returns, with the reply or an ApiError."""
        driver = self.drivers.get(self.partition_of(name)) or self.driver(name)
        if driver is None or self.stopped:
            answer(ApiError(ErrorCode.not_coordinator))
        else:
            driver.submit(name, make_event, answer, check=check)

    async def ask(self, name: str, make_event: Callable[[ReplyToken], Event]) -> ReplyBody:
        """As `submit`, for coroutines. Raises ApiError."""
        answered: asyncio.Future[ReplyBody] = asyncio.get_running_loop().create_future()

        def answer(body: ReplyBody | ApiError) -> None:
            if answered.done():  # the caller was cancelled
                return
            if isinstance(body, ApiError):
                answered.set_exception(body)
            else:
                answered.set_result(body)

        self.submit(name, make_event, answer)
        return await answered

    # Reading

    async def machine(self, name: str) -> M | None:
        """The machine with its state committed; None: there is none of this name. Raises ApiError."""
        driver = self.driver(name)
        await _readable(driver)
        return None if driver is None else driver.get(name)

    def peek(self, name: str) -> M | None:
        """The machine as it is now, perhaps with uncommitted state."""
        driver = self.drivers.get(self.partition_of(name))
        return None if driver is None else driver.get(name)

    async def listed(self) -> list[M]:
        """Every machine of this node, with its state committed. Raises ApiError while some are loaded."""
        machines: list[M] = []
        for driver in list(self.drivers.values()):
            await _readable(driver)
            machines += driver.machines()
        return machines

    def listed_now(self) -> list[M] | None:
        """As `listed`; None where that would fail or have to wait for a commit."""
        drivers = list(self.drivers.values())
        if not all(_may_be_read(driver) and driver.all_committed for driver in drivers):
            return None
        return [machine for driver in drivers for machine in driver.machines()]

    def machines(self) -> Iterable[M]:
        """All machines as they are now, for metrics."""
        for driver in list(self.drivers.values()):
            yield from driver.machines()

    def sums(self) -> Counter[str]:
        """What the kind of machine measures, over all machines as they are now."""
        total: Counter[str] = Counter()
        for driver in self.drivers.values():
            total.update(driver.sums.values)
        return total

    # Events

    def notify(self, name: str, event: Event) -> None:
        """Steps a machine of this node, if it exists, with an event that has no reply."""
        driver = self.drivers.get(self.partition_of(name))
        if driver is not None:
            driver.notify(name, event)

    async def notify_all(self, event: Event, *, may_be_skipped: bool = False) -> None:
        everyone = [(driver, name) for driver in self.drivers.values() for name in driver.names()]
        async for driver, name in yielding(everyone):
            driver.notify(name, event, may_be_skipped=may_be_skipped)


def _may_be_read(driver: MachineDriver[M]) -> bool:
    return driver.serving and not driver.ended and driver.partition.leads


async def _readable(driver: MachineDriver[M] | None) -> None:
    """Waits until the driver's state is committed. Raises ApiError when it does not serve (any more)."""
    if driver is None:
        raise ApiError(ErrorCode.not_coordinator)
    _check_serving(driver)
    if not driver.all_committed:
        committed = asyncio.Event()
        driver.when_all_committed(committed.set)
        await committed.wait()
        _check_serving(driver)


def _check_serving(driver: MachineDriver[M]) -> None:
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
