# SPDX-License-Identifier: Apache-2.0
"""Refuses a node whose variables or file describe one of several nodes while its store is its own.

Such nodes would each form a cluster and each acknowledge acks=all. Apache Kafka's nodes find each other by
`controller.quorum.voters`, ours by a store that they share (headrace.coordination).
Read next: environment.py, which reads the variables, kafka_file.py, which reads the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.config.coordination_address import CoordinationAddress, SqliteAddress
from headrace.config.environment import Variable, image_variables
from headrace.errors import ConfigError

_FIX = (
    "but without a shared store it would be a cluster of its own: set "
    "{store}=zk://HOST:2181/headrace on every node (sqlite:DIRECTORY for nodes of one host), or"
)
_NEEDS_NODES = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "min.insync.replicas",
    "transaction.state.log.min.isr",
)


def refuse_split(environment: Mapping[str, str], store: CoordinationAddress) -> None:
    """Raises ConfigError, in one line, when the variables are not those of a node that can start here."""
    _refuse(image_variables(environment), store, place="variable ", store_name="HEADRACE_COORDINATION")


def refuse_split_file(place: str, settings: Mapping[str, str], store: CoordinationAddress) -> None:
    """The same for Apache Kafka's settings of a file; `place` names it."""
    given = {name: Variable(name, name, value) for name, value in settings.items()}
    _refuse(given, store, place=f"{place}: ", store_name="headrace.coordination")


def _refuse(
    given: Mapping[str, Variable], store: CoordinationAddress, *, place: str, store_name: str
) -> None:
    roles = given.get("process.roles")
    if roles is not None and _entries(roles.value) == ["controller"]:
        raise ConfigError(
            f"{place}{roles.name}=controller: a controller is elected among the nodes, "
            "none is a controller alone: remove this container or process"
        )
    if isinstance(store, SqliteAddress) and store.directory is None:
        for reason, otherwise in _signs_of_several(given):
            raise ConfigError(f"{place}{reason}, {_FIX.format(store=store_name)} {otherwise}")


def _signs_of_several(variables: Mapping[str, Variable]) -> Iterator[tuple[str, str]]:
    """(why there must be other nodes, what to change if there are none)."""
    for setting in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        nodes = variables.get(setting)
        if nodes is not None and len(_entries(nodes.value)) > 1:
            yield f"{nodes.name} names {len(_entries(nodes.value))} nodes", f"remove {nodes.name}"
    roles = variables.get("process.roles")
    if roles is not None and _entries(roles.value) == ["broker"]:
        yield f"{roles.name}=broker leaves the controller to another node", f"remove {roles.name}"
    yield from _other_voter(variables)
    for setting in _NEEDS_NODES:
        count = variables.get(setting)
        if count is not None and count.value.strip().isdecimal() and int(count.value) > 1:
            yield f"{count.name}={count.value} needs {count.value} nodes", f"set {count.name}=1"


def _other_voter(variables: Mapping[str, Variable]) -> Iterator[tuple[str, str]]:
    voters, node = variables.get("controller.quorum.voters"), variables.get("node.id")
    if voters is None or node is None:
        return
    named = [voter.partition("@")[0] for voter in _entries(voters.value)]
    if named and node.value.strip() not in named:
        yield f"{voters.name} names node {named[0]}, and this one is {node.value}", f"remove {voters.name}"


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]
