# SPDX-License-Identifier: Apache-2.0
"""What `headrace transactions abort` and `terminate` check before they ask. Read next: commands.py."""

from __future__ import annotations

import shlex
from typing import Any

from headrace.cli.transactions.abort_options import AbortTarget
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.transaction_report import JudgedTransaction, find_open
from headrace.client.tools.transactions import (
    MARKERS,
    AbortMarker,
    TransactionDescription,
    partition_leader,
    with_brokers,
)
from headrace.types import TopicPartition


def find_marker(cluster: Cluster, target: AbortTarget) -> AbortMarker:
    """The marker that ends the transaction. ClientError when it is not open, or does not hang.

    A producer that is given is taken as it is; only the partition is looked up.
    """
    where = TopicPartition(target.topic, target.partition)
    if target.start_offset is None:
        with_brokers(cluster, lambda brokers: partition_leader(brokers, where), needs=MARKERS)
        return _given(target, where)
    opened = find_open(cluster, where)
    found = next((each for each in opened if each.open.start_offset == target.start_offset), None)
    if found is None:
        raise ClientError(
            f"no transaction is open in {where} that starts at offset {target.start_offset}",
            next_step=f"see which are: headrace transactions explain {shlex.quote(target.topic)}",
        )
    _check_hanging(found)
    return AbortMarker.of(found.open)


def check_ongoing(found: TransactionDescription) -> None:
    """Raises ClientError when there is nothing to end, or its end is decided already."""
    name = shlex.quote(found.transactional_id)
    if found.state == "Ongoing":
        return
    if found.state.startswith("Prepare"):
        raise ClientError(
            f"the transaction of {found.transactional_id!r} is being ended already ({found.state})",
            next_step=f"see whose markers are missing: headrace transactions describe --id {name}",
        )
    raise ClientError(
        f"{found.transactional_id!r} has no ongoing transaction: its state is {found.state}",
        next_step=f"to refuse its producers all the same: headrace transactions fence --id {name}",
    )


def aborted_document(marker: AbortMarker) -> dict[str, Any]:
    return {
        "topic": marker.partition.topic,
        "partition": marker.partition.partition,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "aborted": True,
    }


def _given(target: AbortTarget, where: TopicPartition) -> AbortMarker:
    assert target.producer_id is not None
    assert target.producer_epoch is not None
    assert target.coordinator_epoch is not None
    return AbortMarker(
        partition=where,
        producer_id=target.producer_id,
        producer_epoch=target.producer_epoch,
        coordinator_epoch=target.coordinator_epoch,
    )


def _check_hanging(found: JudgedTransaction) -> None:
    """A marker beside a coordinator that still knows the transaction would tear it apart."""
    transaction = found.transaction
    if found.verdict == "hanging" or transaction is None:
        return
    name = transaction.transactional_id
    command = "terminate" if found.verdict == "ongoing" else "describe"
    raise ClientError(
        f"this transaction does not hang: the coordinator of {name!r} knows it ({transaction.state}) "
        "and ends it in all its partitions",
        next_step=f"{'end it now' if command == 'terminate' else 'look at it'}: "
        f"headrace transactions {command} --id {shlex.quote(name)}",
    )
