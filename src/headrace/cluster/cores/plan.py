# SPDX-License-Identifier: Apache-2.0
"""Which node each core is: its id, ports and data directory, and what a folder refuses.

Values in, values out; reads nothing. Read next: existing.py (what the folder holds), engine.py (starts them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.cluster.cores.existing import Existing
from headrace.cluster.plan import ClusterError, ClusterPlan, Member, new_cluster_id
from headrace.config import ListenerConfig, NodeConfig
from headrace.config.listeners import format_address

_LAST_PORT = 65_535
_NAMES_SHOWN = 5
IN_THE_FOLDER = "."
"""The data directory of a core that was a single node before."""

FreePorts = Callable[[int], Sequence[int]]
CorePorts = Mapping[str, tuple[int, ...]]
"""For each listener, the port of each core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLayout:
    """The plan, and the listeners of each of its members in their order."""

    plan: ClusterPlan
    listeners: tuple[tuple[ListenerConfig, ...], ...]

    def index_of(self, node_id: int) -> int:
        return [member.node_id for member in self.plan.members].index(node_id)


def lay_out(config: NodeConfig, count: int, existing: Existing, free_ports: FreePorts) -> CoreLayout:
    """The cores of `config.data_directory`. Raises ClusterError for what does not go together."""
    _refuse(config, count, existing)
    members = _members(config, count, existing)
    listeners = _listeners(config, count, free_ports)
    placed = tuple(
        replace(member, host=own[0].advertised_host, port=own[0].advertised_port or own[0].port, wanted="up")
        for member, own in zip(members, listeners, strict=True)
    )
    found = existing.plan
    plan = ClusterPlan(
        engine="headrace",
        coordination=f"sqlite:{config.data_directory / 'coordination'}",
        cluster_id=new_cluster_id() if found is None else found.cluster_id,
        members=placed,
        next_id=max(placed[-1].node_id + 1, 0 if found is None else found.next_id),
        cores=True,
    )
    return CoreLayout(plan=plan, listeners=listeners)


def core_settings(config: NodeConfig, listeners: Sequence[ListenerConfig], rack: str) -> dict[str, str]:
    """What differs from the settings that the user gave, for one core."""
    settings = {
        "listeners": ",".join(f"{each.name}://{format_address(each.host, each.port)}" for each in listeners),
        "advertised.listeners": ",".join(
            f"{each.name}://{format_address(each.advertised_host, each.advertised_port)}"
            for each in listeners
        ),
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.security_protocol}" for each in listeners
        ),
    }
    of_one_host = {"broker.rack": rack, "group.initial.rebalance.delay.ms": "0"}
    return settings | {key: value for key, value in of_one_host.items() if key not in config.explicit}


def _refuse(config: NodeConfig, count: int, existing: Existing) -> None:
    folder, plan = config.data_directory, existing.plan
    if not config.alone:
        raise ClusterError(
            f"{config.origin('headrace.coordination')}: --cores keeps the store of its nodes in the data "
            "directory, and another one is named",
            "leave it out, or start one `headrace serve` for each node",
        )
    if plan is None:
        _refuse_other_node_id(config, folder, existing.single_node_id)
        return
    if not plan.cores:
        raise ClusterError(
            f"{folder} has a cluster of {len(plan.members)} nodes",
            f"start it: headrace cluster up --dir {folder}",
        )
    _refuse_other_node_id(config, folder, plan.members[0].node_id)
    if any(existing.partitions.get(member.node_id) for member in plan.members[count:]):
        raise _fewer(folder, count, existing, plan)


def _refuse_other_node_id(config: NodeConfig, folder: Path, found: int | None) -> None:
    if found is not None and "node.id" in config.explicit and config["node.id"] != found:
        raise ClusterError(
            f"{config.origin('node.id')}: node.id={config['node.id']}, but the first core of {folder} is "
            f"node {found}",
            "leave out the node id, or name another data directory",
        )


def _fewer(folder: Path, count: int, existing: Existing, plan: ClusterPlan) -> ClusterError:
    surplus = [member.node_id for member in plan.members[count:]]
    held = []
    for index, node in enumerate(surplus, start=count):
        names = existing.partitions.get(node, ())
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        held.append(
            f"core {index} (node {node}) holds {len(names)} partition{'s' * (len(names) != 1)}"
            + (f" ({shown})" if names else "")
        )
    removals = "; ".join(f"headrace cluster remove {node} --dir {folder}" for node in reversed(surplus))
    return ClusterError(
        f"{folder} has {len(plan.members)} cores, not {count}: {'; '.join(held)}",
        f"start it with --cores {len(plan.members)}, move them while it runs: {removals}; then start it with "
        f"--cores {count}",
    )


def _members(config: NodeConfig, count: int, existing: Existing) -> list[Member]:
    """Those of the plan, and after them new ones. Ids of removed cores are not used again."""
    members = [] if existing.plan is None else list(existing.plan.members[:count])
    if not members:
        first = existing.single_node_id
        node_id = config["node.id"] if first is None else first
        members.append(Member(node_id=node_id, port=0, data=None if first is None else IN_THE_FOLDER))
    next_id = max(members[-1].node_id + 1, 0 if existing.plan is None else existing.plan.next_id)
    while len(members) < count:
        members.append(Member(node_id=next_id, port=0))
        next_id += 1
    return members


def _listeners(
    config: NodeConfig, count: int, free_ports: FreePorts
) -> tuple[tuple[ListenerConfig, ...], ...]:
    ports = {each.name: _ports(each, count, free_ports) for each in config.listeners}
    _refuse_shared_ports(config, ports)
    return tuple(
        tuple(
            replace(
                each,
                port=ports[each.name][index],
                advertised_port=each.advertised_port + index
                if each.advertised_port
                else ports[each.name][index],
            )
            for each in config.listeners
        )
        for index in range(count)
    )


def _ports(listener: ListenerConfig, count: int, free_ports: FreePorts) -> tuple[int, ...]:
    if listener.port == 0:
        return tuple(free_ports(count))
    for port in (listener.port, listener.advertised_port):
        if port + count - 1 > _LAST_PORT:
            raise ClusterError(
                f"listener {listener.name}: {count} cores take the ports from {port} on, and {_LAST_PORT} is "
                "the last",
                "choose a smaller port",
            )
    return tuple(range(listener.port, listener.port + count))


def _refuse_shared_ports(config: NodeConfig, ports: CorePorts) -> None:
    taken: dict[int, str] = {}
    metrics = config["headrace.metrics.port"]
    if metrics > 0:
        taken[metrics] = "the metrics endpoint"
    for name, own in ports.items():
        for port in own:
            other = taken.setdefault(port, f"listener {name}")
            if other != f"listener {name}":
                raise ClusterError(
                    f"listener {name} takes the ports {own[0]} to {own[-1]}, one for each core, and {other} "
                    f"has port {port}",
                    f"leave room for {len(own)} ports behind each",
                )
