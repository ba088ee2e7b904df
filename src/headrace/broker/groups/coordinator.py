# SPDX-License-Identifier: Apache-2.0
"""The group coordinator of a node: groups are machines on the partitions of `__consumer_offsets` it leads.

The topic is created at the first FindCoordinator. A group gets new cluster metadata before its next step, and
all are notified of deleted topics. Handlers call `submit` or `ask`; nothing here depends on API versions.
Read next: coordinators/coordinated_topic.py, group_log.py, handlers/groups.py, machines/groups/group.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from headrace.acls import Operation, ResourceType
from headrace.broker.controller.controller import Controller
from headrace.broker.coordinators.coordinated_topic import CoordinatedTopic
from headrace.broker.coordinators.machine_driver import Answer, Check, MachineKind
from headrace.broker.groups.group_log import pack_group_record, read_group_record
from headrace.broker.groups.group_settings import group_settings, offsets_topic, own_config
from headrace.broker.groups.topic_patterns import TopicPatterns
from headrace.broker.metrics import GroupCounters
from headrace.broker.partition.registry import Partitions
from headrace.broker.security.authorization import Authorization
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.machines.groups.classic.membership import GROUP_TYPE as CLASSIC
from headrace.machines.groups.consumer.events import (
    ConfigChanged,
    MetadataChanged,
    RegexResolved,
    ResolveRegex,
)
from headrace.machines.groups.events import RetentionCheck, TopicsDeleted
from headrace.machines.groups.group import CONSUMER, Group
from headrace.machines.machine import Event, Question, ReplyBody, ReplyToken, TimelineEvent
from headrace.types import ClusterView, Node, Topic, TopicId, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.commit_records import OffsetCommitsRecord
from headrace.wire.coordinator.group_records import TransactionMarkerRecord
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"


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
        self._cluster = cluster
        self._counters = counters
        self._settings = group_settings(config)
        self._patterns = TopicPatterns(world.tasks.thread("patterns"))
        self._deleted: dict[str, TopicId] = {}
        self._topics_created_at = cluster.view.version
        self._topic = CoordinatedTopic[Group](
            topic=offsets_topic(OFFSETS_TOPIC, config),
            kind=self._kind(),
            read=read_group_record,
            plural="groups",
            world=world,
            node_id=config["node.id"],
            cluster=cluster,
            controller=controller,
            partitions=partitions,
            commit_timeout_ms=config["offsets.commit.timeout.ms"],
            loads=counters.loads,
            on_loaded=self._loaded,
        )
        self._drivers = self._topic.drivers

    def _kind(self) -> MachineKind[Group]:
        return MachineKind(
            make=self._make,
            pack=pack_group_record,
            refresh=self._refresh,
            answer_question=self._answer_question,
            committed=self._committed,
        )

    # Start and stop

    def start(self) -> None:
        """Called when the partitions of the view are open. Loads groups in the background."""
        self._topic.start()
        self._cluster.subscribe(self.apply_view)

    async def stop(self) -> None:
        """Rejects requests that wait for other members; those that wait for a commit are still answered."""
        await self._topic.stop()

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
                self._topic.match_drivers(new)
        if old.group_configs is not new.group_configs:
            self._configs_changed(old, new)
        if deleted and self._drivers:
            if not self._deleted:
                self._topic.spawn(self._forget_deleted_topics(), "offsets of deleted topics")
            self._deleted.update(deleted)

    def opened_late(self, name: TopicPartition) -> None:
        """A log was opened after the view that brought it: the disk was full, or many were to be opened."""
        self._topic.opened_late(name)

    # The topic

    async def ensure_topic(self) -> Topic:
        """Returns `__consumer_offsets`, created when it does not exist."""
        return await self._topic.ensure()

    def partition_of(self, group_id: str) -> int:
        return self._topic.partition_of(group_id)

    def coordinator_of(self, group_id: str) -> Node | None:
        return self._topic.coordinator_of(group_id)

    def is_coordinator_of(self, group_id: str) -> bool:
        """By the present view, also while it cannot serve: session uncertain (R7), or log being loaded."""
        return self._topic.is_coordinator_of(group_id)

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
        self._topic.submit(group_id, make_event, answer, check=check)

    def end_transaction(
        self, index: int, marker: TransactionMarkerRecord, append: Callable[[], int], answer: Answer
    ) -> None:
        """Writes a marker to a partition of `__consumer_offsets`: pending offsets of its groups are committed
        or dropped there. `append` writes the control batch, returns its offset and raises ApiError."""
        driver = self._topic.driver_of(index)
        if driver is None or self._topic.stopped:
            answer(ApiError(ErrorCode.not_coordinator))
        else:
            driver.end_transaction(marker.producer_id, marker, append, answer)

    async def ask(self, group_id: str, make_event: Callable[[ReplyToken], Event]) -> ReplyBody:
        """As `submit`, for coroutines. Raises ApiError."""
        return await self._topic.ask(group_id, make_event)

    async def regex_problem(self, pattern: str) -> str | None:
        """Why the pattern is invalid; None when it is valid."""
        return await self._patterns.problem(pattern)

    # Reading

    async def group(self, group_id: str) -> Group | None:
        """The group with its state committed; None: there is no such group. Raises ApiError."""
        return await self._topic.machine(group_id)

    def peek(self, group_id: str) -> Group | None:
        """The group as it is now, perhaps with uncommitted state."""
        return self._topic.peek(group_id)

    async def listed(self) -> list[Group]:
        """Every group of this node, with its state committed. Raises ApiError while some are being loaded."""
        return await self._topic.listed()

    def listed_now(self) -> list[Group] | None:
        """As `listed`; None where that would fail or have to wait for a commit."""
        return self._topic.listed_now()

    def groups(self) -> Iterable[Group]:
        """All groups as they are now, for metrics."""
        return self._topic.machines()

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
            if own != old.group_configs.get(group_id, {}):
                config = own_config(self._settings.consumer, own)
                self._topic.notify(group_id, ConfigChanged(config=config))

    def _loaded(self, group: Group) -> None:
        if self.on_loaded is not None:
            self.on_loaded(group)

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
        await self._topic.notify_all(RetentionCheck(), may_be_skipped=True)

    async def _forget_deleted_topics(self) -> None:
        await self._world.tasks.sleep(0)  # more may be deleted in the same turn
        while self._deleted:
            deleted, self._deleted = self._deleted, {}
            await self._topic.notify_all(TopicsDeleted(topics=deleted))
