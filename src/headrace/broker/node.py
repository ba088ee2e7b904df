# SPDX-License-Identifier: Apache-2.0
"""A node: builds its components, starts and stops them in order.

Components take what they use by keyword; only this module and app.py know the Broker (docs/decisions/0020).
Read next: app.py (the process of a node), partition/registry.py, dispatch/dispatcher.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from headrace.broker.authorization.authorized_handlers import authorized, authorized_members
from headrace.broker.controller.change_propagation import ChangePropagation
from headrace.broker.controller.controller import Controller
from headrace.broker.controller.disk_report import DiskReport
from headrace.broker.controller.loop import ControllerLoop
from headrace.broker.controller.metadata_cache import MetadataCache
from headrace.broker.controller.reassignments import Reassignments
from headrace.broker.controller.remote_creation import create_on_controller
from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.controller.view_waits import ViewWaits
from headrace.broker.dispatch.dispatcher import Dispatcher
from headrace.broker.dispatch.forwarding import RequestForwarder
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.handlers.acls import AclHandlers
from headrace.broker.handlers.api_versions import ApiVersionsHandlers
from headrace.broker.handlers.cluster import ClusterHandlers
from headrace.broker.handlers.configs import ConfigHandlers
from headrace.broker.handlers.coordinators import CoordinatorHandlers
from headrace.broker.handlers.fetch import FetchHandler
from headrace.broker.handlers.group_members import GroupMemberHandlers
from headrace.broker.handlers.group_offsets import GroupOffsetHandlers
from headrace.broker.handlers.groups import GroupHandlers
from headrace.broker.handlers.metadata import MetadataHandlers
from headrace.broker.handlers.offsets import OffsetHandlers
from headrace.broker.handlers.produce import ProduceHandler
from headrace.broker.handlers.producers import ProducerHandlers
from headrace.broker.handlers.quotas import QuotaHandlers
from headrace.broker.handlers.replicas import ReplicaHandlers
from headrace.broker.handlers.topics import TopicHandlers
from headrace.broker.handlers.transactions import TransactionHandlers
from headrace.broker.handlers.users import UserHandlers
from headrace.broker.metrics import Metrics
from headrace.broker.network.client_list import client_list
from headrace.broker.network.connections import make_connections
from headrace.broker.network.deferred_reply import DeferredHandler
from headrace.broker.network.request_context import Handler
from headrace.broker.network.request_tasks import RequestTasks
from headrace.broker.partition.checkpoints import LogOffsets, NodeCheckpoints, OffsetSaver
from headrace.broker.partition.disk_guard import DiskGuard
from headrace.broker.partition.flusher import Flusher
from headrace.broker.partition.housekeeping import Housekeeping, PeriodicJob
from headrace.broker.partition.recovery_summary import log_recovery
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.retention_clock import ClockFile, RetentionClock
from headrace.broker.partition.settings.flush_default import NAME as FLUSH
from headrace.broker.partition.settings.flush_default import default_flush, is_flush_set
from headrace.broker.partition.settings.min_insync import configured_min_insync
from headrace.broker.partition.settings.topic_settings import TopicSettings, topic_settings
from headrace.broker.quotas.client_throttles import make_throttles
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.replication.peers import Peers
from headrace.broker.replication.replicas import Replication
from headrace.broker.reporting.cluster_timeline import RUN_S, ClusterTimeline
from headrace.broker.reporting.group_timeline import WRITE_S, GroupTimeline
from headrace.broker.reporting.http_endpoint import HttpEndpoint
from headrace.broker.reporting.internal_topics import EVENTS, LAG, InternalTopicWriter
from headrace.broker.reporting.lag_samples import SAMPLE_INTERVAL_S, LagSamples
from headrace.broker.reporting.metric_family import MetricSources
from headrace.broker.security.audit import AuditLog
from headrace.broker.security.authorization import Authorization
from headrace.broker.security.authorizer import Authorizer
from headrace.broker.security.login import Logins
from headrace.broker.security.mechanism import Mechanisms
from headrace.broker.security.mechanisms import make_token_logins, session_limits, user_mechanisms
from headrace.broker.security.metrics_token import MetricsToken
from headrace.broker.security.node_login import NodeLogin
from headrace.broker.security.tls import RELOAD_S, ListenerTls, Reloaded, reload_all
from headrace.broker.security.users import Users
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.broker.transactions.enrolment import Enrolment
from headrace.broker.transactions.marker_sender import MarkerSender
from headrace.broker.transactions.marker_writer import MarkerWriter
from headrace.config import ListenerConfig, NodeConfig, resolve_topic
from headrace.config.coordination_address import SqliteAddress
from headrace.config.metrics_settings import uses_tls
from headrace.config.security.acl_settings import super_users
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.hosts import boot_id
from headrace.coordination.open_store import open_store
from headrace.coordination.restore.backups import CHECK_S, StoreBackups
from headrace.coordination.restore.remembered import RememberedStore
from headrace.coordination.sqlite import ENTRIES_FILE
from headrace.coordination.store import Store, StoreWentBack
from headrace.coordination.zookeeper_security import zookeeper_security
from headrace.errors import ConfigError, CoordinationError, HeadraceError, StorageError
from headrace.log.checkpoints import check_format, check_meta_properties
from headrace.log.segments.descriptors import DescriptorPool
from headrace.types import ClusterView, Endpoint, Topic, TopicPartition
from headrace.world import FileLock, Listener, World, new_uuid

logger = logging.getLogger(__name__)

REMEMBER_S = 2.0
DEFAULT_DESCRIPTORS = 1024
_USUAL_ADMISSION_MS = 3_000
_ADMISSION_TIMEOUT_MS = 60_000
_CONTROLLED_SHUTDOWN_TIMEOUT_MS = 10_000
_OTHER_DESCRIPTORS = 128
"""For the coordination store, the HTTP endpoint, worker processes, files that are open briefly."""


class Broker:
    """One node: its components, wired together, and their start and stop."""

    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        checkpoints: NodeCheckpoints,
        retention_clock: RetentionClock,
        lock: FileLock,
        descriptors: int,
        directory_id: str,
        remembered_store: RememberedStore,
        store_was_restored: bool,
        over_sqlite: bool,
    ) -> None:
        self.world = world
        self.config = config
        self.node_id: int = config["node.id"]
        self.cluster = cluster
        self.checkpoints = checkpoints
        self._retention_clock = retention_clock
        self._phase: str | None = "starting"
        self.failure: HeadraceError | None = None
        self.stop_wanted = asyncio.Event()
        self.endpoints: tuple[Endpoint, ...] = ()
        self.metrics_address: tuple[str, int] | None = None
        self._lock = lock
        self._directory_id = directory_id
        self._remembered_store = remembered_store
        self._store_was_restored = store_was_restored
        self._over_sqlite = over_sqlite
        self._listeners: list[Listener] = []
        self.tls = {each.name: ListenerTls(world, config, each.name) for each in config.listeners if each.tls}
        self._metrics_tls = ListenerTls(world, config, None) if uses_tls(config) else None
        self._metrics_token = MetricsToken(world.files, config)
        # Components, each built from those above it.
        self.metrics = Metrics(world.clock)
        self.events = EventQueue(world.clock, enabled=config["headrace.events.enable"])
        self.audit = AuditLog(world.clock)
        self.metadata_cache = MetadataCache()
        self.view_waits = ViewWaits(cluster, world)
        self.node_login = NodeLogin(
            node_id=self.node_id, secret=lambda: cluster.node_secret, random=world.random
        )
        self.peers = self._make_peers()
        self.propagation = ChangePropagation(
            world=world, node_id=self.node_id, cluster=cluster, peers=self.peers
        )
        self.offsets = OffsetSaver(
            world, checkpoints, present=self._log_offsets, high_watermarks=self._high_watermarks
        )
        self._flusher = Flusher(world, self.metrics, self._disk_failed)
        self.partitions = self._make_partitions(max(descriptors // 2 - _OTHER_DESCRIPTORS, 16))
        self.controller = self._make_controller()
        self.controller_loop = self._make_controller_loop()
        self.reassignments = Reassignments(
            cluster=cluster, controller=self.controller, controller_loop=self.controller_loop
        )
        self.replication = self._make_replication()
        self.authorization = self._make_authorization()
        self.groups = self._make_groups()
        self.marker_writer = MarkerWriter(
            find_led=self.partitions.find_led, groups=self.groups, clock=world.clock
        )
        self.transactions = self._make_transactions()
        self.enrolment = Enrolment(
            node_id=self.node_id,
            clock=world.clock,
            tasks=world.tasks,
            coordinator=self.transactions,
            peers=self.peers,
            counters=self.metrics.transactions,
        )
        self.timeline = self._make_timeline()
        self.cluster_timeline = self._make_cluster_timeline()
        self.lag = self._make_lag_samples()
        self.connections = make_connections(world, self.metrics, config, max_connections=descriptors // 2)
        self.throttles = make_throttles(world.clock, self.metrics, config)
        self._request_tasks = RequestTasks(world.tasks, self.throttles.metered)
        self._token_logins = make_token_logins(world, config)
        self.dispatcher = self._make_dispatcher()
        self.disk_report = self._make_disk_report()
        self._store_backups = self._make_store_backups()
        self._housekeeping = self._make_housekeeping()
        self._http = HttpEndpoint(world, self.metric_sources(), self.why_not_ready, self._metrics_token)
        self._connect()

    def _connect(self) -> None:
        """Sets the callbacks from lower components into higher ones, which are built later.

        The only step after construction in which one component gets to know another.
        """
        self.partitions.connect(
            take_role=self.replication.assign_role,
            removed=self.replication.forget,
            opened_late=self._opened_late,
            disk_changed=self.disk_report.disk_changed,
            repairs=self.replication.repairs,
        )
        self.cluster.on_store_went_back(self._store_went_back)

    def _opened_late(self, name: TopicPartition) -> None:
        self.groups.opened_late(name)
        self.transactions.opened_late(name)

    def _make_peers(self) -> Peers:
        tls = self.tls.get(self.config.inter_broker_listener)
        return Peers(
            world=self.world,
            node_id=self.node_id,
            view=lambda: self.cluster.view,
            listener=self.config["inter.broker.listener.name"] and self.config.inter_broker_listener,
            login=self.node_login,
            tls=None if tls is None else tls.client,
        )

    def _make_partitions(self, descriptors: int) -> Partitions:
        return Partitions(
            world=self.world,
            node_id=self.node_id,
            directory=self.config.data_directory,
            metrics=self.metrics,
            flusher=self._flusher,
            descriptors=DescriptorPool(self.world.files, descriptors),
            settings_of=self._topic_settings,
            changed_topics=self.cluster.changed_topics,
            checkpoints=self.checkpoints,
            persist_offsets=self.offsets.persist,
        )

    def _make_controller(self) -> Controller:
        return Controller(
            self.cluster,
            self.world,
            self.config,
            create_on_controller=partial(
                create_on_controller,
                node_id=self.node_id,
                cluster=self.cluster,
                peers=self.peers,
                view_waits=self.view_waits,
            ),
            opened=self.partitions.opened,
            known_elsewhere=self.propagation.wait,
        )

    def _make_controller_loop(self) -> ControllerLoop:
        return ControllerLoop(
            world=self.world,
            config=self.config,
            cluster=self.cluster,
            controller=self.controller,
            partitions=self.partitions,
            peers=self.peers,
            view_waits=self.view_waits,
            metadata_cache=self.metadata_cache,
            events=self.events,
            counters=self.metrics.controller,
            settings_of=self._topic_settings,
        )

    def _make_replication(self) -> Replication:
        return Replication(
            world=self.world,
            config=self.config,
            cluster=self.cluster,
            peers=self.peers,
            partitions=self.partitions,
            persist_offsets=self.offsets.persist,
            events=self.events,
            fsync=self.metrics.fsync,
        )

    def _make_groups(self) -> GroupCoordinator:
        return GroupCoordinator(
            world=self.world,
            config=self.config,
            cluster=self.cluster,
            controller=self.controller,
            partitions=self.partitions,
            counters=self.metrics.groups,
            authorization=self.authorization,
        )

    def _make_transactions(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            world=self.world,
            config=self.config,
            cluster=self.cluster,
            controller=self.controller,
            partitions=self.partitions,
            markers=MarkerSender(
                node_id=self.node_id,
                cluster=self.cluster,
                peers=self.peers,
                writer=self.marker_writer,
                clock=self.world.clock,
                tasks=self.world.tasks,
            ),
            counters=self.metrics.transactions,
        )

    def _make_timeline(self) -> GroupTimeline:
        return GroupTimeline(
            world=self.world,
            config=self.config,
            cluster=self.cluster,
            groups=self.groups,
            events=self.events,
            topic=self.internal_topic(EVENTS),
        )

    def _make_cluster_timeline(self) -> ClusterTimeline:
        return ClusterTimeline(
            world=self.world,
            node_id=self.node_id,
            cluster=self.cluster,
            partitions=self.partitions,
            groups=self.groups,
            timeline=self.timeline,
            events=self.events,
        )

    def _make_lag_samples(self) -> LagSamples:
        return LagSamples(
            world=self.world,
            config=self.config,
            partitions=self.partitions,
            groups=self.groups,
            topic=self.internal_topic(LAG),
        )

    def _make_disk_report(self) -> DiskReport:
        return DiskReport(
            world=self.world,
            node_id=self.node_id,
            cluster=self.cluster,
            partitions=self.partitions,
            events=self.events,
        )

    def _make_store_backups(self) -> StoreBackups:
        return StoreBackups(
            self.world,
            self.config.coordination_directory / ENTRIES_FILE,
            setting=self.controller.node_setting,
            is_controller=lambda: self.cluster.is_controller,
        )

    def internal_topic(self, topic: NewTopic) -> InternalTopicWriter:
        return InternalTopicWriter(
            topic,
            world=self.world,
            node_id=self.node_id,
            cluster=self.cluster,
            controller=self.controller,
            partitions=self.partitions,
            peers=self.peers,
            metrics=self.metrics,
        )

    def _make_housekeeping(self) -> Housekeeping:
        retention_interval = "offsets.retention.check.interval.ms"
        reserve: int = self.config["headrace.disk.reserve.bytes"]
        return Housekeeping(
            world=self.world,
            directory=self.config.data_directory,
            partitions=self.partitions,
            offsets=self.offsets,
            time=self._retention_clock,
            clock_file=ClockFile(self.world.files, self.config.data_directory),
            disk=DiskGuard(self.world.files, self.config.data_directory, reserve),
            metrics=self.metrics,
            setting=self.controller.node_setting,
            before_tick=self.connections.next_tick,
            after_tick=self.disk_report.check,
            jobs=(
                PeriodicJob(
                    name="offsets retention",
                    every=retention_interval,
                    run=self.groups.check_retention,
                    by_wall_clock=True,
                ),
                PeriodicJob(
                    name="expired transactional ids",
                    every="transaction.remove.expired.transaction.cleanup.interval.ms",
                    run=self.transactions.check_expiration,
                    by_wall_clock=True,
                ),
                PeriodicJob(name="group events", every=WRITE_S, run=self.timeline.write),
                PeriodicJob(name="cluster events", every=RUN_S, run=self.cluster_timeline.run),
                PeriodicJob(name="lag samples", every=SAMPLE_INTERVAL_S, run=self.lag.sample),
                PeriodicJob(name="store position", every=REMEMBER_S, run=self._remember_store),
                *self._backup_jobs(),
                *self._certificate_jobs(),
            ),
        )

    def _backup_jobs(self) -> tuple[PeriodicJob, ...]:
        """The servers of ZooKeeper keep snapshots of their own."""
        if not self._over_sqlite:
            return ()
        run = self._store_backups.take_if_due
        return (PeriodicJob(name="backup of the coordination store", every=CHECK_S, run=run),)

    async def _remember_store(self) -> None:
        await self._remembered_store.save(self.cluster)

    def _certificate_jobs(self) -> tuple[PeriodicJob, ...]:
        reloaded: list[Reloaded] = list(self.tls.values())
        if self._metrics_tls is not None:
            reloaded.append(self._metrics_tls)
        if self.config["headrace.metrics.token.file"]:
            reloaded.append(self._metrics_token)
        if not reloaded:
            return ()
        thread = self.world.tasks.thread("certificates")
        reload = partial(reload_all, reloaded, thread)
        return (PeriodicJob(name="certificates", every=RELOAD_S, run=reload),)

    def metric_sources(self) -> MetricSources:
        return MetricSources(
            metrics=self.metrics,
            partitions=self.partitions.all,
            damaged=self.partitions.damaged,
            groups=self.groups.groups,
            transactions=self.transactions.figures,
            replication=self.replication.figures,
            view=lambda: self.cluster.view,
            is_controller=lambda: self.cluster.is_controller,
            wall_ms=self.world.clock.wall_ms,
            store_backup_age_s=lambda: self._store_backups.age_s,
        )

    def _make_authorization(self) -> Authorization | None:
        """None: no authorizer is configured, and everything is allowed."""
        config = self.config
        if not config["authorizer.class.name"]:
            return None
        authorizer = Authorizer(
            lambda: self.cluster.view.acls,
            super_users=super_users(config["super.users"]),
            allow_everyone_if_no_acl_found=config["allow.everyone.if.no.acl.found"],
        )
        self.cluster.subscribe(self._acls_changed)
        return Authorization(authorizer, self.audit.denied)

    def _acls_changed(self, old: ClusterView, new: ClusterView) -> None:
        """What was allowed to a connection's last requests is checked again with its next."""
        if old.acls is not new.acls:
            self.connections.forget_requests()

    def _verifies_transactions(self) -> bool:
        """Of clients before KIP-890. May be altered while the node runs."""
        return bool(self.controller.node_setting("transaction.partition.verification.enable"))

    def _make_dispatcher(self) -> Dispatcher:
        world, codec = self.world, self.world.tasks.thread("codec")
        produce = ProduceHandler(
            node_id=self.node_id,
            view=lambda: self.cluster.view,
            partitions=self.partitions,
            clock=world.clock,
            tasks=world.tasks,
            metrics=self.metrics,
            memory=self.connections.memory,
            request_tasks=self._request_tasks,
            authorization=self.authorization,
            throttles=self.throttles,
            enrolment=self.enrolment,
            verifies_transactions=self._verifies_transactions,
        )
        fetch = FetchHandler(
            node_id=self.node_id,
            view=lambda: self.cluster.view,
            partitions=self.partitions,
            clock=world.clock,
            tasks=world.tasks,
            random=world.random,
            metrics=self.metrics,
            codec=codec,
            cold_reads=self.connections.cold_reads,
            request_tasks=self._request_tasks,
            timeline=self.timeline,
            throttles=self.throttles,
            max_bytes=self.config["fetch.max.bytes"],
            session_slots=self.config["max.incremental.fetch.session.cache.slots"],
            authorization=self.authorization,
        )
        group_offsets = GroupOffsetHandlers(
            cluster=self.cluster,
            groups=self.groups,
            partitions=self.partitions,
            enrolment=self.enrolment,
            verifies_transactions=self._verifies_transactions,
            metrics=self.metrics,
            authorization=self.authorization,
        )
        transactions = TransactionHandlers(
            view=lambda: self.cluster.view,
            transactions=self.transactions,
            groups=self.groups,
            markers=self.marker_writer,
            metrics=self.metrics,
            clock=world.clock,
            tasks=world.tasks,
            pattern_thread=world.tasks.thread("transactional id patterns"),
            authorization=self.authorization,
        )
        handlers = self._handlers(group_offsets, transactions)
        members = self._deferred_handlers(group_offsets, transactions)
        if self.authorization is not None:
            handlers = authorized(handlers, self.authorization, lambda: self.cluster.view)
            members = authorized_members(members, self.authorization)
        return Dispatcher(
            clock=world.clock,
            metrics=self.metrics,
            memory=self.connections.memory,
            codec=codec,
            request_tasks=self._request_tasks,
            produce=produce,
            fetch=fetch,
            handlers=handlers,
            deferred_handlers=members,
            forwarder=self._forwarder(),
            propagation=self.propagation,
            logins=self._make_logins(),
            audit=self.audit,
            throttles=self.throttles,
        )

    def _make_logins(self) -> Logins:
        world, view = self.world, lambda: self.cluster.view.users
        users = Users(users=view, secret=self.cluster.node_secret)
        of_users = user_mechanisms(self.config, users, world.random, self._token_logins)
        return Logins(
            clock=world.clock,
            tasks=world.tasks,
            thread=world.tasks.thread("login"),
            audit=self.audit,
            mechanisms=cache(partial(self._mechanisms, of_users)),
            hidden=frozenset(self.node_login.mechanisms),
            failure_delay_ms=self.config["connection.failed.authentication.delay.ms"],
            session_limits=session_limits(self.config),
        )

    def _mechanisms(self, of_users: Mapping[str, Mechanisms], listener: str) -> Mechanisms:
        """Nodes log in on their own listener only, users on any but a private one."""
        if listener != self.config.inter_broker_listener:
            return of_users.get(listener, {})
        private = self.config["headrace.inter.broker.listener.private"]
        return {**({} if private else of_users.get(listener, {})), **self.node_login.mechanisms}

    def _handlers(
        self, group_offsets: GroupOffsetHandlers, transactions: TransactionHandlers
    ) -> dict[int, Handler]:
        """By API key, except Produce, Fetch and those of group members and transactional producers."""
        cluster, partitions, metrics = self.cluster, self.partitions, self.metrics
        config, node_id, controller, groups = self.config, self.node_id, self.controller, self.groups
        families = (
            AclHandlers(cluster=cluster, enabled=self.authorization is not None),
            ClusterHandlers(
                node_id=node_id,
                cluster=cluster,
                view_waits=self.view_waits,
                partitions=partitions,
                files=self.world.files,
                reassignments=self.reassignments,
            ),
            ConfigHandlers(
                cluster=cluster,
                controller=controller,
                config=config,
                node_id=node_id,
                readers=self.partitions.readers,
                segments=self.partitions.segments,
                clients=lambda: client_list(self.connections.open),
            ),
            CoordinatorHandlers(groups=groups, transactions=self.transactions, metrics=metrics),
            group_offsets,
            GroupHandlers(cluster=cluster, groups=groups, metrics=metrics),
            MetadataHandlers(
                cluster=cluster,
                config=config,
                cache=self.metadata_cache,
                controller=controller,
                controller_loop=self.controller_loop,
                groups=groups,
                authorization=self.authorization,
            ),
            OffsetHandlers(
                cluster=cluster,
                partitions=partitions,
                metrics=metrics,
                clock=self.world.clock,
                tasks=self.world.tasks,
            ),
            ProducerHandlers(
                cluster=cluster, partitions=partitions, transactions=self.transactions, metrics=metrics
            ),
            ReplicaHandlers(
                cluster=cluster, isr_updater=self.controller_loop.isr, reassignments=self.reassignments
            ),
            QuotaHandlers(cluster=cluster),
            TopicHandlers(
                cluster=cluster,
                controller=controller,
                config=config,
                node_id=node_id,
                throttles=self.throttles,
            ),
            transactions,
            UserHandlers(cluster=cluster, controller=controller),
        )
        return {key: handler for family in families for key, handler in family.by_key().items()}

    def _deferred_handlers(
        self, group_offsets: GroupOffsetHandlers, transactions: TransactionHandlers
    ) -> dict[int, DeferredHandler]:
        """By API key: ApiVersions and the requests of group members and transactional producers, handled
        without a task if possible."""
        versions = ApiVersionsHandlers(
            cluster=self.cluster, node_listener=self.config.inter_broker_listener, metrics=self.metrics
        )
        members = GroupMemberHandlers(groups=self.groups, metrics=self.metrics, random=self.world.random)
        return {
            **versions.deferred_by_key(),
            **members.by_key(),
            **group_offsets.deferred_by_key(),
            **transactions.deferred_by_key(),
        }

    def _forwarder(self) -> RequestForwarder:
        return RequestForwarder(
            node_id=self.node_id,
            cluster=self.cluster,
            groups=self.groups,
            peers=self.peers,
            view_waits=self.view_waits,
        )

    def why_not_ready(self) -> str | None:
        if self._phase is None and not self.partitions.writable:
            return "the disk is nearly full"
        return self._phase

    def _topic_settings(self, view: ClusterView, topic: Topic) -> TopicSettings:
        """Of the topic's own configs, the dynamic ones of this node and of all nodes, and the static ones."""
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
        """Opens logs before it registers: a registered node can serve its partitions."""
        began = self.world.clock.monotonic()
        empty = ClusterView(version=-1, cluster_id=self.cluster.view.cluster_id)
        self.partitions.removals.leftovers(self.cluster.view, alone=self.config.alone)
        self.partitions.take_back_kept_logs(self.cluster.view)
        self.partitions.apply_view(empty, self.cluster.view)
        self._apply_quotas(empty, self.cluster.view)
        self.cluster.subscribe(self._apply_quotas)
        self.replication.start()
        self.cluster.subscribe(self.partitions.apply_view)
        await self.partitions.opened()
        reports = {each.topic_partition: each.log.recovery for each in self.partitions.all()}
        log_recovery(reports, self.world.clock.monotonic() - began)
        self.lag.start()
        self.groups.start()
        self.transactions.start()
        await self.offsets.persist()
        self._housekeeping.check_disk()
        await self.disk_report.start()
        if self._token_logins is not None:
            await self._token_logins.keys.start()
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
            new_disk=self.checkpoints.new_disk,
        )
        self.cluster_timeline.start()
        self.controller_loop.start()
        await self._wait_for_admission()
        await self.offsets.loss_is_known()
        self._remove_strays()
        await self._remember_store()  # only now: the next start would remove the strays of a restored store
        self.replication.check_session()
        await self._start_http()
        self._housekeeping.start()
        self._phase = None
        self.connections.start(self.dispatcher, self.dispatcher.before_login)

    def _remove_strays(self) -> None:
        if self._store_was_restored:
            self.partitions.removals.keep_strays(self.cluster.view)
        elif not self.config.alone:
            self.partitions.removals.strays(self.cluster.view)

    def _apply_quotas(self, old: ClusterView, new: ClusterView) -> None:
        self.throttles.apply_view(old, new)
        if old.client_quotas is not new.client_quotas:
            self.connections.rates.replace(new.client_quotas)

    async def _wait_for_admission(self) -> None:
        """Until the controller, perhaps this node, expects no records of it that it may have lost (R20).

        A controller that has died is replaced when its session ends, unless other nodes noticed it before.
        """
        waits = self.view_waits
        if await waits.until(self._is_admitted, _USUAL_ADMISSION_MS):
            return
        while not self._is_admitted(view := self.cluster.view):
            controller = view.nodes.get(view.controller_id)
            session_ms = 0
            if controller is not None:
                session_ms = controller.session_ms or self.config["broker.session.timeout.ms"]
                logger.info(
                    "waiting until node %d, the controller, admits this node; if it is dead, another takes "
                    "over when its session ends, within at most %d s", controller.node_id, session_ms // 1000
                )  # fmt: skip
            timeout_ms = session_ms + _ADMISSION_TIMEOUT_MS
            if not await waits.until(partial(self._admitted_or_after, view.controller_epoch), timeout_ms):
                raise CoordinationError(
                    f"the controller (node {view.controller_id}) did not admit this node within "
                    f"{timeout_ms // 1000} s: look at that node's log, or stop it"
                )

    def _is_admitted(self, view: ClusterView) -> bool:
        return self.node_id in view.nodes

    def _admitted_or_after(self, controller_epoch: int, view: ClusterView) -> bool:
        """Another controller is given its own time."""
        return self._is_admitted(view) or view.controller_epoch > controller_epoch

    async def _start_http(self) -> None:
        host, port = self.config["headrace.metrics.host"], self.config["headrace.metrics.port"]
        if port < 0:
            return
        tls = self._metrics_tls
        try:
            await self._http.server.start(host, port, None if tls is None else tls.server)
        except OSError as error:
            raise ConfigError(
                f"headrace.metrics.port={port} cannot be listened on ({error.strerror or error}): "
                "choose another, 0 for a free one, or -1 for none"
            ) from error
        self.metrics_address = (host, self._http.server.port)

    async def _listen(self, listener: ListenerConfig) -> Endpoint:
        tls = self.tls.get(listener.name)
        try:
            bound = await self.world.network.listen(
                self.connections.factory(
                    listener.name,
                    needs_login=self._needs_login(listener),
                    principal_of=None if tls is None else tls.principal_of,
                ),
                listener.host,
                listener.port,
                tls=None if tls is None else tls.server,
            )
        except OSError as error:
            raise ConfigError(_cannot_listen(listener, error)) from error
        self._listeners.append(bound)
        return listener.endpoint(bound.port)

    def _needs_login(self, listener: ListenerConfig) -> bool:
        for_nodes = listener.name == self.config.inter_broker_listener
        private: bool = self.config["headrace.inter.broker.listener.private"]
        return listener.needs_login or (for_nodes and private)

    async def stop(self) -> None:
        """R22: ends requests, flushes logs, writes the clean-shutdown mark, then ends the session."""
        self._phase = "stopping"
        try:
            await self._controlled_shutdown()
            await self._end_service()
            await self._close_logs()
        finally:
            await self._release()

    async def _controlled_shutdown(self) -> None:
        """Controlled shutdown: moves leadership to other in-sync replicas first (R22)."""
        view = self.cluster.view
        if self.failure is not None or self.node_id not in view.nodes or len(view.nodes) == 1:
            return
        try:
            await self.cluster.announce(leaving=True)
            moved = await self.view_waits.until(self._leadership_moved, _CONTROLLED_SHUTDOWN_TIMEOUT_MS)
        except (HeadraceError, OSError) as error:
            logger.warning("controlled shutdown failed, other nodes notice the stop later: %s", error)
        else:
            if not moved:
                logger.warning("controlled shutdown timed out: this node stops while it leads partitions")

    def _leadership_moved(self, view: ClusterView) -> bool:
        others = {node.node_id for node in view.nodes.values() if not node.leaving}
        return not any(
            state.leader == self.node_id and not others.isdisjoint(state.isr)
            for topic in view.topics.values()
            for state in topic.partitions
        )

    async def _end_service(self) -> None:
        """Stops all components; requests under way are answered unless they take long."""
        for listener in self._listeners:
            listener.close()
        self.connections.stop_requests()
        if self._token_logins is not None:
            await self._token_logins.keys.stop()
        await self._housekeeping.stop()
        await self.disk_report.stop()
        await self.controller_loop.stop()
        self.enrolment.stop()
        await self.transactions.stop()
        await self.groups.stop()
        await self.replication.stop()
        await self.timeline.finish()
        await self.lag.finish()
        await self._request_tasks.stop()
        if self.failure is None:
            await self._flusher.flush_all(list(self.partitions.all()))
        await self.connections.close()

    async def _close_logs(self) -> None:
        offsets = await self.partitions.log_offsets()
        clean = await self.partitions.close()
        if self.failure is not None:
            return
        try:
            await self.offsets.save(offsets)
            if self._remembered_store.saved:
                await self._remember_store()
            if clean:
                await self.offsets.mark_clean(self.cluster.node_epoch or -1)
        except OSError as error:
            logger.error("the clean shutdown was not recorded, the next start recovers the logs: %s", error)

    async def _release(self) -> None:
        self._http.server.close()
        await self.propagation.stop()
        await self.peers.close()
        try:
            await self.cluster.close()
        except (HeadraceError, OSError) as error:
            logger.error("the coordination store was not closed cleanly: %s", error)
        await self.world.tasks.close()
        self._lock.release()

    async def _high_watermarks(self) -> dict[TopicPartition, int]:
        return await self.partitions.high_watermarks()

    async def _log_offsets(self) -> dict[TopicPartition, LogOffsets]:
        return await self.partitions.log_offsets()

    def _store_went_back(self, error: StoreWentBack) -> None:
        """Stops the node: what it would do next was decided on entries that the store does not have."""
        if self.failure is None:
            self.failure = CoordinationError(self._remembered_store.refusal(str(error)))
            logger.critical("%s", self.failure)
            self.stop_wanted.set()

    def _disk_failed(self, error: OSError) -> None:
        """R24: stops the node; after a failed fsync the page cache cannot be trusted."""
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
    """Starts a node. Raises HeadraceError with one line that says why not; then all is released."""
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
    check_format(world.files, directory)
    over_sqlite = store is None and isinstance(config.coordination, SqliteAddress)
    if store is None:
        store = await open_store(
            world, config.coordination, config.coordination_directory, zookeeper_security(config)
        )
    try:
        cluster = await ClusterMetadata.open(store, world)
    except BaseException:
        await store.close()
        raise
    try:
        checkpoints = NodeCheckpoints(world.files, directory, boot_id(world.files))
        checkpoints.note_new_disk()
        directory_id = check_meta_properties(
            world.files,
            directory,
            cluster_id=cluster.view.cluster_id,
            node_id=config["node.id"],
            new_directory_id=str(new_uuid(world.random)),
        )
        remembered = RememberedStore(world, directory, config.coordination_address)
        store_was_restored = await remembered.check(cluster)
        checkpoints.load()  # after all refusals: they leave the marker of the last clean stop
        return Broker(
            world=world,
            config=config,
            cluster=cluster,
            checkpoints=checkpoints,
            retention_clock=_retention_clock(world, directory),
            lock=lock,
            descriptors=descriptors,
            directory_id=directory_id,
            remembered_store=remembered,
            store_was_restored=store_was_restored,
            over_sqlite=over_sqlite,
        )
    except BaseException:
        await cluster.close()
        raise


def _retention_clock(world: World, directory: Path) -> RetentionClock:
    """Written down at once: the next process may start with another clock before the first minute is over."""
    file = ClockFile(world.files, directory)
    time = RetentionClock(world.clock, boot_id(world.files), file.load())
    try:
        file.save(time.reading())
    except OSError as error:
        logger.warning("the time was not written down, will be retried: %s", error)
    return time


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
