"""Kafka settings that Headrace does not have, and what to do instead of setting them.

A file or flag that sets one is refused with this advice; from the environment it is ignored with it, since
container files are full of them (environment.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.topic_settings import TOPIC_SETTINGS

_OWN_CLUSTER = "nodes meet in headrace.coordination, and time controller and replication themselves"
_NO_SECURITY = "only PLAINTEXT listeners are served yet"
_OWN_SHAPE = "the node sizes its threads and buffers itself"
_NO_SUCH_GROUPS = "share groups and Streams groups are not served yet"
_NO_TRANSACTIONS = "transactions are not served yet"
_JVM = "it is for the Java virtual machine, and there is none"

_REASONS = {
    "log.flush.": "the flush policy is headrace.flush.default (ack, interval or os)",
    "zookeeper.": "name the ensemble in headrace.coordination, as zk://HOST:PORT,…/PATH",
    "remote.": "there is no tiered storage",
    "log.cleaner.enable": "compaction is always on; choose with cleanup.policy",
    "max.connections.per.ip.overrides": "one limit holds for every address: max.connections.per.ip",
    "cluster.id": "a new node makes its own cluster id and keeps it",
    "metadata.log.": _OWN_CLUSTER,
    "process.roles": _OWN_CLUSTER,
    "controller.": _OWN_CLUSTER,
    "quorum.": _OWN_CLUSTER,
    "initial.broker.": _OWN_CLUSTER,
    "broker.": _OWN_CLUSTER,
    "inter.broker.": _OWN_CLUSTER,
    "control.plane.": _OWN_CLUSTER,
    "controlled.shutdown.": _OWN_CLUSTER,
    "replica.": _OWN_CLUSTER,
    "replication.": _OWN_CLUSTER,
    "leader.": _OWN_CLUSTER,
    "follower.": _OWN_CLUSTER,
    "auto.leader.": _OWN_CLUSTER,
    "num.replica.": _OWN_CLUSTER,
    "group.coordinator.rebalance.protocols": "the classic and the consumer protocol are always served",
    "group.coordinator.": _OWN_SHAPE,
    "group.share.": _NO_SUCH_GROUPS,
    "group.streams.": _NO_SUCH_GROUPS,
    "share.": _NO_SUCH_GROUPS,
    "streams.": _NO_SUCH_GROUPS,
    "offsets.load.buffer.size": _OWN_SHAPE,
    "offsets.topic.compression.codec": "offsets are stored uncompressed; compaction keeps them few",
    "offsets.commit.required.acks": "commits wait for all replicas in sync",
    "consumer.": "it is set for a single group, with the tools that alter settings",
    "transaction.": _NO_TRANSACTIONS,
    "transactional.": _NO_TRANSACTIONS,
    "ssl.": _NO_SECURITY,
    "sasl.": _NO_SECURITY,
    "security.": _NO_SECURITY,
    "authorizer.": _NO_SECURITY,
    "super.users": _NO_SECURITY,
    "allow.everyone.": _NO_SECURITY,
    "principal.": _NO_SECURITY,
    "listener.name.": _NO_SECURITY,
    "connection.failed.authentication.": _NO_SECURITY,
    "connections.max.reauth.": _NO_SECURITY,
    "delegation.token.": _NO_SECURITY,
    "password.encoder.": _NO_SECURITY,
    "num.network.": _OWN_SHAPE,
    "num.io.": _OWN_SHAPE,
    "num.recovery.": _OWN_SHAPE,
    "background.threads": _OWN_SHAPE,
    "queued.max.": _OWN_SHAPE,
    "socket.send.": _OWN_SHAPE,
    "socket.receive.": _OWN_SHAPE,
    "socket.listen.": _OWN_SHAPE,
    "log.cleaner.threads": _OWN_SHAPE,
    "log.cleaner.io.": _OWN_SHAPE,
    "request.timeout.": _OWN_SHAPE,
    "purgatory.": _OWN_SHAPE,
    "fetch.purgatory.": _OWN_SHAPE,
    "producer.purgatory.": _OWN_SHAPE,
    "delete.records.purgatory.": _OWN_SHAPE,
    "producer.id.expiration.check.": _OWN_SHAPE,
    "log.preallocate": "segments grow as they are written",
    "metric.": "figures are on /metrics (headrace.metrics.port)",
    "metrics.": "figures are on /metrics (headrace.metrics.port)",
    "auto.include.jmx.": "figures are on /metrics (headrace.metrics.port)",
    "jmx.": "figures are on /metrics (headrace.metrics.port)",
    "confluent.": "it is for Confluent's distribution",
    "heap.opts": _JVM,
    "opts": _JVM,
    "jvm.": _JVM,
    "gc.log.": _JVM,
    "log4j.": _JVM,
    "tools.log4j.": _JVM,
}


def reason_not_served(name: str) -> str | None:
    """Why Headrace does without this Kafka setting; None when it is no such setting."""
    for known, reason in _REASONS.items():
        if name == known or (known.endswith(".") and name.startswith(known)):
            return reason
    return None


def explain_unknown(name: str) -> str:
    """The rest of a sentence that begins with the origin of an unknown node setting."""
    topic_setting = TOPIC_SETTINGS.get(name)
    if topic_setting is not None:
        behind = topic_setting.node_name
        return f"{name} is a setting of topics" + (
            f"; the default for all of them is {behind}" if behind else ""
        )
    reason = reason_not_served(name)
    if reason is not None:
        return f"{name} is a setting of Apache Kafka that Headrace does not have: {reason}. Remove it"
    return f"unknown setting {name}{nearest(name, NODE_SETTINGS)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` with the closest known name, or the place where all names stand."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else "; docs/configuration.md lists them all"
