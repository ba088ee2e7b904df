# SPDX-License-Identifier: Apache-2.0
"""The settings of a node. Kafka's names, types, ranges and defaults where Kafka has them.

Every key here is used by the broker (a test in tests/docs checks that), but for those that are marked as not
effective.
Read next: log_settings.py (the other half), topic_settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.config.coordination_address import FORMS, coordination_problem
from headrace.config.feature_settings import FEATURES
from headrace.config.group_settings import GROUPS
from headrace.config.log_settings import DISK, LOG, TOPICS
from headrace.config.metrics_settings import METRICS
from headrace.config.security.acl_settings import ACLS
from headrace.config.security.quota_settings import QUOTAS
from headrace.config.security.sasl_settings import OAUTH, SASL
from headrace.config.security.tls_settings import TLS
from headrace.config.security.zookeeper_settings import ZOOKEEPER
from headrace.config.setting import MIB, Allowed, Setting, at_least, node_setting, one_of
from headrace.config.transaction_settings import TRANSACTIONS

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
        "The rack of the node, returned to clients; replicas are spread over racks.",
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
        "Where the cluster's metadata (topics, assignments, epochs, settings) is stored: "
        "`sqlite` in the data directory for a node that is alone; `sqlite:DIRECTORY`, on a local disk, for "
        "nodes of one host; `zk://h1:2181,h2:2181,h3:2181/headrace` for nodes of several hosts.",
        _COORDINATION,
    ),
    node_setting(
        "headrace.coordination.backup.interval.ms",
        "long",
        600_000,
        "How often the controller backs up a SQLite store to the folder `backups` beside it; 0: never.",
        at_least(0),
    ),
    node_setting(
        "headrace.coordination.backups.kept",
        "int",
        24,
        "How many of these backups are kept; the oldest are removed.",
        at_least(1),
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
        "Session timeout of a node; it renews its session four times as often. "
        "A process that ends is noticed without it. ZooKeeper grants no less than its minSessionTimeout.",
        at_least(100),
    ),
)

NETWORK = (
    node_setting(
        "listeners",
        "list",
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on, each `NAME://host:port`. Port 0 means any free port.",
    ),
    node_setting(
        "advertised.listeners",
        "list",
        None,
        "The address that each listener advertises to clients. Not set: the address listened on.",
    ),
    node_setting(
        "listener.security.protocol.map",
        "list",
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "The security protocol of each listener name, `NAME:PROTOCOL`: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL.",
    ),
    node_setting(
        "inter.broker.listener.name",
        "string",
        None,
        "The listener by which the nodes of a cluster reach each other. Not set: each node's first. "
        "Only this listener takes requests of nodes.",
    ),
    node_setting(
        "headrace.inter.broker.listener.private",
        "boolean",
        False,
        "The listener between nodes takes connections of nodes only: every other client is refused there. "
        "Needs another listener for clients. Set it when no node of an earlier release is in the cluster.",
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
        "The same for one client address, so that one host cannot use up the limit.",
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
        "Memory for requests that are being received and large replies that are being sent, for all "
        "connections together; a connection that finds no room waits. One client address gets three quarters "
        "at most. While others wait, clients that stop sending or reading for two seconds are closed.",
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
        "Fetch sessions that the node keeps (KIP-227).",
        at_least(0),
    ),
)

OPERATIONS = (
    node_setting(
        "headrace.log.format",
        "string",
        "text",
        "Format of the node's log lines on standard error.",
        one_of("text", "json"),
    ),
    node_setting(
        "headrace.log.level",
        "string",
        "info",
        "The least severe messages that the node's log has.",
        one_of("debug", "info", "warning", "error"),
    ),
)

NODE_GROUPS: Mapping[str, tuple[Setting, ...]] = MappingProxyType(
    {
        "Identity and place": IDENTITY,
        "ZooKeeper": ZOOKEEPER,
        "Network": NETWORK,
        "TLS": TLS,
        "Logins (SASL)": (*SASL, *OAUTH),
        "Authorization": ACLS,
        "Quotas": QUOTAS,
        "Topics and records": TOPICS,
        "The log": LOG,
        "The disk": DISK,
        "Consumer groups": GROUPS,
        "Transactions": TRANSACTIONS,
        "Features": FEATURES,
        "Metrics endpoint": METRICS,
        "Operation": OPERATIONS,
    }
)
NODE_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {setting.name: setting for group in NODE_GROUPS.values() for setting in group}
)

LISTENER_PREFIX = "listener.name."


def listener_key(listener: str, setting: str) -> str:
    """The key that sets a setting for one listener alone."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{setting}"


def split_listener_key(key: str) -> tuple[str, Setting] | None:
    """The listener, in upper case, and the setting of a `listener.name.` key; None for another key."""
    rest = key.removeprefix(LISTENER_PREFIX)
    if rest == key:
        return None
    for setting in NODE_SETTINGS.values():
        listener = rest.removesuffix("." + setting.name)
        if setting.per_listener and listener != rest and listener:
            return listener.upper(), setting
    return None
