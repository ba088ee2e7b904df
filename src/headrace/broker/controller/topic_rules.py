# SPDX-License-Identifier: Apache-2.0
"""Validates new topics and partitions by Kafka's rules, with its error codes and messages.

Pure: a request and the view in, replicas or an ApiError out. Read next: controller.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from headrace.broker.controller.placement import Load, place_replicas
from headrace.broker.partition.settings.min_insync import NAME as MIN_INSYNC
from headrace.errors import ApiError
from headrace.types import ClusterView, Node, PartitionState, Topic
from headrace.wire.error_codes import ErrorCode

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Apache Kafka's limit; also what fits one entry of the coordination store."""
BROKER_DEFAULT = -1

_DEFAULT_REPLICAS = 3
_MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_RESERVED_NAMES = frozenset({"__cluster_metadata"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    partition_index: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A CreateTopics request for one topic; -1: the broker's default."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """A CreatePartitions request for one topic: the new count, and replicas of the partitions to add."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    partition_count: int
    replication_factor: int
    one_per_host: bool = False
    """More replicas than hosts are refused."""


def default_factor(nodes: int) -> int:
    """The replication factor of a topic created without one."""
    return max(1, min(_DEFAULT_REPLICAS, nodes))


def check_name(name: str) -> None:
    """Called before a path is made of the name (S19)."""
    if reason := _name_problem(name):
        raise ApiError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")
    if name in _RESERVED_NAMES:
        raise ApiError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")


def _name_problem(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > _MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {_MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_total(requests: Collection[NewTopic], defaults: Defaults) -> None:
    """Called before replicas are placed: a request for billions of partitions must cost nothing."""
    asked = len(requests)
    if asked <= MAX_PARTITIONS_PER_REQUEST:
        asked = sum(_asked_partitions(request, defaults) for request in requests)
    if asked > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


def _asked_partitions(request: NewTopic, defaults: Defaults) -> int:
    if request.assignments:
        return len(request.assignments)
    if request.partition_count == BROKER_DEFAULT:
        return defaults.partition_count
    return max(0, request.partition_count)


def given_configs(request: NewTopic) -> dict[str, str]:
    missing = [name for name, value in request.configs if value is None]
    if missing:
        raise ApiError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(missing)}"
        )
    return {name: value for name, value in request.configs if value is not None}


def replicas_of_new_topic(
    request: NewTopic, nodes: Collection[Node], defaults: Defaults, load: Load
) -> list[tuple[int, ...]]:
    """The replicas of each partition; `load` counts them afterwards."""
    if request.assignments:
        assigned = _assigned_replicas(request, {node.node_id for node in nodes})
        for replicas in assigned:
            load.count(replicas, replicas[0])
        return assigned
    if request.replication_factor < BROKER_DEFAULT or request.replication_factor == 0:
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if request.partition_count < BROKER_DEFAULT or request.partition_count == 0:
        raise ApiError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    asked = request.replication_factor
    factor = defaults.replication_factor if asked == BROKER_DEFAULT else asked
    _check_factor(factor, nodes, one_per_host=defaults.one_per_host)
    return place_replicas(nodes, _asked_partitions(request, defaults), factor, load)


def with_fewer_replicas(request: NewTopic, most: int) -> NewTopic:
    """The request with at most so many replicas, and a min.insync.replicas that they can reach."""
    factor = min(request.replication_factor, most)
    configs = dict(request.configs)
    min_insync = configs.get(MIN_INSYNC)
    if min_insync is not None and factor != BROKER_DEFAULT:
        configs[MIN_INSYNC] = str(min(int(min_insync), factor))
    return replace(request, replication_factor=factor, configs=tuple(configs.items()))


def check_min_insync(given: str | None, factor: int) -> None:
    """Refuses a min.insync.replicas that the new topic can never reach."""
    if given is not None and int(given) > factor:
        raise ApiError(
            ErrorCode.invalid_config,
            f"min.insync.replicas={given} is more than the topic's {factor} replica(s).",
        )


def _check_factor(factor: int, nodes: Collection[Node], *, one_per_host: bool) -> None:
    hosts = {node.host_id for node in nodes}
    if one_per_host and len(hosts) < factor <= len(nodes):
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"{factor} replicas on {len(hosts)} host(s) would share hosts, and be lost with one: start nodes "
            "on more hosts, or start every node with --allow-same-host.",
        )
    if factor > len(nodes):
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            f"cannot be reached because only {len(nodes)} broker(s) are registered.",
        )


