# SPDX-License-Identifier: Apache-2.0
"""A driver of the exactly-once sink without Spark: messages made by hand, and a process to stop at a moment.

As a program it publishes one batch, says that it reached the moment, and goes on when it is told to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.client.arrow.write.transaction import Transaction
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.commit_messages import Encoded
from pyspark_headrace.writing.ledger import SinkLedger
from pyspark_headrace.writing.publish import publish_batch
from pyspark_headrace.writing.task import write_task

MOMENTS = ("before", "opened", "rows", "number", "committed")
KEYED = SinkColumns(names=frozenset({"key", "value"}))


def settings_for(bootstrap: str, topic: str, **changed: Any) -> WriteSettings:
    made = WriteSettings(bootstrap=bootstrap, topic=topic, compression="none", timeout_ms=30_000)
    return replace(made, **changed)


def values_of(batch: int, count: int = 40) -> list[str]:
    return [f"batch {batch} row {number:06}" for number in range(count)]


def task(settings: WriteSettings, values: Sequence[str], query: str = "query") -> Encoded:
    """What a task of that query would tell the driver."""
    rows = pa.record_batch({"key": [value[-6:] for value in values], "value": list(values)})
    message = write_task(
        iter([rows] if values else []), settings, KEYED, exactly_once=True, awaits_broker=True
    )
    assert isinstance(message, Encoded)
    return replace(message, query=query)


def _stop_at(moment: str) -> None:
    """Makes the publication wait there."""
    owner, name, afterwards = {
        "before": (Transaction, "__init__", False),
        "opened": (Transaction, "begin", False),
        "rows": (SinkLedger, "entry", False),
        "number": (Transaction, "commit", False),
        "committed": (Transaction, "commit", True),
    }[moment]
    original: Callable[..., Any] = getattr(owner, name)

    def stopping(*arguments: Any, **named: Any) -> Any:
        if not afterwards:
            _wait()
        result = original(*arguments, **named)
        if afterwards:
            _wait()
        return result

    setattr(owner, name, stopping)


def _wait() -> None:
    print("reached", flush=True)
    sys.stdin.readline()


def _main(bootstrap: str, topic: str, batch: str, moment: str) -> None:
    _stop_at(moment)
    settings = settings_for(bootstrap, topic, sink_id=topic)
    publish_batch([task(settings, values_of(int(batch)), query=topic)], settings, int(batch))
    print("published", flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
