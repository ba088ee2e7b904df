# SPDX-License-Identifier: Apache-2.0
"""What tests of the Spark source share: topics filled, queries run to their end, errors in one line."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import headrace
from headrace.cli.main import run
from tests.harness import waiting
from tests.harness.live.node import NodeProcess

TIMEOUT_S = 120


class Broker:
    """The node, and the questions of these tests to it."""

    def __init__(self, node: NodeProcess, metrics_port: int) -> None:
        self.node = node
        self.bootstrap = node.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._metrics_port = metrics_port

    def connections_opened(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as reply:
            found = re.search(rb"^headrace_connections_opened_total (\S+)", reply.read(), re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def fill(self, topic: str, first: int, end: int) -> list[str]:
        """Values `first` to before `end` as text, with the number as key too."""
        values = [f"value {number}" for number in range(first, end)]
        table = pa.table({"key": [str(number) for number in range(first, end)], "value": values})
        headrace.write(table, topic, bootstrap=self.bootstrap, key="key")
        return values

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        (future,) = self.admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        future.result(20)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(20)


class Query:
    """A streaming query over one checkpoint, run as often as a test likes; keeps the values it saw."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._options = {
            "bootstrap": broker.bootstrap,
            "startingOffsets": "earliest",
            **{name: str(value) for name, value in options.items()},
        }
        self.checkpoint = folder / "checkpoint"
        self.batches: list[list[str]] = []

    def start(self, **trigger: Any) -> Any:
        reader = self._spark.readStream.format("headrace").options(**self._options)
        writer = reader.load().selectExpr("CAST(value AS STRING)").writeStream
        return (
            writer.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start()
        )

    def run(self, **changed: Any) -> Any:
        """Until it has read what is there; options may have changed since the last run."""
        self._options |= {name: str(value) for name, value in changed.items()}
        query = self.start(availableNow=True)
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
        return query

    def wait_for(self, rows: int) -> None:
        wait_until(lambda: sum(map(len, self.batches)) == rows)

    def taken(self) -> list[str]:
        """What came since the last call, in any order."""
        found = sorted((value for batch in self.batches for value in batch), key=_number)
        self.batches.clear()
        return found

    def offsets(self) -> dict[str, Any]:
        """The last document in the checkpoint."""
        (newest,) = sorted(self.checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name))[-1:]
        document: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
        return document

    def finished(self) -> bool:
        """Whether there is a batch, and none that was started and is not done."""
        begun, done = (
            {each.name for each in self.checkpoint.glob(f"{name}/[0-9]*")} for name in ("offsets", "commits")
        )
        return bool(begun) and begun == done

    def _take(self, frame: Any, _: int) -> None:
        self.batches.append([row.value for row in frame.collect()])


def wait_until(happened: Callable[[], bool]) -> None:
    waiting.wait_until(happened, timeout_s=TIMEOUT_S, poll_s=0.05)


def reported(query: Any) -> dict[str, Any]:
    """What the source says of itself in the query's last progress."""
    document: dict[str, Any] = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    return document


def message_of(call: Callable[[], Any]) -> str:
    """The one line that our code raised, out of all that Spark wraps around it."""
    with pytest.raises(Exception) as raised:  # whatever Spark makes of it
        call()
    lines = re.findall(r"^headrace\.\S+: (.*)$", str(raised.value), re.MULTILINE)
    assert lines, f"not an error of ours: {raised.value}"
    return str(lines[-1])


def repair_as_told(said: str) -> None:
    """Run the command that an error of a sink names."""
    (command,) = re.findall("`(headrace pipeline checkpoint .*)`", said)
    assert run([*shlex.split(command)[1:], "--execute"]) == 0, command


def _number(value: str) -> int:
    return int(value.rsplit(" ", 1)[-1])
