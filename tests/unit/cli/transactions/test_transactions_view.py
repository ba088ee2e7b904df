# SPDX-License-Identifier: Apache-2.0
"""What `headrace transactions` says: reasons, next commands, tables and JSON; options that do not fit."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.output import Output
from headrace.cli.transactions import view
from headrace.client.tools.transaction_report import HangingReport, JudgedTransaction, PartitionWait, Verdict
from headrace.client.tools.transactions import (
    OpenTransaction,
    PartitionEnds,
    TransactionDescription,
    TransactionListing,
)
from headrace.types import TopicPartition

NOON_MS = 1_769_860_800_000
HOSTILE = "\x1b[31mred id"
PRODUCER = ("--producer-id", "1", "--producer-epoch", "2")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def judged(verdict: Verdict, *, known: bool = True, name: str = "copier", state: str = "Ongoing") -> Any:
    where = TopicPartition("orders", 2)
    found = OpenTransaction(
        partition=where,
        start_offset=1_200,
        producer_id=4_001,
        producer_epoch=3,
        coordinator_epoch=-1,
        last_timestamp_ms=NOON_MS + 1_000,
    )
    transaction = TransactionDescription(
        transactional_id=name,
        node_id=5,
        state=state,
        producer_id=4_001,
        producer_epoch=3,
        timeout_ms=60_000,
        start_ms=NOON_MS,
        partitions=(where,),
    )
    return JudgedTransaction(open=found, verdict=verdict, transaction=transaction if known else None)


def waiting(*held: JudgedTransaction, last_stable: int | None = 1_200) -> PartitionWait:
    ends = PartitionEnds(
        partition=TopicPartition("orders", 2),
        high_watermark=None if last_stable is None else 1_500,
        last_stable=last_stable,
    )
    return PartitionWait(ends=ends, transactions=held)


@pytest.mark.parametrize(
    ("wait", "reason", "command"),
    [
        (
            waiting(judged("ongoing")),
            (
                "transactional id 'copier' (producer id 4001, epoch 3) is open since 2026-01-31T12:00:00Z "
                "(40.0 s); its time-out of 1 min 0 s ends it in 20.0 s"
            ),
            "headrace transactions terminate --id copier",
        ),
        (
            waiting(judged("ending", state="PrepareCommit")),
            (
                "transactional id 'copier' (producer id 4001, epoch 3) is being ended (PrepareCommit): "
                "node 5 has to write the marker"
            ),
            "headrace transactions describe --id copier",
        ),
        (
            waiting(judged("hanging", known=False)),
            (
                "hangs: no coordinator knows it; producer id 4001, epoch 3, "
                "last record at 2026-01-31T12:00:01Z; no time-out ends it"
            ),
            "headrace transactions abort --topic orders --partition 2 --start-offset 1200",
        ),
        (
            waiting(judged("hanging", state="CompleteAbort")),
            (
                "hangs: node 5, the coordinator of 'copier' (CompleteAbort), "
                "does not know it in this partition; "
                "producer id 4001, epoch 3, last record at 2026-01-31T12:00:01Z; no time-out ends it"
            ),
            "headrace transactions abort --topic orders --partition 2 --start-offset 1200",
        ),
        (
            waiting(),
            "the transaction has just ended: its marker is not on all in-sync replicas yet",
            "headrace transactions explain orders",
        ),
        (waiting(last_stable=None), "it has no leader: nobody reads", "headrace topics describe orders"),
    ],
    ids=["ongoing", "ending", "unknown", "known elsewhere", "just ended", "no leader"],
)
def test_a_reason_says_who_and_until_when_and_has_a_next_command(
    wait: PartitionWait, reason: str, command: str
) -> None:
    assert view.reason(wait, NOON_MS + 40_000) == reason
    assert view.next_command_of(wait) == command


def test_a_time_out_that_has_passed_is_the_coordinators_turn() -> None:
    said = view.reason(waiting(judged("ongoing")), NOON_MS + 61_000)
    assert said.endswith("its time-out of 1 min 0 s is over: node 5 is about to abort it")


def test_next_commands_are_quoted_for_a_shell() -> None:
    wait = waiting(judged("ongoing", name="a b;rm"))
    assert view.next_command_of(wait) == "headrace transactions terminate --id 'a b;rm'"


def test_explain_in_a_pipe_has_one_row_of_the_same_columns_for_each_partition() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(stdout=out, stderr=err)
    view.show_waits(
        output, "orders", [waiting(judged("ongoing", name=HOSTILE)), waiting(last_stable=1_500)], 0
    )
    header, held, free = (line.split("\t") for line in out.getvalue().splitlines())
    assert len(header) == len(held) == len(free) == 13
    assert dict(zip(header, held, strict=True)) | {"REASON": ""} == {
        "PARTITION": "2",
        "LAST STABLE": "1200",
        "HIGH WATERMARK": "1500",
        "WAITING": "300",
        "TRANSACTIONAL ID": "\\x1b[31mred id",
        "VERDICT": "ongoing",
        "PRODUCER ID": "4001",
        "EPOCH": "3",
        "STATE": "Ongoing",
        "SINCE": "2026-01-31T12:00:00.000Z",
        "ENDS BY": "2026-01-31T12:01:00.000Z",
        "REASON": "",
        "NEXT": "headrace transactions terminate --id '\\x1b[31mred id'",
    }
    assert set(free[4:]) == {"-"}
    assert err.getvalue() == ""


def test_explain_on_a_terminal_has_the_reason_and_the_command_below_the_table() -> None:
    out = Terminal()
    view.show_waits(Output(stdout=out), "orders", [waiting(judged("hanging", known=False, name=HOSTILE))], 0)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "orders-2  hangs: no coordinator knows it" in shown
    assert "next: headrace transactions abort --topic orders --partition 2 --start-offset 1200" in shown


def test_explain_says_so_when_nothing_holds_readers_back() -> None:
    err = io.StringIO()
    view.show_waits(Output(stdout=io.StringIO(), stderr=err), "orders", [waiting(last_stable=1_500)], 0)
    assert err.getvalue() == "No transaction holds back read_committed readers of topic 'orders'.\n"


def test_explain_as_json_keeps_transactions_of_each_partition() -> None:
    out = io.StringIO()
    view.show_waits(
        Output(as_json=True, stdout=out), "orders", [waiting(judged("hanging", known=False))], NOON_MS
    )
    (partition,) = json.loads(out.getvalue())["partitions"]
    assert (partition["last_stable_offset"], partition["high_watermark"], partition["waiting"]) == (
        1200,
        1500,
        300,
    )
    (found,) = partition["transactions"]
    assert (found["verdict"], found["transaction"], found["coordinator_epoch"]) == ("hanging", None, -1)
    assert found["next"] == partition["next"]


def test_numbers_that_are_typed_again_have_no_thousands_separators() -> None:
    listing = TransactionListing(transactional_id="copier", node_id=1, producer_id=4_001, state="Ongoing")
    out = Terminal()
    view.show_list(Output(stdout=out), [listing])
    view.show_hanging(Output(stdout=out), HangingReport(hanging=(judged("hanging"),), known=()), NOON_MS)
    assert "4001" in out.getvalue()
    assert "1200" in out.getvalue()
    assert "4,001" not in out.getvalue()


def test_durations_have_units_on_a_terminal_and_are_seconds_in_a_pipe() -> None:
    found = judged("ongoing").transaction
    pipe, terminal = io.StringIO(), Terminal()
    view.show_description(Output(stdout=pipe), found, NOON_MS + 90_000)
    view.show_description(Output(stdout=terminal), found, NOON_MS + 90_000)
    assert "time-out\t60.000\n" in pipe.getvalue()
    assert "age\t90.000\n" in pipe.getvalue()
    assert "1 min 30 s" in terminal.getvalue()


def test_hanging_transactions_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    view.show_hanging(
        Output(stdout=out),
        HangingReport(hanging=(judged("hanging", known=False),), known=()),
        NOON_MS + 61_000,
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert re.search(r"orders-2 +4001 +3 +1200 +2026-01-31T12:00:01Z +1 min 0 s", shown)
    assert "next: headrace transactions abort --topic orders --partition 2 --start-offset 1200" in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["list", "--state", "Open"], "'Open' is not one of Empty, Ongoing, PrepareCommit"),
        (["list", "--longer-than", "soon"], "'soon' is not a duration"),
        (["describe"], "--id"),
        (["find-hanging"], "--topic or --broker is needed"),
        (["find-hanging", "--broker", "1", "--partition", "0"], "needs --topic"),
        (["find-hanging", "--topic", "t", "--max-transaction-timeout", "15"], "'15' is not a duration"),
        (["abort", "--topic", "t", "--partition", "0"], "either --start-offset, or --producer-id"),
        (["abort", "--topic", "t", "--partition", "0", *PRODUCER], "--coordinator-epoch"),
        (["abort", "--topic", "t", "--partition", "0", "--start-offset", "1", *PRODUCER], "either"),
        (["abort", "--topic", "t", "--partition", "-1", "--start-offset", "1"], "--partition"),
        (["fence"], "--id"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["transactions", *arguments, "--bootstrap", "127.0.0.1:1"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert complaint in captured.err
    assert "--help" in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["describe", "--id", "x"],
        ["explain", "t"],
        ["find-hanging", "--topic", "t"],
        ["abort", "--topic", "t", "--partition", "0", "--start-offset", "1", "--yes"],
        ["terminate", "--id", "x", "--yes"],
        ["fence", "--id", "x", "--yes"],
    ],
    ids=" ".join,
)
def test_a_broker_that_is_not_there_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["transactions", *arguments, "--bootstrap", "127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no Kafka broker can be reached at 127.0.0.1:1 (Connection refused)" in error
