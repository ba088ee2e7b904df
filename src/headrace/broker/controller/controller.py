# SPDX-License-Identifier: Apache-2.0
"""Requests to the controller: creates and deletes topics, adds partitions, alters configs.

Decisions are pure functions in topic_rules.py, placement.py and config_changes.py. All is written through
coordination/cluster_metadata.py, fenced by the controller epoch (R2, R4). A single node is its
own controller.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from headrace.broker.controller import config_changes
from headrace.broker.controller.config_changes import Changes
from headrace.broker.controller.placement import Load, one_rack_of_one_host
from headrace.broker.controller.topic_index import TopicIndex
from headrace.broker.controller.topic_rules import (
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
    with_fewer_replicas,
)
from headrace.broker.controller.user_changes import UserChange, altered_user
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.settings.min_insync import NAME as MIN_INSYNC
from headrace.broker.partition.settings.min_insync import configured_min_insync
from headrace.config import NODE_SETTINGS, NodeConfig
from headrace.config.coordination_address import ZooKeeperAddress
from headrace.coordination.api_errors import already_exists, store_failed, unknown_topic
from headrace.coordination.cluster_metadata import Changed, ClusterMetadata
from headrace.coordination.documents import group_configs_key
from headrace.coordination.store import is_key
from headrace.errors import ApiError, CoordinationError
from headrace.machines.replication.isr import with_min_insync
from headrace.machines.replication.leader import effective_min_insync
from headrace.types import INTERNAL_TOPICS, ClusterView, PartitionState, Topic
from headrace.wire.error_codes import ErrorCode
from headrace.world import World, new_uuid

logger = logging.getLogger(__name__)

_ATTEMPTS = 10
_TOPICS_AT_ONCE = 200
"""Written in one turn of the event loop, so that other requests are served in between."""
_USERS_AT_ONCE = 200
"""Their entries fit into one commit."""

Outcome = ApiError | None
Charge = Callable[[int], None]
"""Called with the number of partitions that are created; raises ApiError beyond a quota (KIP-599)."""


class Controller:
    def __init__(
        self,
        cluster: ClusterMetadata,
        world: World,
        config: NodeConfig,
        create_on_controller: Callable[[NewTopic], Awaitable[Outcome]] | None = None,
        opened: Callable[[], Awaitable[None]] | None = None,
        known_elsewhere: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`create_on_controller` sends a request to another node that is the controller, and returns when the
        view has the topic. `opened` returns when this node has opened the logs of new partitions, and
        `known_elsewhere` when the other nodes have: a client may use them as soon as it has the reply."""
        self._create_on_controller = create_on_controller
        self._opened = opened
        self._known_elsewhere = known_elsewhere
        self._cluster = cluster
        self._world = world
        self._config = config
        self._node_id: int = config["node.id"]
        self._index = TopicIndex(cluster.view)
        cluster.subscribe(self._on_view_change)

    def _on_view_change(self, old: ClusterView, new: ClusterView) -> None:
        self._index.update(old, new, self._cluster.changed_topics(old, new))

    def leading(self, *, internal: bool) -> Counter[int]:
        """How many partitions each node leads, of internal topics or of all others; a copy."""
        return self._index.leaders(internal=internal)

    def replica_holders(self) -> set[int]:
        """Ids of the nodes that hold a replica of some partition, registered or not."""
        return self._index.replica_holders()

    def altered_node_settings(self) -> dict[str, str]:
        """Dynamic configs of this node: those of all nodes, overridden by its own."""
        altered = self._cluster.view.node_configs
        return {**altered.get("", {}), **altered.get(str(self._node_id), {})}

    def node_setting(self, name: str) -> int:
        """A number or switch among this node's settings: as altered while it runs, else as started with."""
        altered = self.altered_node_settings().get(name)
        value: int = self._config[name] if altered is None else NODE_SETTINGS[name].parse(altered)
        return value

    # Topics

    async def create_topics(
        self, requests: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge | None = None
    ) -> list[Topic | ApiError]:
        """A result per request, in order; a name that appears twice is refused."""
        defaults = self._defaults()
        try:
            check_total(requests, defaults)
        except ApiError as too_many:
            return [too_many] * len(requests)
        times = await _times(requests)
        load = self._index.load()
        answers = [
            self._plan_topic(request, defaults, load, times[request.name], charge)
            async for request in yielding(requests)
        ]
        if validate_only:
            return answers
        planned = [index for index, answer in enumerate(answers) if isinstance(answer, Topic)]
        for start in range(0, len(planned), _TOPICS_AT_ONCE):
            await self._write_new_topics(answers, planned[start : start + _TOPICS_AT_ONCE])
        await self._wait_opened()
        return answers

    async def _write_new_topics(self, answers: list[Topic | ApiError], places: Sequence[int]) -> None:
        """Writes the topics at `places`; what could not be written is replaced by the reason."""
        topics = [answer for answer in map(answers.__getitem__, places) if isinstance(answer, Topic)]
        refusals = await self._cluster.create_topics(topics)
        for place, topic, refusal in zip(places, topics, refusals, strict=True):
            if refusal is None:
                self._warn_of_min_insync(topic)
                self._warn_of_one_rack(topic)
            else:
                answers[place] = refusal

    def _warn_of_min_insync(self, topic: Topic) -> None:
        """It may be a setting of all nodes, or altered: a new topic's own one is refused."""
        given = configured_min_insync(self._config, self._cluster.view, topic)
        replicas = len(topic.partitions[0].replicas)
        if given is not None and given > replicas:
            logger.warning(
                "topic %s: min.insync.replicas=%d is more than its %d replica(s), so %d is used",
                topic.name, given, replicas, replicas,
            )  # fmt: skip

    def _warn_of_one_rack(self, topic: Topic) -> None:
        replicas = len(topic.partitions[0].replicas)
        if replicas > 1 and one_rack_of_one_host(self._cluster.view.nodes.values()):
            logger.warning(
                "topic %s has %d replicas on one host: they are lost together, and each costs what the first "
                "does; create it with replication factor 1, or run nodes on several hosts",
                topic.name, replicas,
            )  # fmt: skip

    async def ensure_topic(self, name: str) -> Topic:
        """Returns the topic, created with default settings when it does not exist (auto-creation)."""
        if name in INTERNAL_TOPICS:
            # They need their own partition counts and configs, and are created by the API that uses them.
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' is not created on demand.")
        return await self.ensure(NewTopic(name=name))

    async def ensure(self, request: NewTopic) -> Topic:
        """Returns the topic, created as requested when it does not exist; with fewer replicas if need be."""
        request = with_fewer_replicas(request, max(self.places, 1))
        answer: Topic | Outcome
        if self._cluster.is_controller or self._create_on_controller is None:
            (answer,) = await self.create_topics([request])
        else:
            answer = await self._create_on_controller(request)
        if self._known_elsewhere is not None and not isinstance(answer, ApiError):
            await self._known_elsewhere()
        if isinstance(answer, Topic):
            return answer
        existing = self._cluster.view.topics.get(request.name)
        if existing is not None and (answer is None or answer.code is ErrorCode.topic_already_exists):
            return existing
        raise answer or unknown_topic(request.name)  # created, and deleted at once

    async def delete_topics(self, names: Sequence[str]) -> list[Outcome]:
        if not self.deletion_enabled:
            return [ApiError(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")] * len(names)
        outcomes: list[Outcome] = []
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            outcomes += await self._cluster.delete_topics(names[start : start + _TOPICS_AT_ONCE])
        return outcomes

    async def _wait_opened(self) -> None:
        if self._opened is not None:
            await self._opened()

    @property
    def places(self) -> int:
        """How many replicas of a partition protect each other at most: as many as there are nodes, or hosts
        where replicas must not share one; one where all nodes are one rack of one host."""
        nodes = self._cluster.view.nodes.values()
        if one_rack_of_one_host(nodes):
            return 1
        return len({node.host_id for node in nodes}) if self._needs_hosts else len(nodes)

    @property
    def _needs_hosts(self) -> bool:
        """With ZooKeeper, which is for several hosts, replicas of a partition must be on different hosts."""
        over_hosts = isinstance(self._config.coordination, ZooKeeperAddress)
        return over_hosts and not self._config["headrace.allow.same.host"]

    @property
    def deletion_enabled(self) -> bool:
        return bool(self._config["delete.topic.enable"])

    async def create_partitions(
        self, requests: Sequence[MorePartitions], *, validate_only: bool = False, charge: Charge | None = None
    ) -> list[Outcome]:
        times = await _times(requests)
        outcomes: list[Outcome] = []
        async for request in yielding(requests):
            try:
                if times[request.name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
                await self._add_partitions(request, validate_only, charge)
                outcomes.append(None)
            except ApiError as refusal:
                outcomes.append(refusal.with_traceback(None))  # which would keep the frames of all attempts
        await self._wait_opened()
        return outcomes

    async def _add_partitions(
        self, request: MorePartitions, validate_only: bool, charge: Charge | None
    ) -> None:
        async def attempt() -> None:
            nonlocal charge
            view = self._cluster.view
            topic = view.topics.get(request.name)
            nodes = view.nodes.values()
            added = replicas_to_add(request, topic, nodes, self._index.load(), one_per_host=self._needs_hosts)
            if charge is not None:
                charge(len(added))
                charge = None  # once, however many attempts it takes
            if topic is not None and not validate_only:
                partitions = topic.partitions + first_states(added, view)
                await self._cluster.alter_topic(request.name, partitions=partitions)

        await until_unchanged(attempt)

    def _plan_topic(
        self, request: NewTopic, defaults: Defaults, load: Load, times: int, charge: Charge | None
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
            config_changes.check_key_ranges(configs, len(replicas))
            if charge is not None:
                charge(len(replicas))
        except ApiError as refusal:
            return refusal.with_traceback(None)
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

    async def alter_topic_configs(self, name: str, changes: Changes, *, validate_only: bool = False) -> None:
        """Applies changes in order, or the whole new mapping. Raises ApiError; then nothing is altered."""
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
            if altered.get(config_changes.KEY_RANGES) != present.get(config_changes.KEY_RANGES):
                config_changes.check_key_ranges(altered, len(topic.partitions))
            if not validate_only and altered != present:
                after = replace(topic, configs=altered)
                under = self._under_rules(after, self._cluster.view)
                await self._cluster.alter_topic(name, configs=altered, partitions=under)
                if altered.get(MIN_INSYNC) != present.get(MIN_INSYNC):
                    self._warn_of_min_insync(after)

        await until_unchanged(attempt)

    async def _forget_eligible(self, altered: Mapping[str, str]) -> None:
        """Clears ELRs before min.insync.replicas of all nodes is lowered: see `_under_rules`."""
        view = self._cluster.view
        view = replace(view, node_configs={**view.node_configs, "": altered})
        under = ((topic, self._under_rules(topic, view)) for topic in view.topics.values())
        changed = [replace(topic, partitions=states) for topic, states in under if states != topic.partitions]
        for refusal in filter(None, await self._cluster.write_topics(changed)):
            raise Changed(str(refusal)) if is_conflict(refusal) else refusal

    def _under_rules(self, topic: Topic, view: ClusterView) -> tuple[PartitionState, ...]:
        """The states under the configs of `topic`: with a lower min.insync.replicas the high watermark
        advances again, and replicas of the ELR no longer have all committed records."""
        given = configured_min_insync(self._config, view, topic)
        states = []
        for state in topic.partitions:
            after = with_min_insync(state, effective_min_insync(given, len(state.replicas)))
            changed = after is not state
            states.append(replace(after, controller_epoch=view.controller_epoch) if changed else state)
        return tuple(states)

    async def alter_node_configs(self, node: str, changes: Changes, *, validate_only: bool = False) -> None:
        """`node`: a live node's id as text, or "" for the default of all nodes. Raises ApiError."""
        self._check_node_name(node)

        async def attempt() -> None:
            present = self._cluster.view.node_configs.get(node, {})
            altered = config_changes.altered_node_configs(present, changes, self._config)
            if not validate_only and altered != present:
                if not node and altered.get(MIN_INSYNC) != present.get(MIN_INSYNC):
                    await self._forget_eligible(altered)
                await self._cluster.alter_node_configs(node, altered)

        await until_unchanged(attempt)

    async def alter_group_configs(
        self, group_id: str, changes: Changes, *, validate_only: bool = False
    ) -> None:
        """The group need not exist. Raises ApiError."""
        if not group_id:
            raise ApiError(ErrorCode.invalid_request, "Default group resources are not allowed.")
        if not is_key(group_configs_key(group_id)):
            raise ApiError(ErrorCode.invalid_request, "The group id is too long to have configs.")

        async def attempt() -> None:
            present = self._cluster.view.group_configs.get(group_id, {})
            altered = config_changes.altered_group_configs(present, changes, self._config)
            if not validate_only and altered != present:
                await self._cluster.alter_group_configs(group_id, altered)

        await until_unchanged(attempt)

    # Users

    async def alter_users(self, changes: Sequence[UserChange]) -> dict[str, Outcome]:
        """A result per user; one that is refused does not affect the others."""
        of_user: dict[str, list[UserChange]] = {}
        for change in changes:
            of_user.setdefault(change.user, []).append(change)
        outcomes: dict[str, Outcome] = {}
        names = list(of_user)
        for first in range(0, len(names), _USERS_AT_ONCE):
            some = names[first : first + _USERS_AT_ONCE]
            outcomes |= await self._alter_some_users({name: of_user[name] for name in some})
        return outcomes

    async def _alter_some_users(self, changes: Mapping[str, Sequence[UserChange]]) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}

        async def attempt() -> None:
            users = self._cluster.view.users
            altered = {name: altered_user(users.get(name, {}), of_user) for name, of_user in changes.items()}
            accepted = {name: new for name, new in altered.items() if not isinstance(new, ApiError)}
            if accepted:
                await self._cluster.alter_users(accepted)
            for name, new in altered.items():
                outcomes[name] = new if isinstance(new, ApiError) else None

        try:
            await until_unchanged(attempt)
        except ApiError as failure:
            return dict.fromkeys(changes, failure)
        return outcomes

    def _check_node_name(self, node: str) -> None:
        if node and node != str(self._node_id) and node not in map(str, self._cluster.view.nodes):
            raise ApiError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {self._node_id} or empty string, but received {node}",
            )

    def _check_topic_configs(self, configs: Mapping[str, str]) -> None:
        config_changes.check_topic_configs(configs, self._config, self.altered_node_settings())


async def _times(requests: Sequence[NewTopic | MorePartitions]) -> Counter[str]:
    """How often each name appears."""
    times: Counter[str] = Counter()
    async for request in yielding(requests):
        times[request.name] += 1
    return times


def is_conflict(refusal: ApiError) -> bool:
    return refusal.code is ErrorCode.invalid_update_version


async def until_unchanged(attempt: Callable[[], Awaitable[None]]) -> None:
    """Repeats an attempt, which decides on the newest view, until no other write came in between."""
    for _ in range(_ATTEMPTS):
        try:
            await attempt()
        except Changed:
            continue
        except CoordinationError as error:
            raise store_failed(error) from error
        return
    raise ApiError(ErrorCode.request_timed_out, "Other requests kept changing the same entry; try again.")
