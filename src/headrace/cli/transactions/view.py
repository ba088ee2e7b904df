# SPDX-License-Identifier: Apache-2.0
"""Output of `headrace transactions`: what was found, and the next command to run.

Durations have units on a terminal and are seconds in a pipe.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from headrace.cli.durations import human_ms, seconds_text
from headrace.cli.output import Cell, Output, iso_time
from headrace.client.tools.transaction_report import HangingReport, JudgedTransaction, PartitionWait
from headrace.client.tools.transactions import TransactionDescription, TransactionListing

_STYLES = {"hanging": "red", "ongoing": "yellow", "ending": "yellow"}


def show_list(output: Output, found: Sequence[TransactionListing]) -> None:
    if output.as_json:
        output.document(
            [
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": each.node_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                }
                for each in found
            ]
        )
        return
    if output.terminal and not found:
        output.note("There are no such transactions.")
        return
    output.table(
        ("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"),
        [(each.transactional_id, str(each.node_id), str(each.producer_id), each.state) for each in found],
    )


def show_description(output: Output, found: TransactionDescription, now_ms: int) -> None:
    if output.as_json:
        output.document(description_document(found, now_ms))
        return
    output.fields(
        {
            "transactional id": found.transactional_id,
            "state": found.state,
            "coordinator": f"node {found.node_id}",
            "producer id": str(found.producer_id),
            "producer epoch": str(found.producer_epoch),
            "time-out": _duration(found.timeout_ms, output),
            "started": iso_time(found.start_ms),
            "age": _duration(_age_ms(found, now_ms), output),
            "ends by": iso_time(found.ends_by_ms),
        }
    )
    if found.partitions:
        if not output.terminal:
            output.line("")
        output.table(("TOPIC", "PARTITION"), [(each.topic, str(each.partition)) for each in found.partitions])


def description_document(found: TransactionDescription, now_ms: int) -> dict[str, Any]:
    age_ms = _age_ms(found, now_ms)
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.node_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": iso_time(found.start_ms),
        "age_seconds": None if age_ms is None else age_ms / 1000,
        "ends_by": iso_time(found.ends_by_ms),
        "partitions": [list(each) for each in found.partitions],
    }


def show_hanging(output: Output, report: HangingReport, now_ms: int) -> None:
    for partition in report.leaderless:
        output.note(f"{partition} was not searched: it has no leader")
    if output.as_json:
        output.document([judged_document(each, now_ms) for each in report.hanging])
        return
    if report.hanging or not output.terminal:
        output.table(*_hanging_table(report.hanging, output, now_ms))
    else:
        output.note("No transaction hangs there.")
    if output.terminal:
        for each in report.hanging:
            output.styled(("  next: ", ""), (next_command(each), "cyan"))
    if report.known:
        ids = sorted({each.transaction.transactional_id for each in report.known if each.transaction})
        output.note(
            f"{len(report.known)} more open for as long do not hang, their coordinators end them: "
            f"{', '.join(map(repr, ids))}"
        )


def show_waits(output: Output, topic: str, waits: Sequence[PartitionWait], now_ms: int) -> None:
    if output.as_json:
        output.document({"topic": topic, "partitions": [wait_document(each, now_ms) for each in waits]})
        return
    if output.terminal:
        output.table(*_short_wait_table(waits))
    else:
        output.table(*_wait_table(waits, now_ms))
    for wait in waits:
        if output.terminal and wait.stands_still:
            style = _STYLES[wait.held_by.verdict] if wait.held_by else "yellow"
            output.styled((f"{wait.partition}  ", "bold"), (reason(wait, now_ms), style))
            output.styled(("  next: ", ""), (next_command_of(wait), "cyan"))
    if not any(wait.stands_still for wait in waits):
        output.note(f"No transaction holds back read_committed readers of topic '{topic}'.")


def reason(wait: PartitionWait, now_ms: int) -> str:
    """Why readers of committed records of this partition stand still."""
    if wait.ends.last_stable is None:
        return "it has no leader: nobody reads"
    held = wait.held_by
    if held is None:
        return "the transaction has just ended: its marker is not on all in-sync replicas yet"
    found, transaction = held.open, held.transaction
    producer = f"producer id {found.producer_id}, epoch {found.producer_epoch}"
    if held.verdict == "hanging":
        last = iso_time(found.last_timestamp_ms, "seconds") or "an unknown time"
        known = "no coordinator knows it" if transaction is None else _known_elsewhere(transaction)
        return f"hangs: {known}; {producer}, last record at {last}; no time-out ends it"
    assert transaction is not None
    who = f"transactional id {transaction.transactional_id!r} ({producer})"
    if held.verdict == "ending":
        return (
            f"{who} is being ended ({transaction.state}): node {transaction.node_id} has to write the marker"
        )
    since = iso_time(transaction.start_ms, "seconds") or "an unknown time"
    return f"{who} is open since {since} ({_age_text(transaction, now_ms)}); {_time_out(transaction, now_ms)}"


def next_command_of(wait: PartitionWait) -> str:
    topic = shlex.quote(wait.partition.topic)
    if wait.ends.last_stable is None:
        return f"headrace topics describe {topic}"
    return f"headrace transactions explain {topic}" if wait.held_by is None else next_command(wait.held_by)


def next_command(held: JudgedTransaction) -> str:
    """The command that ends it, or shows why it has not ended."""
    found, transaction = held.open, held.transaction
    if held.verdict == "hanging" or transaction is None:
        return (
            f"headrace transactions abort --topic {shlex.quote(found.partition.topic)} "
            f"--partition {found.partition.partition} --start-offset {found.start_offset}"
        )
    command = "terminate" if held.verdict == "ongoing" else "describe"
    return f"headrace transactions {command} --id {shlex.quote(transaction.transactional_id)}"


def wait_document(wait: PartitionWait, now_ms: int) -> dict[str, Any]:
    return {
        "partition": wait.partition.partition,
        "last_stable_offset": wait.ends.last_stable,
        "high_watermark": wait.ends.high_watermark,
        "waiting": wait.waiting,
        "reason": reason(wait, now_ms) if wait.stands_still else None,
        "next": next_command_of(wait) if wait.stands_still else None,
        "transactions": [judged_document(each, now_ms) for each in wait.transactions],
    }


def judged_document(judged: JudgedTransaction, now_ms: int) -> dict[str, Any]:
    found, transaction = judged.open, judged.transaction
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "start_offset": found.start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_timestamp": iso_time(found.last_timestamp_ms),
        "verdict": judged.verdict,
        "transaction": None if transaction is None else description_document(transaction, now_ms),
        "next": next_command(judged),
    }


def _hanging_table(
    hanging: Sequence[JudgedTransaction], output: Output, now_ms: int
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    """A terminal has room for what tells them apart; the commands below it name the rest."""
    age = [_duration(max(now_ms - each.open.last_timestamp_ms, 0), output) for each in hanging]
    if output.terminal:
        return ("PARTITION", "PRODUCER ID", "EPOCH", "START OFFSET", "LAST RECORD", "AGE"), [
            (
                str(each.open.partition),
                str(each.open.producer_id),
                str(each.open.producer_epoch),
                str(each.open.start_offset),
                iso_time(each.open.last_timestamp_ms, "seconds"),
                old,
            )
            for each, old in zip(hanging, age, strict=True)
        ]
    columns = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "START OFFSET")
    return (*columns, "LAST RECORD", "AGE"), [
        (
            each.open.partition.topic,
            str(each.open.partition.partition),
            str(each.open.producer_id),
            str(each.open.producer_epoch),
            str(each.open.coordinator_epoch),
            str(each.open.start_offset),
            iso_time(each.open.last_timestamp_ms),
            old,
        )
        for each, old in zip(hanging, age, strict=True)
    ]


def _short_wait_table(waits: Sequence[PartitionWait]) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    columns = ("PARTITION", "LAST STABLE", "HIGH WATERMARK", "WAITING", "TRANSACTIONAL ID", "VERDICT")
    return columns, [
        (
            str(wait.partition.partition),
            wait.ends.last_stable,
            wait.ends.high_watermark,
            wait.waiting,
            _transactional_id(wait.held_by),
            wait.held_by.verdict if wait.held_by else None,
        )
        for wait in waits
    ]


def _wait_table(
    waits: Sequence[PartitionWait], now_ms: int
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    short, rows = _short_wait_table(waits)
    more = ("PRODUCER ID", "EPOCH", "STATE", "SINCE", "ENDS BY", "REASON", "NEXT")
    return (*short, *more), [
        (*row, *_who_and_when(wait.held_by), *_why_and_next(wait, now_ms))
        for row, wait in zip(rows, waits, strict=True)
    ]


def _who_and_when(held: JudgedTransaction | None) -> tuple[Cell, ...]:
    if held is None:
        return (None, None, None, None, None)
    transaction = held.transaction
    return (
        str(held.open.producer_id),
        str(held.open.producer_epoch),
        transaction.state if transaction else None,
        iso_time(transaction.start_ms) if transaction else None,
        iso_time(transaction.ends_by_ms) if transaction else None,
    )


def _why_and_next(wait: PartitionWait, now_ms: int) -> tuple[Cell, Cell]:
    return (reason(wait, now_ms), next_command_of(wait)) if wait.stands_still else (None, None)


def _transactional_id(held: JudgedTransaction | None) -> str | None:
    return held.transaction.transactional_id if held and held.transaction else None


def _known_elsewhere(transaction: TransactionDescription) -> str:
    name, node = repr(transaction.transactional_id), transaction.node_id
    return f"node {node}, the coordinator of {name} ({transaction.state}), does not know it in this partition"


def _time_out(transaction: TransactionDescription, now_ms: int) -> str:
    ends_by = transaction.ends_by_ms
    time_out = f"its time-out of {human_ms(transaction.timeout_ms)}"
    if ends_by is None:
        return f"{time_out} ends it"
    if ends_by < now_ms:
        return f"{time_out} is over: node {transaction.node_id} is about to abort it"
    return f"{time_out} ends it in {human_ms(ends_by - now_ms)}"


def _age_ms(found: TransactionDescription, now_ms: int) -> int | None:
    return None if found.start_ms is None else max(now_ms - found.start_ms, 0)


def _age_text(found: TransactionDescription, now_ms: int) -> str:
    age_ms = _age_ms(found, now_ms)
    return "-" if age_ms is None else human_ms(age_ms)


def _duration(duration_ms: int | None, output: Output) -> str | None:
    if duration_ms is None:
        return None
    return human_ms(duration_ms) if output.terminal else seconds_text(duration_ms)
