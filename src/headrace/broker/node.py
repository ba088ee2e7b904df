"""A node: puts the parts together, starts and stops them in order.

Read next: app.py (the process around a node), partitions.py, dispatch.py, housekeeping.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from functools import partial
from pathlib import Path

from headrace.broker.assignments import Assignments
from headrace.broker.connection_hub import connection_hub
from headrace.broker.controller import Controller
from headrace.broker.controller_office import ControllerOffice
from headrace.broker.disk_guard import DiskGuard
from headrace.broker.disk_report import DiskReport
from headrace.broker.dispatch import Dispatcher
from headrace.broker.flush_default import NAME as FLUSH
from headrace.broker.flush_default import default_flush, is_flush_set
from headrace.broker.flusher import Flusher
from headrace.broker.group_coordinator import GroupCoordinator
from headrace.broker.group_timeline import GroupTimeline
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.http_endpoint import HttpEndpoint
from headrace.broker.lag_samples import LagSamples
from headrace.broker.metadata_replies import MetadataReplies
from headrace.broker.metrics import Metrics
from headrace.broker.min_insync import configured_min_insync
from headrace.broker.node_checkpoints import LogOffsets, NodeCheckpoints
from headrace.broker.offset_saver import OffsetSaver
from headrace.broker.own_topics import EVENTS, LAG, OwnTopic
from headrace.broker.partitions import Partitions
from headrace.broker.peers import Peers
from headrace.broker.remote_creation import created_elsewhere
from headrace.broker.replication import Replication
from headrace.broker.topic_settings import TopicSettings, topic_settings
from headrace.broker.view_waits import ViewWaits
from headrace.config import ListenerConfig, NodeConfig, resolve_topic
from headrace.config.coordination_address import SqliteAddress
from headrace.coordination.cluster import Cluster
from headrace.coordination.hosts import boot_id
from headrace.coordination.opening import open_store
from headrace.coordination.store import Store
from headrace.errors import ConfigError, CoordinationError, HeadraceError, StorageError
from headrace.log.checkpoints import check_meta_properties
from headrace.log.descriptors import DescriptorPool
from headrace.types import ClusterView, Endpoint, Topic, TopicPartition
from headrace.world import FileLock, Listener, World, new_uuid

logger = logging.getLogger(__name__)

DEFAULT_DESCRIPTORS = 1024
_LET_IN_WITHIN_MS = 60_000
_HAND_OVER_MS = 10_000
_OTHER_DESCRIPTORS = 128
"""For the coordination store, the operators' endpoint, the worker processes, files open for a moment."""


