"""The settings of a node. Kafka's names, types, ranges and defaults where Kafka has them.

Every key here is used by the broker: a key without effect does not get in (tests/docs holds that).
Read next: log_settings.py (the other half), topic_settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.config.coordination_address import FORMS, coordination_problem
from headrace.config.group_settings import GROUPS
from headrace.config.log_settings import DISK, LOG, TOPICS
from headrace.config.setting import MIB, Allowed, Setting, at_least, between, node_setting, one_of

_COORDINATION = Allowed(text=FORMS, problem=coordination_problem)
_ONE_DIRECTORY = Allowed(
    text="one directory",
    problem=lambda value: (
        None
        if len(value) == 1 and value[0]
        else f"{len(value)} directories given; a node keeps its data in one: name one directory, "
        "and join several disks below the file system"
    ),
)

IDENTITY = (
    node_setting(
        "node.id",
        "int",
        1,
        "The node's number in its cluster. Kept in meta.properties; a data directory belongs to one.",
        at_least(0),
        aliases=("broker.id",),
    ),
    node_setting(
        "broker.rack",
        "string",
        None,
        "The rack that clients are told and that placement spreads replicas over.",
    ),
    node_setting(
        "log.dirs",
        "list",
        None,
        "The directory that holds the node's data. Not set: the user's data folder "
        "(`~/.local/share/headrace` on Linux).",
        _ONE_DIRECTORY,
        aliases=("log.dir",),
    ),
    node_setting(
        "headrace.coordination",
        "string",
        "sqlite",
        "Where cluster truth (topics, assignments, epochs, settings) is kept: "
        "`sqlite` in the data directory for a node that is alone; `sqlite:DIRECTORY`, on a local disk, for "
        "nodes of one host; `zk://h1:2181,h2:2181,h3:2181/headrace` for nodes of several hosts.",
        _COORDINATION,
    ),
    node_setting(
        "headrace.allow.same.host",
        "boolean",
        False,
        "With ZooKeeper: allows replicas of a partition to share a host, when there are fewer hosts. "
        "Of a cluster over SQLite all nodes share a host anyway.",
    ),
    node_setting(
        "broker.session.timeout.ms",
        "int",
        6_000,
        "A node that is silent for this long is taken for dead; it renews its session four times as often. "
        "A process that ends is noticed without it. ZooKeeper grants no less than its minSessionTimeout.",
        at_least(100),
    ),
)

NETWORK = (
    node_setting(
        "listeners",
        "list",
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on, each `NAME://host:port`. Port 0 takes a free one.",
    ),
    node_setting(
        "advertised.listeners",
        "list",
        None,
        "The address that clients of each listener are told to use. Not set: the address listened on.",
    ),
    node_setting(
        "listener.security.protocol.map",
        "list",
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "The security protocol of each listener name, `NAME:PROTOCOL`. Only PLAINTEXT is served yet.",
    ),
    node_setting(
        "inter.broker.listener.name",
        "string",
        None,
        "The listener by which the nodes of a cluster reach each other. Not set: each node's first.",
    ),
    node_setting(
        "listeners.allow.anonymous",
        "boolean",
        False,
        "Allows listeners without authentication on addresses that other machines can reach.",
    ),
    node_setting(
        "max.connections",
        "int",
        10_000,
        "Connections open at one time; further ones are closed at once.",
        at_least(0),
    ),
    node_setting(
        "max.connections.per.ip",
        "int",
        8_000,
        "The same for one client address, so that one host cannot take every place.",
        at_least(0),
    ),
    node_setting(
        "connections.max.idle.ms",
        "long",
        600_000,
        "A connection without a request for this long is closed.",
        at_least(1),
    ),
    node_setting(
        "socket.request.max.bytes",
        "int",
        100 * MIB,
        "The largest request; a larger one closes its connection.",
        at_least(1),
    ),
    node_setting(
        "headrace.request.memory.bytes",
        "long",
        256 * MIB,
        "Memory for large requests that are being received, for all connections together; a connection that "
        "finds no room waits.",
        at_least(MIB),
    ),
    node_setting(
        "headrace.connection.max.in.flight.requests",
        "int",
        1_000,
        "Unanswered requests of one connection; reading from it pauses beyond them.",
        at_least(1),
    ),
    node_setting(
        "fetch.max.bytes",
        "int",
        55 * MIB,
        "The most record bytes in one fetch reply, whatever the client asks.",
        at_least(1024),
    ),
    node_setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1_000,
        "Fetch sessions kept (KIP-227).",
        at_least(0),
    ),
)

OPERATIONS = (
    node_setting(
        "headrace.metrics.host", "string", "127.0.0.1", "The address of `/metrics`, `/healthz` and `/readyz`."
    ),
    node_setting(
        "headrace.metrics.port",
        "int",
        0,
        "Their port. 0: a free one, named in the ready line; -1: none.",
        between(-1, 65535),
    ),
    node_setting(
        "headrace.log.format",
        "string",
        "text",
        "The node's own log lines, on standard error.",
        one_of("text", "json"),
    ),
)

NODE_GROUPS: Mapping[str, tuple[Setting, ...]] = MappingProxyType(
    {
        "Identity and place": IDENTITY,
        "Network": NETWORK,
        "Topics and records": TOPICS,
        "The log": LOG,
        "The disk": DISK,
        "Consumer groups": GROUPS,
        "Operation": OPERATIONS,
    }
)
NODE_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {setting.name: setting for group in NODE_GROUPS.values() for setting in group}
)