def _assigned_replicas(request: NewTopic, node_ids: Collection[int]) -> list[tuple[int, ...]]:
    for name, value in (
        ("replication factor", request.replication_factor),
        ("numPartitions", request.partition_count),
    ):
        if value != BROKER_DEFAULT:
            raise ApiError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    assigned: dict[int, tuple[int, ...]] = {}
    for assignment in request.assignments:
        index = assignment.partition_index
        if index in assigned:
            _refuse_assignment(f"Found multiple manual partition assignments for partition {index}")
        factor = len(next(iter(assigned.values()))) if assigned else None
        _check_assignment(assignment.replicas, node_ids, factor)
        assigned[index] = assignment.replicas
    if set(assigned) != set(range(len(assigned))):
        _refuse_assignment("partitions should be a consecutive 0-based integer sequence")
    return [assigned[index] for index in range(len(assigned))]


def _check_assignment(replicas: Sequence[int], node_ids: Collection[int], factor: int | None) -> None:
    subject = "The manual partition assignment includes"
    if not replicas:
        _refuse_assignment(f"{subject} an empty replica list.")
    for node_id in sorted(replicas):
        if node_id not in node_ids:
            _refuse_assignment(f"{subject} broker {node_id}, but no such broker is registered.")
        if replicas.count(node_id) > 1:
            _refuse_assignment(f"{subject} the broker {node_id} more than once.")
    if factor is not None and len(replicas) != factor:
        _refuse_assignment(
            f"{subject} a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {factor} replica(s)."
        )


def _refuse_assignment(message: str) -> NoReturn:
    raise ApiError(ErrorCode.invalid_replica_assignment, message)


def replicas_to_add(
    request: MorePartitions,
    topic: Topic | None,
    nodes: Collection[Node],
    load: Load,
    *,
    one_per_host: bool = False,
) -> list[tuple[int, ...]]:
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"Topic '{request.name}' does not exist.")
    additional = _additional(request, len(topic.partitions))
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        _check_factor(factor, nodes, one_per_host=one_per_host)
        return place_replicas(nodes, additional, factor, load)
    if len(request.assignments) != additional:
        _refuse_assignment(
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified."
        )
    node_ids = {node.node_id for node in nodes}
    for replicas in request.assignments:
        _check_assignment(replicas, node_ids, factor)
    return list(request.assignments)


def _additional(request: MorePartitions, present: int) -> int:
    if request.count == present:
        raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if request.count < present:
        raise ApiError(
            ErrorCode.invalid_partitions,
            f"The topic {request.name} currently has {present} partition(s); {request.count} would not be "
            "an increase.",
        )
    if request.count > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.policy_violation,
            f"Unable to perform excessively large batch operation: a topic can have "
            f"{MAX_PARTITIONS_PER_REQUEST} partitions.",
        )
    return request.count - present


def first_states(replica_lists: Iterable[tuple[int, ...]], view: ClusterView) -> tuple[PartitionState, ...]:
    """States of new partitions: live replicas are in sync, the first of them leads."""
    states = []
    for replicas in replica_lists:
        alive = tuple(node_id for node_id in replicas if node_id in view.nodes)
        states.append(
            PartitionState(
                replicas=replicas,
                leader=alive[0],
                leader_epoch=0,
                isr=alive,
                controller_epoch=view.controller_epoch,
            )
        )
    return tuple(states)
