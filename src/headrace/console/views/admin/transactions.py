# SPDX-License-Identifier: Apache-2.0
"""View `transactions`: what is open, and which partitions' readers wait for it.

    answer: {state: "ok"|"off"|"refused"|"failed", text, next}
    transactions: oldest first: [{transactional_id, state, producer_id, producer_epoch, coordinator,
        timeout_ms, since, age_ms, ends_by (when the coordinator aborts it), partitions: [{topic, partition}],
        partitions_total, holds (partitions whose readers wait for it), command (that ends or describes it)}]
    blocked: most waiting first: [{topic, partition, last_stable, high_watermark, waiting (records that
        readers of committed records do not get), verdict: "hanging"|"ongoing"|"ending"|null,
        transactional_id, producer_id, producer_epoch, start, last_record_at, why, command}]
    searched, partitions (of the cluster), left_out (transactions not described)

hanging: no coordinator knows the transaction in that partition, so nothing but the command ends it.
"""

from __future__ import annotations

from headrace.client.tools.transaction_report import (
    JudgedTransaction,
    PartitionWait,
    Survey,
    survey,
)
from headrace.client.tools.transactions import TransactionDescription
from headrace.console.state.model import Snapshot
from headrace.console.views.admin_document import alarm, asked, command, document
from headrace.console.views.view import Document, Params, Source, View

_REFRESH_S = 5.0
_MOST_PARTITIONS = 2_000
_MOST_TRANSACTIONS = 200
_PARTITIONS_SHOWN = 20
_ONGOING = "Ongoing"


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    found, answer = await asked(
        source.run(
            survey,
            source.cluster,
            most_partitions=_MOST_PARTITIONS,
            most_transactions=_MOST_TRANSACTIONS,
        )
    )
    parts = {"answer": answer, **_parts(found, snapshot.at_ms)}
    commands = [
        command("List the open transactions", "transactions", "list", "--state", _ONGOING),
        command("What readers of a topic wait for", "transactions", "explain", "orders"),
    ]
    alarms = [] if found is None else _alarms(found, snapshot.at_ms)
    return document("transactions", snapshot, parts, alarms=alarms, commands=commands)


def _parts(found: Survey | None, now_ms: int) -> Document:
    if found is None:
        return {"transactions": [], "blocked": [], "searched": 0, "partitions": None, "left_out": 0}
    transactions = sorted(found.transactions, key=lambda each: each.start_ms or now_ms)
    return {
        "transactions": [_transaction(each, found, now_ms) for each in transactions],
        "blocked": [
            _blocked(wait) for wait in sorted(found.waits, key=lambda wait: (-wait.waiting, wait.partition))
        ],
        "searched": found.searched,
        "partitions": found.partitions,
        "left_out": found.left_out,
    }


def _transaction(found: TransactionDescription, whole: Survey, now_ms: int) -> Document:
    holds = [
        wait
        for wait in whole.waits
        if wait.held_by is not None and wait.held_by.open.producer_id == found.producer_id
    ]
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator": found.node_id,
        "timeout_ms": found.timeout_ms,
        "since": found.start_ms,
        "age_ms": None if found.start_ms is None else max(now_ms - found.start_ms, 0),
        "ends_by": found.ends_by_ms,
        "partitions": [
            {"topic": each.topic, "partition": each.partition}
            for each in found.partitions[:_PARTITIONS_SHOWN]
        ],
        "partitions_total": len(found.partitions),
        "holds": len(holds),
        "command": _ending(found.transactional_id, ongoing=found.state == _ONGOING),
    }


def _blocked(wait: PartitionWait) -> Document:
    held = wait.held_by
    found = None if held is None else held.open
    transaction = None if held is None else held.transaction
    return {
        "topic": wait.partition.topic,
        "partition": wait.partition.partition,
        "last_stable": wait.ends.last_stable,
        "high_watermark": wait.ends.high_watermark,
        "waiting": wait.waiting,
        "verdict": None if held is None else held.verdict,
        "transactional_id": None if transaction is None else transaction.transactional_id,
        "producer_id": None if found is None else found.producer_id,
        "producer_epoch": None if found is None else found.producer_epoch,
        "start": None if found is None else found.start_offset,
        "last_record_at": None if found is None else found.last_timestamp_ms,
        "why": _why(held),
        "command": None if held is None else _next_command(held),
    }


def _why(held: JudgedTransaction | None) -> str:
    if held is None:
        return "the transaction has just ended: its marker is not on all in-sync replicas yet"
    if held.verdict == "hanging":
        return "it hangs: no coordinator knows it in this partition, so no time-out ends it"
    if held.verdict == "ending":
        return "it is being ended: its coordinator has to write the marker"
    return "it is open: its producer ends it, or its time-out does"


def _next_command(held: JudgedTransaction) -> str:
    transaction = held.transaction
    if held.verdict == "hanging" or transaction is None:
        topic, partition = held.open.partition
        words = ["--topic", topic, "--partition", str(partition)]
        return _text("transactions", "abort", *words, "--start-offset", str(held.open.start_offset))
    return _ending(transaction.transactional_id, ongoing=held.verdict == "ongoing")


def _ending(transactional_id: str, *, ongoing: bool) -> str:
    return _text("transactions", "terminate" if ongoing else "describe", "--id", transactional_id)


def _text(*words: str) -> str:
    return str(command("", *words)["command"])


def _alarms(found: Survey, now_ms: int) -> list[Document]:
    hanging = [wait for wait in found.waits if wait.held_by is not None and wait.held_by.verdict == "hanging"]
    alarms = [
        alarm(
            "error",
            f"a transaction hangs in {wait.partition}: {wait.waiting:,} records are not read",
            "end it there: no coordinator will",
            command=None if wait.held_by is None else _next_command(wait.held_by),
        )
        for wait in hanging[:_PARTITIONS_SHOWN]
    ]
    late = [
        each
        for each in found.transactions
        if each.start_ms is not None and (now_ms - each.start_ms) * 2 > each.timeout_ms
    ]
    return alarms + [
        alarm(
            "warning",
            f"transaction {each.transactional_id!r} has been open for more than half its time-out",
            "see whether its producer still works; terminating it loses its records",
            command=_ending(each.transactional_id, ongoing=each.state == _ONGOING),
            since=each.start_ms,
        )
        for each in late[:_PARTITIONS_SHOWN]
    ]


VIEW = View(name="transactions", build=build, refresh_s=_REFRESH_S)
