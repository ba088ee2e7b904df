# SPDX-License-Identifier: Apache-2.0
"""Histories in Jepsen's format read back as what was written, and keep to what Jepsen expects of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.types import TopicPartition
from tests.harness.history import FinalLog, History, Poll, Send
from tests.harness.jepsen.edn import FOLDER, edn_lines, export
from tests.harness.jepsen.operations import Operation, Polled, Sent

X, Y = TopicPartition("topic", 0), TopicPartition("topic", 1)
_TOKEN = re.compile(r"[\[\]{}]|:?[a-z][a-z?-]*|-?\d+")


def read_edn(text: str) -> Any:
    """Maps, vectors, integers, keywords (as strings with their colon) and nil."""
    tokens = iter(_TOKEN.findall(text))

    def form(token: str) -> Any:
        if token in "[{":
            items = []
            while (token_ := next(tokens)) not in "]}":
                items.append(form(token_))
            return items if token == "[" else dict(zip(items[::2], items[1::2], strict=True))
        if token == "nil":
            return None
        return token if token.startswith(":") else int(token)

    return form(next(tokens))


def exported(*operations: Operation) -> list[dict[str, Any]]:
    return [read_edn(line) for line in edn_lines(operations) if not line.startswith(";")]


def shapes(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each[":type"], each[":f"], each[":value"]) for each in events]


def operation(at: int, *steps: Sent | Polled, until: int | None = None, **more: Any) -> Operation:
    fields = {"process": "p", "type": "ok", "f": "send", "invoked_at": at, "completed_at": until}
    return Operation(**{**fields, "value": steps, **more})


def test_sends_and_polls_have_the_shapes_of_the_workload() -> None:
    copied = (Polled({X: [(0, b"a"), (1, b"b")]}), Sent(Y, b"c"))
    events = exported(
        operation(100, Sent(X, b"a", 0), until=110),
        operation(120, Sent(X, b"b"), until=125, type="fail"),
        operation(130, *copied, until=140, f="txn", rebalanced=[X]),
        operation(150, f="assign", until=150, keys=[Y, X]),
        operation(160, f="crash", until=170, type="info"),
    )
    assert shapes(events) == [
        (":invoke", ":send", [[":send", 0, 0]]),
        (":ok", ":send", [[":send", 0, [0, 0]]]),
        (":invoke", ":send", [[":send", 0, 1]]),
        (":fail", ":send", [[":send", 0, 1]]),
        (":invoke", ":txn", [[":poll"], [":send", 1, 0]]),
        (":ok", ":txn", [[":poll", {0: [[0, 0], [1, 1]]}], [":send", 1, [None, 0]]]),
        (":invoke", ":assign", [0, 1]),
        (":ok", ":assign", [0, 1]),
        (":invoke", ":crash", None),
        (":info", ":crash", None),
    ]
    assert [each[":index"] for each in events] == list(range(10))
    assert [each[":time"] for each in events] == [0, 10, 20, 25, 30, 40, 50, 50, 60, 70]
    assert [each for each in events if ":rebalance-log" in each] == [events[5]]
    assert events[5][":rebalance-log"] == [{":keys": [0]}]


def test_a_process_does_one_thing_at_a_time_and_none_comes_back_after_info() -> None:
    events = exported(
        operation(0, Sent(X, b"a", 0), until=10),
        operation(5, Sent(X, b"b"), type="info"),
        operation(20, Sent(X, b"c", 1), until=30),
        operation(21, Sent(X, b"d", 2), until=30),
    )
    told = [(each[":type"], each[":process"]) for each in events]
    assert told == [
        (":invoke", 0), (":invoke", 1), (":ok", 0),
        (":invoke", 0), (":invoke", 2), (":ok", 0), (":ok", 2), (":info", 1),
    ]  # fmt: skip


def test_what_clients_recorded_is_exported_with_the_final_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History()
    first = history.sent(Send(producer="p", partition=X, value=b"a", durable=True))
    history.polled(Poll(reader="r", partition=X, records=[(0, b"a")]))
    history.ended(first, "ok", 0)
    history.sent(Send(producer="p", partition=X, value=b"b", durable=True))
    history.polled(Poll(reader="r", partition=X, records=[(0, b"a")], seek=True))
    final = {X: FinalLog(records=[(0, b"a")])}
    export("run", history.operations(final), final)
    assert not any(tmp_path.iterdir())
    monkeypatch.setenv(FOLDER, str(tmp_path))
    export("run", history.operations(final), final)
    export("run", (), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-2.edn", "run.edn"]
    header, *lines = (tmp_path / "run.edn").read_text().splitlines()
    assert header == "; key 0 is topic-0"
    read = [[":poll", {0: [[0, 0]]}]]
    assert [each for each in shapes([read_edn(line) for line in lines]) if each[0] != ":invoke"] == [
        (":ok", ":poll", read),
        (":ok", ":send", [[":send", 0, [0, 0]]]),
        (":ok", ":assign", []),
        (":ok", ":assign", [0]),
        (":ok", ":poll", read),
        (":ok", ":poll", read),
        (":info", ":send", [[":send", 0, 1]]),
    ]


def test_what_was_deleted_before_anybody_read_it_is_not_told_as_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    sends = [
        operation(10 * at, Sent(X, value, at), until=10 * at + 5) for at, value in enumerate((b"a", b"b"))
    ]
    export("run", sends, {X: FinalLog(records=[(1, b"b")], log_start=1)})
    lines = (tmp_path / "run.edn").read_text().splitlines()[1:]
    assert [each[:2] for each in shapes([read_edn(line) for line in lines]) if each[0] != ":invoke"] == [
        (":info", ":send"), (":ok", ":send"), (":ok", ":poll"),
    ]  # fmt: skip
