# SPDX-License-Identifier: Apache-2.0
"""Kafka settings that Headrace does not have, and what to do instead of setting them.

A flag that sets one is refused with this advice. From the environment it is ignored with it, since container
files are full of them (environment.py), unless it asks for access control. From a file it is ignored where it
only concerns Kafka's own processes (kafka_file.py), and refused where it decides about data or access.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.topic_settings import TOPIC_SETTINGS

ACCESS_CONTROL: dict[str, tuple[str, ...]] = {
    "authorizer.": (),
    "super.users": (),
    "allow.everyone.if.no.acl.found": ("true",),
    "ssl.": (),
    "ssl.client.auth": ("none",),
    "sasl.": (),
    "security.inter.broker.protocol": ("PLAINTEXT",),
    "listener.name.": (),
    "principal.": (),
    "delegation.token.": (),
    # of Bitnami's image
    "client.users": (),
    "client.passwords": (),
    "tls.": (),
}
"""Settings that ask for a login, encryption or ACLs, with the values that ask for none. A node that ignored
them would serve everybody: from the environment they are refused. What is served leaves this table."""
_NAMES = frozenset(name for each in NODE_SETTINGS.values() for name in (each.name, *each.aliases))
_JAAS_OPTION = "java.security.auth.login.config"

NO_QUORUM = (
    "there is no controller quorum; nodes find each other through headrace.coordination, "
    "and set the timing of replication themselves"
)
_USERS = "users are in the coordination store: headrace users add, or kafka-configs --entity-type users"
_NODE_LOGIN = "nodes log in to each other by a secret of their own"
_NO_KERBEROS = "Kerberos is not served: use SCRAM, or OAUTHBEARER (docs/decisions/0028)"
_NO_TOKENS = "delegation tokens are not served (docs/decisions/0028)"
_NO_CLASSES = "no class is loaded by its name; mechanisms are chosen by sasl.enabled.mechanisms"
_PER_LISTENER = "a listener may have its own ssl.…, sasl.enabled.mechanisms and connections.max.reauth.ms"
_OPENSSL = "TLS is OpenSSL's, with its own choice of ciphers, random numbers and certificate checks"
_OWN_SHAPE = "the node sizes its threads and buffers itself"
_NO_SUCH_GROUPS = "share groups and Streams groups are not served yet"
_JVM = "it is for the Java virtual machine, and there is none"
_FIGURES = "figures are on /metrics (headrace.metrics.port)"
_OF_KAFKAS_PROCESSES = (NO_QUORUM, _OWN_SHAPE, _NO_SUCH_GROUPS, _JVM, _FIGURES)

_REASONS = {
    "log.flush.": "the flush policy is headrace.flush.default (ack, interval or os)",
    "zookeeper.": "name the ensemble in headrace.coordination, as zk://HOST:PORT,…/PATH",
    "remote.": "there is no tiered storage",
    "log.cleaner.enable": "compaction is always on; choose with cleanup.policy",
    "max.connections.per.ip.overrides": "one limit holds for every address: max.connections.per.ip",
    "cluster.id": "a new node makes its own cluster id and keeps it",
    "kraft.cluster.id": "a new node makes its own cluster id and keeps it",
    "metadata.log.": NO_QUORUM,
    "process.roles": NO_QUORUM,
    "controller.": NO_QUORUM,
    "quorum.": NO_QUORUM,
    "initial.broker.": NO_QUORUM,
    "broker.": NO_QUORUM,
    "inter.broker.": NO_QUORUM,
    "control.plane.": NO_QUORUM,
    "controlled.shutdown.": NO_QUORUM,
    "replica.": NO_QUORUM,
    "replication.": NO_QUORUM,
    "leader.": NO_QUORUM,
    "follower.": NO_QUORUM,
    "auto.leader.": NO_QUORUM,
    "num.replica.": NO_QUORUM,
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
    "ssl.keystore.password": "a PEM key store has no password; that of its key is ssl.key.password",
    "ssl.truststore.password": "a PEM trust store has no password",
    "ssl.protocol": "the newest of ssl.enabled.protocols that both sides know is used",
    "ssl.cipher.suites": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.": _OPENSSL,
    "sasl.jaas.config": _USERS,
    "sasl.kerberos.": _NO_KERBEROS,
    "sasl.mechanism.": _NODE_LOGIN,
    "sasl.login.": _NODE_LOGIN,
    "sasl.client.": _NODE_LOGIN,
    "sasl.server.callback.handler.class": _NO_CLASSES,
    "sasl.oauthbearer.jwt.": _NO_CLASSES,
    "sasl.": _NODE_LOGIN,
    "security.": NO_QUORUM,
    "client.users": _USERS,
    "client.passwords": _USERS,
    "tls.": _OPENSSL,
    "principal.": _NO_CLASSES,
    "listener.name.": _PER_LISTENER,
    "delegation.token.": _NO_TOKENS,
    "password.encoder.": _USERS,
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
    "metric.": _FIGURES,
    "metrics.": _FIGURES,
    "auto.include.jmx.": _FIGURES,
    "jmx.": _FIGURES,
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
    if name.endswith(".sasl.jaas.config"):  # listener.name.<listener>.<mechanism>.sasl.jaas.config
        return _USERS
    for known, reason in _REASONS.items():
        if name == known or (known.endswith(".") and name.startswith(known)):
            return reason
    return None


def may_be_ignored(name: str, value: str) -> bool:
    """Whether it only concerns Kafka's own processes: what clients see is the same without it."""
    if name in _NAMES or asks_for_access_control(name, value):
        return False
    return reason_not_served(name) in _OF_KAFKAS_PROCESSES


def asks_for_access_control(name: str, value: str) -> bool:
    if name == "opts":
        return _JAAS_OPTION in value
    harmless = ACCESS_CONTROL.get(name)
    if harmless is None:
        known = (known for known in ACCESS_CONTROL if known.endswith(".") and name.startswith(known))
        harmless = next((ACCESS_CONTROL[each] for each in known), None)
    text = value.strip()
    return harmless is not None and bool(text) and text.lower() not in map(str.lower, harmless)


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