class Broker:
    """One node. Handlers find here what they need."""

    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: Cluster,
        checkpoints: NodeCheckpoints,
        lock: FileLock,
        descriptors: int,
        directory_id: str,
    ) -> None:
        self.world = world
        self.config = config
        self.node_id: int = config["node.id"]
        self.cluster = cluster
        self.checkpoints = checkpoints
        self.metrics = Metrics(world.clock)
        self.peers = Peers(
            world=world,
            node_id=self.node_id,
            view=lambda: cluster.view,
            listener=config["inter.broker.listener.name"],
        )
        self.view_waits = ViewWaits(cluster, world)
        self.controller = Controller(cluster, world, config, partial(created_elsewhere, self))
        self.office = ControllerOffice(self, self._topic_settings)
        self.assignments = Assignments(self)
        self.metadata_replies = MetadataReplies()
        self._phase: str | None = "starting"
        self.failure: HeadraceError | None = None
        self.stop_wanted = asyncio.Event()
        self.endpoints: tuple[Endpoint, ...] = ()
        self.metrics_address: tuple[str, int] | None = None
        self._lock = lock
        self._directory_id = directory_id
        self._listeners: list[Listener] = []
        self.offsets = OffsetSaver(world, checkpoints, self._log_offsets)
        self._flusher = Flusher(world, self.metrics, self._disk_failed)
        self.partitions = Partitions(
            world=world,
            node_id=self.node_id,
            directory=config.data_directory,
            metrics=self.metrics,
            flusher=self._flusher,
            descriptors=DescriptorPool(world.files, max(descriptors // 2 - _OTHER_DESCRIPTORS, 16)),
            settings_of=self._topic_settings,
            changed_topics=cluster.changed_topics,
            checkpoints=checkpoints,
            persist_offsets=self.offsets.persist,
        )
        self.metrics.partitions = self.partitions.all
        self.metrics.damaged = self.partitions.damaged
        self.replication = Replication(self)
        self.partitions.take_role = self.replication.take
        self.partitions.removed = self.replication.forget
        self.controller.opened = self.partitions.opened
        self.groups = GroupCoordinator(self)
        self.timeline = GroupTimeline(self, OwnTopic(self, EVENTS))
        self.lag = LagSamples(self, OwnTopic(self, LAG))
        self.hub = connection_hub(world, self.metrics, config, max_connections=descriptors // 2)
        self._dispatcher = self.hub.dispatch = Dispatcher(self)
        disk = DiskGuard(world.files, config.data_directory, config["headrace.disk.reserve.bytes"])
        self.disk_report = DiskReport(self)
        self._housekeeping = Housekeeping(self, disk)
        self._http = HttpEndpoint(world, self.metrics, self.why_not_ready)

    def why_not_ready(self) -> str | None:
        if self._phase is None and not self.partitions.writable:
            return "the disk is nearly full"
        return self._phase

    def _topic_settings(self, view: ClusterView, topic: Topic) -> TopicSettings:
        """With what was altered while nodes ran."""
        altered = {
            **view.node_configs.get("", {}),
            **view.node_configs.get(str(self.node_id), {}),
        }
        values = resolve_topic(self.config, altered, topic.configs)
        if not is_flush_set(self.config, altered, topic.configs):
            min_insync = configured_min_insync(self.config, view, topic)
            values[FLUSH] = default_flush(self.config, min_insync, len(topic.partitions[0].replicas))
        return topic_settings(values, self.config)

    async def start(self, hostname: str) -> None:
        """Logs first: a node that is registered can serve what it holds."""
        empty = ClusterView(version=-1, cluster_id=self.cluster.view.cluster_id)
        alone = self.config.coordination == SqliteAddress()
        self.partitions.removals.leftovers(self.cluster.view, alone=alone)
        self.partitions.follow(empty, self.cluster.view)
        self.replication.start()
        self.cluster.subscribe(self.partitions.follow)
        await self.partitions.opened()
        self.lag.start()
        self.groups.start()
        await self.offsets.persist()
        self._housekeeping.look_at_the_disk()
        await self.disk_report.start()
        self.endpoints = tuple([await self._listen(each) for each in self.config.listeners])
        await self.cluster.register_node(
            node_id=self.node_id,
            host_id=boot_id(self.world.files) or hostname,
            hostname=hostname,
            endpoints=self.endpoints,
            rack=self.config["broker.rack"],
            session_ttl_ms=self.config["broker.session.timeout.ms"],
            directory_id=self._directory_id,
            replaces_dead_predecessor=True,  # the lock on the data directory proves it dead (R10)
            waits_for_admission=True,
            lossless=self.checkpoints.lossless,
        )
        self.office.start()
        await self._wait_to_be_let_in()
        await self.offsets.loss_is_known()
        if not alone:
            self.partitions.removals.strays(self.cluster.view)
        self.replication.look()
        await self._start_http()
        self._housekeeping.start()
        self._phase = None
        self.hub.let_in()

    async def _wait_to_be_let_in(self) -> None:
        """Until the controller, perhaps this node, counts on it for nothing that it may have lost (R20)."""
        if not await self.view_waits.until(lambda view: self.node_id in view.nodes, _LET_IN_WITHIN_MS):
            raise CoordinationError(
                f"the controller (node {self.cluster.view.controller_id}) did not let this node in within "
                f"{_LET_IN_WITHIN_MS // 1000} s: look at that node's log, or stop it"
            )

    async def _start_http(self) -> None:
        host, port = self.config["headrace.metrics.host"], self.config["headrace.metrics.port"]
        if port < 0:
            return
        try:
            await self._http.start(host, port)
        except OSError as error:
            raise ConfigError(
                f"headrace.metrics.port={port} cannot be listened on ({error.strerror or error}): "
                "choose another, 0 for a free one, or -1 for none"
            ) from error
        self.metrics_address = (host, self._http.port)

    async def _listen(self, listener: ListenerConfig) -> Endpoint:
        try:
            bound = await self.world.network.listen(
                self.hub.factory(listener.name), listener.host, listener.port
            )
        except OSError as error:
            raise ConfigError(_cannot_listen(listener, error)) from error
        self._listeners.append(bound)
        return listener.endpoint(bound.port)

    async def stop(self) -> None:
        """R22: no new work, everything on disk, the mark of a clean stop, then the session."""
        self._phase = "stopping"
        try:
            await self._hand_over()
            await self._end_service()
            await self._close_logs()
        finally:
            await self._let_go()

    async def _hand_over(self) -> None:
        """Others lead what this node led before it stops, as far as there are others (R22)."""
        view = self.cluster.view
        if self.failure is not None or self.node_id not in view.nodes or len(view.nodes) == 1:
            return
        try:
            await self.cluster.announce(leaving=True)
            handed_over = await self.view_waits.until(self._leads_nothing_others_could, _HAND_OVER_MS)
        except (HeadraceError, OSError) as error:
            logger.warning("others notice only later that this node stops: %s", error)
        else:
            if not handed_over:
                logger.warning("this node stops although it still leads partitions")

    def _leads_nothing_others_could(self, view: ClusterView) -> bool:
        others = {node.node_id for node in view.nodes.values() if not node.leaving}
        return not any(
            state.leader == self.node_id and not others.isdisjoint(state.isr)
            for topic in view.topics.values()
            for state in topic.partitions
        )

    async def _end_service(self) -> None:
        """What was asked before is answered, as far as it does not take long."""
        for listener in self._listeners:
            listener.close()
        self.hub.stop_requests()
        await self._housekeeping.stop()
        await self.disk_report.stop()
        await self.office.stop()
        await self.groups.stop()
        await self.replication.stop()
        await self.timeline.write()
        await self.lag.finish()
        await self._dispatcher.stop()
        if self.failure is None:
            await self._flusher.flush_all(list(self.partitions.all()))
        await self.hub.close()

    async def _close_logs(self) -> None:
        offsets = self.partitions.log_offsets()
        clean = await self.partitions.close()
        if self.failure is not None:
            return
        try:
            await self.offsets.save(offsets)
            if clean:
                await self.offsets.mark_clean(self.cluster.node_epoch or -1)
        except OSError as error:
            logger.error("the next start will check the logs, since this stop could not be noted: %s", error)

    async def _let_go(self) -> None:
        self._http.close()
        await self.peers.close()
        try:
            await self.cluster.close()
        except (HeadraceError, OSError) as error:
            logger.error("the coordination store was not closed cleanly: %s", error)
        await self.world.tasks.close()
        self._lock.release()

    def _log_offsets(self) -> dict[TopicPartition, LogOffsets]:
        return self.partitions.log_offsets()

    def _disk_failed(self, error: OSError) -> None:
        """R24: what a failed fsync left in memory cannot be trusted, and there is no other disk to go to."""
        directory = self.config.data_directory
        self.failure = StorageError(f"the disk of {directory} failed ({error}); check it, then start again")
        logger.critical("%s", self.failure)
        with contextlib.suppress(OSError):  # then nothing can be read there either
            self.checkpoints.disk_failed()
        for partition in self.partitions.all():
            partition.take_offline()
        self.stop_wanted.set()


async def start_node(
    world: World,
    config: NodeConfig,
    store: Store | None = None,
    *,
    hostname: str = "localhost",
    descriptors: int = DEFAULT_DESCRIPTORS,
) -> Broker:
    """A running node, or a HeadraceError that says in one line why not; then nothing is left behind."""
    lock = _lock_directory(world, config.data_directory)
    try:
        broker = await _assemble(world, config, store, lock, hostname, descriptors)
    except BaseException as error:
        await world.tasks.close()
        lock.release()
        _raise_in_one_line(config, error)
        raise
    try:
        await broker.start(hostname)
    except BaseException as error:
        await broker.stop()
        _raise_in_one_line(config, error)
        raise
    return broker


def _raise_in_one_line(config: NodeConfig, error: BaseException) -> None:
    if isinstance(error, OSError):
        raise StorageError(f"cannot use the data directory {config.data_directory}: {error}") from error


async def _assemble(
    world: World,
    config: NodeConfig,
    store: Store | None,
    lock: FileLock,
    hostname: str,
    descriptors: int,
) -> Broker:
    directory = config.data_directory
    checkpoints = NodeCheckpoints(world.files, directory, boot_id(world.files))
    checkpoints.load()
    if store is None:
        store = await open_store(world, config.coordination, config.coordination_directory)
    try:
        cluster = await Cluster.open(store, world)
    except BaseException:
        await store.close()
        raise
    try:
        directory_id = check_meta_properties(
            world.files,
            directory,
            cluster_id=cluster.view.cluster_id,
            node_id=config["node.id"],
            new_directory_id=str(new_uuid(world.random)),
        )
        return Broker(
            world=world,
            config=config,
            cluster=cluster,
            checkpoints=checkpoints,
            lock=lock,
            descriptors=descriptors,
            directory_id=directory_id,
        )
    except BaseException:
        await cluster.close()
        raise


def _lock_directory(world: World, directory: Path) -> FileLock:
    try:
        world.files.make_directory(directory)
        return world.files.lock(directory / ".lock")
    except BlockingIOError:
        raise ConfigError(
            f"the data directory {directory} is in use by another node: stop that node, "
            "or name another directory with --data"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot write to the data directory {directory} ({error.strerror}): "
            "make it writable, or name another directory with --data"
        ) from error


def _cannot_listen(listener: ListenerConfig, error: OSError) -> str:
    address = f"{listener.host}:{listener.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {listener.port} of listener {listener.name} is in use: stop the program that has it, "
            f"or choose another with --listener {listener.name.lower()}={listener.host}:PORT"
        )
    return f"listener {listener.name} cannot listen on {address}: {error.strerror or error}"
