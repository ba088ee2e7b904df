# SPDX-License-Identifier: Apache-2.0
"""The settings of a node for topics, records, the log and the disk; the dynamic ones are topics' defaults.

Kafka's names, types, ranges and defaults where Kafka has them. node_settings.py gathers all.
"""

from __future__ import annotations

from headrace.config.setting import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    MIB,
    Allowed,
    at_least,
    between,
    node_setting,
    one_of,
    some_of,
)

_FOREVER_OR_POSITIVE = Allowed(
    text="-1 or at least 1",
    problem=lambda value: None if value == -1 or value >= 1 else "must be -1 (for ever) or at least 1",
)

TOPICS = (
    node_setting(
        "num.partitions", "int", 1, "Partitions of a topic that is created without a count.", at_least(1)
    ),
    node_setting(
        "default.replication.factor",
        "int",
        None,
        "Replicas of a topic that is created without a count. Not set: as many as nodes are up, 3 at most.",
        at_least(1),
    ),
    node_setting(
        "auto.create.topics.enable", "boolean", True, "Creates a topic when a client first asks for it."
    ),
    node_setting("delete.topic.enable", "boolean", True, "Allows topics to be deleted."),
    node_setting(
        "min.insync.replicas",
        "int",
        1,
        "Replicas that must hold a record before acks=all is answered.",
        at_least(1),
        dynamic=True,
    ),
    node_setting(
        "replica.lag.time.max.ms",
        "long",
        10_000,
        "A follower that has not reached its leader's log end for this long leaves the ISR.",
        at_least(100),
    ),
    node_setting(
        "headrace.slow.replica.floor.ms",
        "long",
        40,
        "A node that takes this long to acknowledge an append may count as slow: it leaves the ISR where "
        "enough replicas remain, and leads nothing while others can; 0: no node counts as slow.",
        at_least(0),
    ),
    node_setting(
        "headrace.slow.replica.factor",
        "int",
        5,
        "A slow node takes at least this many times as long as the fastest other.",
        at_least(2),
    ),
    node_setting(
        "headrace.slow.replica.after.ms",
        "long",
        5_000,
        "For this long a node must have been slow to count as slow.",
        at_least(1_000),
    ),
    node_setting(
        "headrace.slow.replica.return.ms",
        "long",
        30_000,
        "For this long a slow node must be fast again to count as fast; after each further time twice as "
        "long, up to an hour.",
        at_least(1_000),
    ),
    node_setting(
        "replica.fetch.wait.max.ms",
        "int",
        500,
        "How long a follower's fetch waits for records; new ones end the wait at once.",
        at_least(1),
    ),
    node_setting(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Allows a replica outside the ISR to become leader when no other is left: records may be lost.",
        dynamic=True,
    ),
    node_setting(
        "compression.type",
        "string",
        "producer",
        "The codec in which batches are stored; `producer` leaves them as sent.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    ),
    node_setting(
        "message.max.bytes",
        "int",
        MIB + 12,
        "The largest record batch, as sent (compressed).",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "log.message.timestamp.type",
        "string",
        "CreateTime",
        "Timestamps of records are the producer's (`CreateTime`) or the node's (`LogAppendTime`).",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=True,
    ),
    node_setting(
        "log.message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "How far a producer's timestamp may lie before the node's clock.",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "log.message.timestamp.after.max.ms",
        "long",
        HOUR_MS,
        "How far a producer's timestamp may lie after the node's clock.",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "producer.id.expiration.ms",
        "int",
        DAY_MS,
        "The state of an idle idempotent producer is removed after this long.",
        at_least(1),
    ),
)

LOG = (
    node_setting(
        "log.segment.bytes",
        "int",
        1 << 30,
        "A segment of this size is closed and a new one begun.",
        at_least(MIB),
        dynamic=True,
    ),
    node_setting(
        "log.roll.ms", "long", None, "The same by age. Not set: `log.roll.hours`.", at_least(1), dynamic=True
    ),
    node_setting("log.roll.hours", "int", 168, "The same in hours.", at_least(1)),
    node_setting(
        "log.roll.jitter.ms",
        "long",
        None,
        "Up to this much is taken off the age at random. Not set: `log.roll.jitter.hours`.",
        at_least(0),
        dynamic=True,
    ),
    node_setting("log.roll.jitter.hours", "int", 0, "The same in hours.", at_least(0)),
    node_setting(
        "log.retention.ms",
        "long",
        None,
        "Segments are deleted at this age; -1: never. Not set: `log.retention.minutes`.",
        _FOREVER_OR_POSITIVE,
        dynamic=True,
    ),
    node_setting(
        "log.retention.minutes",
        "int",
        None,
        "The same in minutes. Not set: `log.retention.hours`.",
        _FOREVER_OR_POSITIVE,
    ),
    node_setting("log.retention.hours", "int", 168, "The same in hours.", _FOREVER_OR_POSITIVE),
    node_setting(
        "log.retention.bytes",
        "long",
        -1,
        "The oldest segments are deleted while a partition is larger; -1: no limit.",
        at_least(-1),
        dynamic=True,
    ),
    node_setting(
        "log.retention.check.interval.ms", "long", 300_000, "How often retention is checked.", at_least(1)
    ),
    node_setting(
        "log.cleanup.policy",
        "list",
        ("delete",),
        "What happens to old segments: `delete`, `compact`, or both.",
        some_of("compact", "delete"),
        dynamic=True,
    ),
    node_setting(
        "log.segment.delete.delay.ms",
        "long",
        60_000,
        "A removed file stays on disk this long, for fetches in progress.",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "log.index.interval.bytes",
        "int",
        4096,
        "Log bytes between two index entries.",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "log.index.size.max.bytes",
        "int",
        10 * MIB,
        "A segment whose index reaches this is closed.",
        at_least(4),
        dynamic=True,
    ),
    node_setting(
        "log.cleaner.backoff.ms",
        "long",
        15_000,
        "How often compaction checks for dirty logs.",
        at_least(1),
        dynamic=True,
    ),
    node_setting(
        "headrace.scrub.interval.ms",
        "long",
        300_000,
        "Every record batch on disk is read and checked at this interval, or as often as a pass ends where "
        "it takes longer; -1: never. What is damaged on a replica is fetched from another.",
        at_least(-1),
        dynamic=True,
    ),
    node_setting(
        "headrace.scrub.bytes.per.second",
        "long",
        20 * MIB,
        "The scrub reads the disk no faster than this.",
        at_least(MIB),
        dynamic=True,
    ),
    node_setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        128 * MIB,
        "Memory for the key map of one compaction pass; what does not fit takes another pass.",
        at_least(MIB),
        dynamic=True,
    ),
    node_setting(
        "log.cleaner.min.cleanable.ratio",
        "double",
        0.5,
        "A log is compacted when this share of it is dirty.",
        between(0, 1),
        dynamic=True,
    ),
    node_setting(
        "log.cleaner.delete.retention.ms",
        "long",
        DAY_MS,
        "Tombstones of compacted topics stay this long.",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "log.cleaner.min.compaction.lag.ms",
        "long",
        0,
        "A record stays uncompacted at least this long.",
        at_least(0),
        dynamic=True,
    ),
    node_setting(
        "log.cleaner.max.compaction.lag.ms",
        "long",
        LONG_MAX,
        "A record is compacted at the latest after this long.",
        at_least(1),
        dynamic=True,
    ),
)

DISK = (
    node_setting(
        "headrace.flush.default",
        "string",
        "ack",
        "When records reach the disk: `ack` before acks=all is answered and consumers see them; "
        "`interval` every `headrace.flush.interval.ms`; "
        "`os` when the operating system decides (Apache Kafka's default). "
        "Not set: `ack`; on ZooKeeper without `headrace.allow.same.host`, `os` for topics with "
        "min.insync.replicas of 2 or more.",
        one_of("ack", "interval", "os"),
        dynamic=True,
    ),
    node_setting(
        "headrace.flush.interval.ms",
        "long",
        1_000,
        "The longest time between two fsyncs with `interval`.",
        between(1, INT_MAX),
    ),
    node_setting(
        "headrace.disk.reserve.bytes",
        "long",
        -1,
        "Producing stops while less is free on the disk; -1: the smaller of 5 % of the disk and 1 GiB.",
        at_least(-1),
    ),
)
