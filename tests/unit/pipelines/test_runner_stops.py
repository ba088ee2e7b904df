# SPDX-License-Identifier: Apache-2.0
"""When a query is stopped: with a stand-in for Spark's query whose every state is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.runner import RunningQuery, planned_queries
from pyspark_headrace.reading.query_lock import stop_requested


class Query:
    """Spark's, as far as it is asked. `messages`: what the status says, one after the other."""

    def __init__(self, *messages: str, error: str | None = None) -> None:
        self.messages = list(messages)
        self.trigger_active = False
        self.stopped = False
        self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark has it
        return not self.stopped and (bool(self.messages) or self._error is None)

    @property
    def status(self) -> dict[str, Any]:
        message = self.messages.pop(0) if self.messages else "Waiting for data to arrive"
        return {"message": message, "isTriggerActive": self.trigger_active}

    def exception(self) -> str | None:
        return self._error

    def stop(self) -> None:
        self.stopped = True


def running(query: Query, folder: Path) -> RunningQuery:
    table = {"topic": "orders", "path": "/t"}
    (pipeline,) = pipelines_of({"store": {"orders": table}}, "the test").pipelines
    (planned,) = planned_queries(pipeline)
    return RunningQuery(planned, query, folder / "stop")  # type: ignore[arg-type]


def test_a_query_stops_when_its_source_saw_the_stop_file_between_triggers(tmp_path: Path) -> None:
    query = Query()
    it = running(query, tmp_path)
    query.trigger_active = True
    it.request_stop()
    it.stop_at_boundary()
    assert not query.stopped, "a batch runs"
    assert stop_requested(str(tmp_path / "stop"))
    it.request_stop()
    it.stop_at_boundary()
    assert not query.stopped, "the source knows, and the trigger goes on"
    query.trigger_active = False
    it.stop_at_boundary()
    assert query.stopped


def test_between_two_triggers_it_does_not_wait_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("headrace.pipelines.runner.time.monotonic", lambda: now_s)
    query = Query()
    it = running(query, tmp_path)
    it.request_stop()
    it.stop_at_boundary()
    now_s += 2
    query.trigger_active = True
    it.stop_at_boundary()
    query.trigger_active = False
    now_s += 2
    it.stop_at_boundary()
    assert not query.stopped, "it was not idle for long: its next trigger will see the file"
    now_s += 4
    it.stop_at_boundary()
    assert query.stopped


@pytest.mark.parametrize(
    ("query", "started"),
    [
        (Query("Initializing sources", "Getting offsets"), True),
        (Query("Initializing sources", error="Python worker failed to connect back"), False),
        (Query("Terminated with exception: x", error="Python worker failed to connect back"), False),
        (Query("Terminated with exception: x", error="topic 'o' does not exist"), True),
    ],
)
def test_a_planner_that_was_too_slow_is_started_again(query: Query, started: bool, tmp_path: Path) -> None:
    assert running(query, tmp_path).await_source() is started, "other errors are told instead"


def test_a_table_and_a_topic_are_two_queries() -> None:
    both = {"topic": "orders", "window": "1m", "path": "/t", "to": "results", "checkpoint": "/c/orders"}
    (pipeline,) = pipelines_of({"analyze": {"orders": both}}, "the test").pipelines
    found = [(each.name, each.group, str(each.checkpoint)) for each in planned_queries(pipeline)]
    assert found == [("orders", "orders", "/c/orders"), ("orders.topic", "orders.topic", "/c/orders.topic")]
