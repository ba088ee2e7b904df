"""The controller: carries out what changes topics and settings, as Kafka would answer it.

Decisions are pure and live in topic_rules.py, placement.py and config_changes.py; truth is written through
coordination/cluster.py, fenced by the controller epoch (R2, R4). One node is its own controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from headrace.broker import config_changes
from headrace.broker.config_changes import Changes
from headrace.broker.min_insync import NAME as MIN_INSYNC
from headrace.broker.min_insync import configured_min_insync
from headrace.broker.placement import Load
from headrace.broker.topic_index import TopicIndex
from headrace.broker.topic_rules import (
    Defaults,
    MorePartitions,
    NewTopic,
    check_min_insync,
    check_name,
    check_total,
    default_factor,
    first_states,
    given_configs,
    replicas_of_new_topic,
    replicas_to_add,
)
from headrace.broker.turns import in_turns
from headrace.config import NodeConfig
from headrace.config.coordination_address import ZooKeeperAddress
from headrace.coordination.cluster import Changed, Cluster
from headrace.coordination.documents import group_configs_key
from headrace.coordination.refusals import already_exists, store_failed, unknown_topic
from headrace.coordination.store import is_key
from headrace.errors import ApiError, CoordinationError
from headrace.machines.isr import with_min_insync
from headrace.machines.leader import effective_min_insync
from headrace.types import INTERNAL_TOPICS, ClusterView, PartitionState, Topic
from headrace.wire.error_codes import ErrorCode
from headrace.world import World, new_uuid

_ATTEMPTS = 10

Outcome = ApiError | None


class Controller:
    def __init__(
        self,
        cluster: Cluster,
        world: World,
        config: NodeConfig,
        created_elsewhere: Callable[[NewTopic], Awaitable[Outcome]] | None = None,
    ) -> None:
        """`created_elsewhere` asks the node that is the controller, and knows the answer in the view then."""
        self._created_elsewhere = created_elsewhere
        self._cluster = cluster
        self._world = world
        self._config = config
        self._node_id: int = config["node.id"]
        self._index = TopicIndex(cluster.view)
        self.opened: Callable[[], Awaitable[None]] = _at_once
        """Whoever asked for partitions may use those of this node as soon as it has its answer."""
        cluster.subscribe(self._follow)

    def _follow(self, old: ClusterView, new: ClusterView) -> None:
        self._index.follow(old, new, self._cluster.changed_topics(old, new))

    def leading(self, *, internal: bool) -> Counter[int]:
        """How many partitions of internal topics, or of the others, each node leads; a copy, to plan with."""
        return self._index.leaders(internal=internal)

    def altered_node_settings(self) -> dict[str, str]:
        """Settings of this node that were altered while it runs: for all nodes, then for this one."""
        altered = self._cluster.view.node_configs
        return {**altered.get("", {}), **altered.get(str(self._node_id), {})}

    # Topics

    async def create_topics(
        self, requests: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | ApiError]:
        """An answer per request, in order; names that appear twice are refused."""
        defaults = self._defaults()
        try:
            check_total(requests, defaults)
        except ApiError as too_many:
            return [too_many] * len(requests)
        times = Counter(request.name for request in requests)
        load = self._index.load()
        answers = [
            self._plan_topic(request, defaults, load, times[request.name])
            async for request in in_turns(requests)
        ]
        if validate_only:
            return answers
        planned = [index for index, answer in enumerate(answers) if isinstance(answer, Topic)]
        topics = [answer for answer in answers if isinstance(answer, Topic)]
        for index, refusal in zip(planned, await self._cluster.create_topics(topics), strict=True):
            if refusal is not None:
                answers[index] = refusal
        await self.opened()
        return answers

    async def ensure_topic(self, name: str) -> Topic:
        """The topic of this name, made with the defaults when there is none (auto-creation)."""
        if name in INTERNAL_TOPICS:
            # They need their own partition counts and settings, and come with the API that uses them.
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' is not made on demand.")
        return await self.ensure(NewTopic(name=name))

    async def ensure(self, request: NewTopic) -> Topic:
        """The topic of this name, made as asked for when there is none; in fewer replicas if need be."""
        request = replace(request, replication_factor=min(request.replication_factor, max(self.places, 1)))
        answer: Topic | Outcome
        if self._cluster.is_controller or self._created_elsewhere is None:
            (answer,) = await self.create_topics([request])
        else:
            answer = await self._created_elsewhere(request)
        if isinstance(answer, Topic):
            return answer
        existing = self._cluster.view.topics.get(request.name)
        if existing is not None and (answer is None or answer.code is ErrorCode.topic_already_exists):
            return existing
        raise answer or unknown_topic(request.name)  # made, and deleted at once

    async def delete_topics(self, names: Sequence[str]) -> list[Outcome]:
        if not self.deletion_enabled:
            return [ApiError(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")] * len(names)
        return await self._cluster.delete_topics(names)

    @property
    def places(self) -> int:
        """How many replicas of a partition can be apart."""
        nodes = self._cluster.view.nodes.values()
        return len({node.host_id for node in nodes}) if self._needs_hosts else len(nodes)

    @property
    def _needs_hosts(self) -> bool:
        """ZooKeeper is for several hosts: replicas that go with one host would not be what was asked for."""
        over_hosts = isinstance(self._config.coordination, ZooKeeperAddress)
        return over_hosts and not self._config["headrace.allow.same.host"]

    @property
    def deletion_enabled(self) -> bool:
        return bool(self._config["delete.topic.enable"])

    async def create_partitions(
        self, requests: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[Outcome]:
        times = Counter(request.name for request in requests)
        outcomes: list[Outcome] = []
        async for request in in_turns(requests):
            try:
                if times[request.name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
                await self._add_partitions(request, validate_only)
                outcomes.append(None)
            except ApiError as refusal:
                outcomes.append(refusal)
        await self.opened()
        return outcomes

    async def _add_partitions(self, request: MorePartitions, validate_only: bool) -> None:
        async def attempt() -> None:
            view = self._cluster.view
            topic = view.topics.get(request.name)
            nodes = view.nodes.values()
            added = replicas_to_add(
                request, topic, nodes, self._index.load(), one_per_host=self._needs_hosts
            )
            if topic is not None and not validate_only:
                partitions = topic.partitions + first_states(added, view)
                await self._cluster.alter_topic(request.name, partitions=partitions)

        await _until_unchanged(attempt)

    def _plan_topic(
        self, request: NewTopic, defaults: Defaults, load: Load, times: int
    ) -> Topic | ApiError:
        view = self._cluster.view
        try:
            if times > 1:
                raise ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
            check_name(request.name)
            if request.name in view.topics:
                raise already_exists(request.name)
            if other := self._index.collides_with(request.name):
                raise ApiError(
                    ErrorCode.invalid_topic_exception,
                    f"Topic '{request.name}' collides with existing topic: {other}",
                )
            configs = given_configs(request)
            self._check_topic_configs(configs)
            replicas = replicas_of_new_topic(request, view.nodes.values(), defaults, load)
            check_min_insync(configs.get(MIN_INSYNC), len(replicas[0]))
        except ApiError as refusal:
            return refusal
        return Topic(
            name=request.name,
            topic_id=new_uuid(self._world.random),
            partitions=first_states(replicas, view),
            configs=configs,
        )

    def _defaults(self) -> Defaults:
        given = self._config["default.replication.factor"]
        return Defaults(
            partition_count=self._config["num.partitions"],
            replication_factor=default_factor(self.places) if given is None else given,
            one_per_host=self._needs_hosts,
        )

    # Settings

    async def alter_topic_configs(
        self, name: str, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """Changes one after the other, or the whole new mapping. Raises ApiError; then nothing is altered."""
        if not name:
            raise ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        check_name(name)

        async def attempt() -> None:
            topic = self._cluster.view.topics.get(name)
            present = {} if topic is None else topic.configs
            altered = config_changes.altered_topic_configs(
                present, changes, self._config, self.altered_node_settings()
            )
            self._check_topic_configs(altered)
            if topic is None:
                raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
            if not validate_only and altered != present:
                under = self._under_rules(replace(topic, configs=altered), self._cluster.view)
                await self._cluster.alter_topic(name, configs=altered, partitions=under)

        await _until_unchanged(attempt)

    async def _forget_eligible(self, altered: Mapping[str, str]) -> None:
        """Before the minimum of all nodes is lower: see `_under_rules`."""
        view = self._cluster.view
        view = replace(view, node_configs={**view.node_configs, "": altered})
        under = ((topic, self._under_rules(topic, view)) for topic in view.topics.values())
        changed = [replace(topic, partitions=states) for topic, states in under if states != topic.partitions]
        for refusal in filter(None, await self._cluster.write_topics(changed)):
            raise Changed(str(refusal)) if is_conflict(refusal) else refusal

    def _under_rules(self, topic: Topic, view: ClusterView) -> tuple[PartitionState, ...]:
        """Written with a lower minimum: past it the high watermark moves on again, away from the eligible."""
        given = configured_min_insync(self._config, view, topic)
        return tuple(
            with_min_insync(state, effective_min_insync(given, len(state.replicas)))
            for state in topic.partitions
        )

    async def alter_node_configs(
        self, node: str, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """`node`: a live node's id as text, or "" for the default of all nodes. As above otherwise."""
        self._check_node_name(node)

        async def attempt() -> None:
            present = self._cluster.view.node_configs.get(node, {})
            altered = config_changes.altered_node_configs(present, changes, self._config)
            if not validate_only and altered != present:
                if not node and altered.get(MIN_INSYNC) != present.get(MIN_INSYNC):
                    await self._forget_eligible(altered)
                await self._cluster.alter_node_configs(node, altered)

        await _until_unchanged(attempt)

    async def alter_group_configs(
        self, group_id: str, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """As above; the group need not exist."""
        if not group_id:
            raise ApiError(ErrorCode.invalid_request, "Default group resources are not allowed.")
        if not is_key(group_configs_key(group_id)):
            raise ApiError(ErrorCode.invalid_request, "The group id is too long to have settings.")

        async def attempt() -> None:
            present = self._cluster.view.group_configs.get(group_id, {})
            altered = config_changes.altered_group_configs(present, changes, self._config)
            if not validate_only and altered != present:
                await self._cluster.alter_group_configs(group_id, altered)

        await _until_unchanged(attempt)

    def _check_node_name(self, node: str) -> None:
        if node and node != str(self._node_id) and node not in map(str, self._cluster.view.nodes):
            raise ApiError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {self._node_id} or empty string, but received {node}",
            )

    def _check_topic_configs(self, configs: Mapping[str, str]) -> None:
        config_changes.check_topic_configs(configs, self._config, self.altered_node_settings())


async def _at_once() -> None:
    """Where logs are nobody's business."""


def is_conflict(refusal: ApiError) -> bool:
    return refusal.code is ErrorCode.invalid_update_version


async def _until_unchanged(attempt: Callable[[], Awaitable[None]]) -> None:
    """An attempt decides on the newest view and writes; when that changed in between, it decides again."""
    for _ in range(_ATTEMPTS):
        try:
            await attempt()
        except Changed:
            continue
        except CoordinationError as error:
            raise store_failed(error) from error
        return
    raise ApiError(ErrorCode.request_timed_out, "Other requests kept changing the same thing; try again.")
