# SPDX-License-Identifier: Apache-2.0
"""Settings of clusters that copies are tried on: few internal partitions, and a dead node is noticed soon."""

from __future__ import annotations

_FEW_PARTITIONS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
COPIES_ON_HEADRACE = {**_FEW_PARTITIONS, "broker.session.timeout.ms": "2000"}
COPIES_ON_KAFKA = {
    **_FEW_PARTITIONS,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
