# SPDX-License-Identifier: Apache-2.0
"""The history checker finds each planted anomaly, and nothing in a clean history."""

from __future__ import annotations

import pytest

from headrace.types import TopicPartition
from tests.harness.history import FinalLog, History, Outcome, Poll, Send, check

TP = TopicPartition("topic", 0)


def sent(
    value: bytes,
    outcome: Outcome = "ok",
    offset: int | None = None,
    *,
    durable: bool = True,
    producer: str = "p",
) -> Send:
    return Send(producer=producer, partition=TP, value=value, durable=durable, outcome=outcome, offset=offset)


def kinds(history: History, *records: tuple[int, bytes], log_start: int = 0) -> list[str]:
    log = FinalLog(records=records, log_start=log_start)
    return [anomaly.kind for anomaly in check(history, {TP: log})]


def test_a_clean_history_passes() -> None:
    history = History(
        [sent(b"a", offset=0), sent(b"b", "info"), sent(b"c", "fail"), sent(b"d", offset=1)],
        [
            Poll(reader="r", partition=TP, records=[(0, b"a")]),
            Poll(reader="r", partition=TP, records=[(1, b"d")]),
        ],
    )
    assert kinds(history, (0, b"a"), (1, b"d")) == []
    assert history.outcomes() == {"ok": 2, "info": 1, "fail": 1}


@pytest.mark.parametrize(
    ("anomaly", "sends", "records"),
    [
        ("lost-write", [sent(b"a", offset=0)], []),
        ("lost-write", [sent(b"a"), sent(b"b", offset=0)], [(0, b"b")]),
        ("duplicate", [sent(b"a", offset=0)], [(0, b"a"), (1, b"a")]),
        ("invented", [], [(0, b"a")]),
        ("G1a", [sent(b"a", "fail")], [(0, b"a")]),
        ("moved", [sent(b"a", offset=1), sent(b"b", "info")], [(0, b"a"), (1, b"b")]),
        ("nonmonotonic-send", [sent(b"a", "info"), sent(b"b", "info")], [(0, b"b"), (1, b"a")]),
        ("offset-gap", [sent(b"a", "info")], [(1, b"a")]),
        ("int-poll-skip", [sent(b"a", "info"), sent(b"b", "info")], [(0, b"a"), (2, b"b")]),
        (
            "int-nonmonotonic-poll",
            [sent(b"a", "info", producer="q"), sent(b"b", "info")],
            [(1, b"b"), (0, b"a")],
        ),
    ],
)
def test_an_anomaly_of_sends_is_found(
    anomaly: str, sends: list[Send], records: list[tuple[int, bytes]]
) -> None:
    assert anomaly in kinds(History(sends), *records)


@pytest.mark.parametrize(
    ("anomaly", "polls"),
    [
        ("inconsistent-offsets", [[(0, b"b")]]),
        ("read-then-lost", [[(0, b"a"), (1, b"b"), (2, b"c")]]),
        ("nonmonotonic-poll", [[(1, b"b")], [(0, b"a")]]),
        ("poll-skip", [[(0, b"a")], [(2, b"c")]]),
    ],
)
def test_an_anomaly_of_polls_is_found(anomaly: str, polls: list[list[tuple[int, bytes]]]) -> None:
    history = History(
        [sent(value, "info", producer=str(value)) for value in (b"a", b"b", b"c")],
        [Poll(reader="r", partition=TP, records=records) for records in polls],
    )
    assert anomaly in kinds(history, (0, b"a"), (1, b"b"))


def test_unacknowledged_records_may_be_lost() -> None:
    assert kinds(History([sent(b"a", offset=0, durable=False), sent(b"b", "info")])) == []


def test_what_was_deleted_is_not_lost() -> None:
    history = History([sent(b"a", offset=0), sent(b"b", offset=1)])
    assert kinds(history, (1, b"b"), log_start=1) == []
    assert kinds(History([sent(b"a"), sent(b"b", offset=1)]), (1, b"b"), log_start=1) == []


def test_a_reader_that_seeks_may_step_back() -> None:
    history = History(
        [sent(b"a", offset=0), sent(b"b", offset=1)],
        [
            Poll(reader="r", partition=TP, records=[(1, b"b")]),
            Poll(reader="r", partition=TP, records=[(0, b"a")], seek=True),
        ],
    )
    assert kinds(history, (0, b"a"), (1, b"b")) == []


def test_an_acknowledged_send_before_one_that_was_sent_earlier_is_found() -> None:
    """Of two producers, so that no promise of order of one of them is broken."""
    history = History()
    first = history.sent(sent(b"a"))
    history.ended(first, "ok", 1)
    second = history.sent(sent(b"b", producer="q"))
    history.ended(second, "ok", 0)
    assert kinds(history, (0, b"b"), (1, b"a")) == ["G0-realtime"]


def test_sends_that_overlap_in_time_may_be_stored_in_either_order() -> None:
    history = History()
    first, second = history.sent(sent(b"a")), history.sent(sent(b"b", producer="q"))
    history.ended(first, "ok", 1)
    history.ended(second, "ok", 0)
    assert kinds(history, (0, b"b"), (1, b"a")) == []
