# SPDX-License-Identifier: Apache-2.0
"""Rows of a task on their way to topics: those of one topic flow, others are sorted first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.rows import requests

_BATCHES = 3


def coming(taken: list[int], **more: Any) -> Iterator[Any]:
    for number in range(_BATCHES):
        taken.append(number)
        yield pa.record_batch({"value": [f"row {number}"], **{name: [value] for name, value in more.items()}})


def settings(topic: str | None) -> WriteSettings:
    return WriteSettings(bootstrap="h:1", topic=topic, compression="none", timeout_ms=1)


def test_rows_of_one_topic_are_sent_while_others_come() -> None:
    taken: list[int] = []
    columns = SinkColumns(names=frozenset({"value"}))
    ((topic, _),) = requests(coming(taken), settings("orders"), columns, idempotent=True)
    assert (topic, taken) == ("orders", [0])


@pytest.mark.parametrize(("topic", "column"), [(None, {"topic": "orders"}), ("orders", {"partition": 3})])
def test_rows_that_name_where_they_go_are_sorted_first(topic: str | None, column: dict[str, Any]) -> None:
    taken: list[int] = []
    columns = SinkColumns(names=frozenset({"value", *column}))
    ((found, _),) = requests(coming(taken, **column), settings(topic), columns, idempotent=True)
    assert (found, taken) == ("orders", list(range(_BATCHES)))


def test_a_task_without_rows_asks_for_nothing() -> None:
    columns = SinkColumns(names=frozenset({"value"}))
    assert list(requests(iter(()), settings("orders"), columns, idempotent=True)) == []
