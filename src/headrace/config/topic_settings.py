# SPDX-License-Identifier: Apache-2.0
"""The settings of a topic. Kafka's names, types and ranges; a default comes from the node setting behind it.

Kafka's keys that have no effect here are accepted where that is harmless; their doc says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headrace.config.setting import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    MIB,
    Allowed,
    Kind,
    Setting,
    Synonym,
    at_least,
    between,
    one_of,
    some_of,
)
from headrace.errors import ConfigError
from headrace.key_ranges import parse_ranges


def _key_range_problem(text: str) -> str | None:
    try:
        if text:
            parse_ranges(text)
    except ConfigError as error:
        return str(error)
    return None


_THROTTLED = re.compile(r"\d+:\d+")
_THROTTLED_REPLICAS = Allowed(
    text="empty, * or partition:node,…",
    problem=lambda items: (
        None
        if items in ((), ("*",)) or all(_THROTTLED.fullmatch(item) for item in items)
        else "must be the literal '*' or a list of replicas in the form partition:node,partition:node"
    ),
)
_GZIP_LEVEL = Allowed(
    text="-1 or 1 to 9",
    problem=lambda value: None if value == -1 or 1 <= value <= 9 else "must be -1 or from 1 to 9",
)
_KEY_RANGES = Allowed(text="empty, or one range per partition", problem=_key_range_problem)
_NOT_TIERED = Allowed(
    text="false",
    problem=lambda value: "tiered storage is not served: leave it false" if value else None,
)


def _topic(
    name: str, kind: Kind, default: Any, doc: str, validator: Allowed | None, *synonyms: str | Synonym
) -> Setting:
    behind = tuple(s if isinstance(s, Synonym) else Synonym(name=s) for s in synonyms)
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope="topic",
        validator=validator,
        dynamic=True,
        synonyms=behind,
    )


def _without_effect(
    name: str, kind: Kind, default: Any, doc: str, validator: Allowed | None = None
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope="topic",
        validator=validator,
        dynamic=True,
        effective=False,
    )


def _hours(name: str) -> Synonym:
    return Synonym(name=name, factor=HOUR_MS)


_EFFECTIVE = (
    _topic(
        "cleanup.policy",
        "list",
        ("delete",),
        "`delete` old segments, `compact` to the last record of each key, or both.",
        some_of("compact", "delete"),
        "log.cleanup.policy",
    ),
    _topic(
        "compression.type",
        "string",
        "producer",
        "The codec in which batches are stored; `producer` leaves them as sent.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "compression.type",
    ),
    _topic(
        "delete.retention.ms",
        "long",
        DAY_MS,
        "Tombstones stay this long after they were first compacted.",
        at_least(0),
        "log.cleaner.delete.retention.ms",
    ),
    _topic(
        "file.delete.delay.ms",
        "long",
        60_000,
        "A removed file stays on disk this long.",
        at_least(0),
        "log.segment.delete.delay.ms",
    ),
    _topic(
        "headrace.flush",
        "string",
        "ack",
        "When records reach the disk: `ack`, `interval` or `os`.",
        one_of("ack", "interval", "os"),
        "headrace.flush.default",
    ),
    _topic(
        "headrace.partitioner",
        "string",
        "client",
        "`client`: producers choose the partition. `enforce`: the node refuses records without a key and "
        "records whose key is not in the range of their partition.",
        one_of("client", "enforce"),
    ),
    _topic(
        "headrace.partitioner.outside",
        "string",
        "error",
        "A key outside every range is refused (`error`) or belongs to the nearest range (`nearest`).",
        one_of("error", "nearest"),
    ),
    _topic(
        "headrace.partitioner.ranges",
        "string",
        "",
        "The key range of each partition, `LOW..HIGH,…`, by which Headrace's producers partition. "
        "Empty: by hash.",
        _KEY_RANGES,
    ),
    _topic(
        "index.interval.bytes",
        "int",
        4096,
        "Log bytes between two index entries.",
        at_least(0),
        "log.index.interval.bytes",
    ),
    _topic(
        "max.compaction.lag.ms",
        "long",
        LONG_MAX,
        "A record is compacted at the latest after this long.",
        at_least(1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    _topic(
        "max.message.bytes",
        "int",
        MIB + 12,
        "The largest record batch, as sent (compressed).",
        at_least(0),
        "message.max.bytes",
    ),
    _topic(
        "message.timestamp.after.max.ms",
        "long",
        HOUR_MS,
        "How far a timestamp may lie after the node's clock.",
        at_least(0),
        "log.message.timestamp.after.max.ms",
    ),
    _topic(
        "message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "How far a timestamp may lie before the node's clock.",
        at_least(0),
        "log.message.timestamp.before.max.ms",
    ),
    _topic(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "Timestamps of records are the producer's (`CreateTime`) or the node's (`LogAppendTime`).",
        one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        "double",
        0.5,
        "The log is compacted when this share of it is dirty.",
        between(0, 1),
        "log.cleaner.min.cleanable.ratio",
    ),
    _topic(
        "min.compaction.lag.ms",
        "long",
        0,
        "A record stays uncompacted at least this long.",
        at_least(0),
        "log.cleaner.min.compaction.lag.ms",
    ),
    _topic(
        "min.insync.replicas",
        "int",
        1,
        "Replicas that must hold a record before acks=all is answered; never more than the topic has.",
        at_least(1),
        "min.insync.replicas",
    ),
    _topic(
        "record.validation",
        "string",
        "auto",
        "`header` checks each batch's header and CRC; `auto` also every record in it, compressed or not, "
        "where the kernels are compiled; `full` everywhere. Compacted topics are always `full`.",
        one_of("auto", "header", "full"),
    ),
    _topic(
        "retention.bytes",
        "long",
        -1,
        "The oldest segments are deleted while a partition is larger; -1: no limit.",
        at_least(-1),
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms",
        "long",
        7 * DAY_MS,
        "Segments are deleted at this age; -1: never.",
        at_least(-1),
        "log.retention.ms",
        Synonym(name="log.retention.minutes", factor=60_000),
        _hours("log.retention.hours"),
    ),
    _topic(
        "segment.bytes",
        "int",
        1 << 30,
        "A segment of this size is closed.",
        at_least(MIB),
        "log.segment.bytes",
    ),
    _topic(
        "segment.index.bytes",
        "int",
        10 * MIB,
        "A segment whose index reaches this is closed.",
        at_least(4),
        "log.index.size.max.bytes",
    ),
    _topic(
        "segment.jitter.ms",
        "long",
        0,
        "Up to this much is taken off `segment.ms` at random.",
        at_least(0),
        "log.roll.jitter.ms",
        _hours("log.roll.jitter.hours"),
    ),
    _topic(
        "segment.ms",
        "long",
        7 * DAY_MS,
        "A segment of this age is closed.",
        at_least(1),
        "log.roll.ms",
        _hours("log.roll.hours"),
    ),
    _topic(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Allows a replica outside the ISR to become leader when no other is left: records may be lost.",
        None,
        "unclean.leader.election.enable",
    ),
)

_USUAL_LEVEL = "A batch that must be recompressed gets its codec's default level."
_NO_TIERS = "There is no tiered storage."
_NO_REPLICATION = "Replication is not throttled."
_FLUSH_RULES = "`headrace.flush` decides; refused together with `interval` and `os`, which guarantee less."

_ACCEPTED = (
    _without_effect("compression.gzip.level", "int", -1, _USUAL_LEVEL, _GZIP_LEVEL),
    _without_effect("compression.lz4.level", "int", 9, _USUAL_LEVEL, between(1, 17)),
    _without_effect("compression.zstd.level", "int", 3, _USUAL_LEVEL, between(-131072, 22)),
    _without_effect("flush.messages", "long", LONG_MAX, _FLUSH_RULES, at_least(1)),
    _without_effect("flush.ms", "long", LONG_MAX, _FLUSH_RULES, at_least(0)),
    _without_effect(
        "follower.replication.throttled.replicas", "list", (), _NO_REPLICATION, _THROTTLED_REPLICAS
    ),
    _without_effect(
        "leader.replication.throttled.replicas", "list", (), _NO_REPLICATION, _THROTTLED_REPLICAS
    ),
    _without_effect("local.retention.bytes", "long", -2, _NO_TIERS, at_least(-2)),
    _without_effect("local.retention.ms", "long", -2, _NO_TIERS, at_least(-2)),
    _without_effect("preallocate", "boolean", False, "Segments always grow as they are written."),
    _without_effect("remote.log.copy.disable", "boolean", False, _NO_TIERS),
    _without_effect("remote.log.delete.on.disable", "boolean", False, _NO_TIERS),
    _without_effect(
        "remote.storage.enable", "boolean", False, f"{_NO_TIERS} `true` is refused.", _NOT_TIERED
    ),
)

TOPIC_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {setting.name: setting for setting in sorted((*_EFFECTIVE, *_ACCEPTED), key=lambda setting: setting.name)}
)
