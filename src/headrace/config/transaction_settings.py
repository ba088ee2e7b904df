# SPDX-License-Identifier: Apache-2.0
"""Settings of a node for transactions, as Kafka has them.

node_settings.py gathers them with the others. Read next: broker/transactions/transaction_settings.py and
broker/transactions/coordinator.py (what they mean).
"""

from __future__ import annotations

from headrace.config.setting import DAY_MS, HOUR_MS, MIB, Allowed, at_least, node_setting

_NOT_SERVED = Allowed(
    text="false",
    problem=lambda value: "two-phase commit (KIP-939) is not served" if value else None,
)

TRANSACTIONS = (
    node_setting(
        "transaction.max.timeout.ms",
        "int",
        900_000,
        "The longest `transaction.timeout.ms` that a producer may ask for.",
        at_least(1),
    ),
    node_setting(
        "transactional.id.expiration.ms",
        "int",
        7 * DAY_MS,
        "A transactional id without a transaction for this long is forgotten.",
        at_least(1),
    ),
    node_setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        HOUR_MS,
        "How often expired transactional ids are removed.",
        at_least(1),
    ),
    node_setting(
        "transaction.partition.verification.enable",
        "boolean",
        True,
        "Whether the first batch of a transaction in a partition is written only after the coordinator has "
        "confirmed that the partition is part of it. For clients before KIP-890.",
        dynamic=True,
    ),
    node_setting(
        "transaction.state.log.num.partitions",
        "int",
        50,
        "Partitions of `__transaction_state` when it is created. Each transactional id belongs to one.",
        at_least(1),
    ),
    node_setting(
        "transaction.state.log.replication.factor",
        "short",
        3,
        "Its replicas; as many as there are nodes when these are fewer.",
        at_least(1),
    ),
    node_setting(
        "transaction.state.log.min.isr",
        "int",
        2,
        "Its `min.insync.replicas` where this is set; else 2 with three replicas or more, 1 with fewer, as "
        "of every topic. Never more than it has replicas.",
        at_least(1),
    ),
    node_setting("transaction.state.log.segment.bytes", "int", 100 * MIB, "Its segment size.", at_least(1)),
    node_setting(
        "transaction.state.log.load.buffer.size",
        "int",
        5 * MIB,
        "Accepted, without effect: the node sizes its buffers itself.",
        at_least(1),
        effective=False,
    ),
    node_setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        10_000,
        "Accepted, without effect: a transaction is aborted as soon as its timeout is over.",
        at_least(1),
        effective=False,
    ),
    node_setting(
        "transaction.two.phase.commit.enable",
        "boolean",
        False,
        "Accepted as false: two-phase commit (KIP-939) is not served.",
        _NOT_SERVED,
        effective=False,
    ),
)
