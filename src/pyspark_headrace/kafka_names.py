# SPDX-License-Identifier: Apache-2.0
"""`kafka.*` options: which names exist, which have no effect here, and which are refused.

A misspelled name must not go unnoticed: the query would run with a default instead. Settings of security and
those that have a meaning here are read elsewhere. Read next: options.py, headrace/client/security_options.py.
"""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Collection, Mapping

from headrace.client.errors import ClientError

_log = logging.getLogger(__name__)
_PREFIX = "kafka."

_COMMON = (
    *("bootstrap.servers", "bootstrap.controllers", "client.dns.lookup", "client.id", "client.rack"),
    *("connections.max.idle.ms", "default.api.timeout.ms", "request.timeout.ms", "metadata.max.age.ms"),
    *("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "enable.metrics.push"),
    *("auto.include.jmx.reporter", "metric.reporters", "metrics.num.samples", "metrics.recording.level"),
    *("metrics.sample.window.ms", "receive.buffer.bytes", "send.buffer.bytes", "reconnect.backoff.ms"),
    *("reconnect.backoff.max.ms", "retries", "retry.backoff.ms", "retry.backoff.max.ms"),
    *("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
)
_CONSUMER = (
    *("allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs"),
    *("enable.auto.commit", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms"),
    *("fetch.min.bytes", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
    *("heartbeat.interval.ms", "interceptor.classes", "isolation.level", "key.deserializer"),
    *("max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "session.timeout.ms"),
    *("partition.assignment.strategy", "share.acknowledgement.mode", "share.acquire.mode"),
    "value.deserializer",
)
_PRODUCER = (
    *("acks", "batch.size", "buffer.memory", "compression.type", "compression.gzip.level"),
    *("compression.lz4.level", "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence"),
    *("interceptor.classes", "key.serializer", "linger.ms", "max.block.ms", "max.request.size"),
    *("max.in.flight.requests.per.connection", "metadata.max.idle.ms", "partitioner.class"),
    *("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"),
    *("partitioner.ignore.keys", "transaction.timeout.ms", "transactional.id", "value.serializer"),
    "transaction.two.phase.commit.enable",
)
NAMES = tuple(sorted({*_COMMON, *_CONSUMER, *_PRODUCER}))
"""Settings of Apache Kafka's consumer, producer and admin client, without those of security."""

_BY_CAST = "cast the columns key and value, or set the options key and value"
REFUSED = {
    "auto.offset.reset": "set startingOffsets: where a query begins is in its checkpoint",
    "enable.auto.commit": "leave it out: offsets are kept in the checkpoint; option group commits them too",
    "interceptor.classes": "leave it out: classes of Java cannot run here",
    "key.deserializer": _BY_CAST,
    "value.deserializer": _BY_CAST,
    "key.serializer": "cast the column key to string or binary",
    "value.serializer": "cast the column value to string or binary",
    "transactional.id": "set sinkId: the transactional id is made from it",
}
"""Refused by Spark's own Kafka connector, too, or against the delivery guarantee; with what to do instead."""


def check_kafka_options(options: Mapping[str, str], used: Collection[str]) -> dict[str, str]:
    """The options without the `kafka.*` names that have no effect; `used` are those that have one.

    ClientError for a name that does not exist or must not be set. Names without effect are logged.
    """
    kept, idle = {}, []
    for written, value in options.items():
        name = written.lower()
        if not name.startswith(_PREFIX) or name in used:
            kept[written] = value
            continue
        _check(written, name.removeprefix(_PREFIX), value)
        idle.append(written)
    if idle:
        _log_without_effect(tuple(sorted(idle)))
    return kept


def _check(written: str, name: str, value: str) -> None:
    if name in REFUSED:
        raise ClientError(f"option {written!r} cannot be set", next_step=REFUSED[name])
    if name == "acks" and value.strip() == "0":
        raise ClientError(
            f"option {written!r} cannot be '0': rows that never reached a broker would count as written",
            next_step="leave it out: rows are written with acks=all",
        )
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise ClientError(
            f"there is no option {written!r}",
            next_step=f"did you mean {_PREFIX + near[0]!r}?"
            if near
            else "docs/pipelines.md lists the options",
        )


@functools.lru_cache(maxsize=32)
def _log_without_effect(names: tuple[str, ...]) -> None:
    """Once in a process for the same names."""
    _log.warning("options without effect here: %s", ", ".join(names))
