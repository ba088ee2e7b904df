# SPDX-License-Identifier: Apache-2.0
"""The two sides of the suite: how each names a topic as a source and as a sink; nothing else differs.

Runs inside Spark's driver, under either version of PySpark: imports no other module of ours. Read next:
queries.py (what is done with them), program.py (the process around it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

DOCUMENT = "id BIGINT, customer STRING, amount BIGINT, at TIMESTAMP"
"""The fields of the JSON values; amounts are whole so that their sum can be compared exactly."""


class Side(Protocol):
    def load(self, reader: Any, topic: str, columns: Sequence[str]) -> Any:
        """`reader`: `spark.read` or `spark.readStream`."""

    def load_documents(self, reader: Any, topic: str) -> Any:
        """JSON values as columns."""

    def to_topic(self, writer: Any, topic: str) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Spark's own connector. Which tuning is best is found out before it is measured."""

    bootstrap: str
    tuning: Mapping[str, str] = field(default_factory=dict)

    def load(self, reader: Any, topic: str, columns: Sequence[str]) -> Any:
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **self.tuning,
        }
        return reader.format("kafka").options(**options).load().select(*columns)

    def load_documents(self, reader: Any, topic: str) -> Any:
        values = self.load(reader, topic, ["value"])
        return values.selectExpr(f"from_json(CAST(value AS STRING), '{DOCUMENT}') AS value").select("value.*")

    def to_topic(self, writer: Any, topic: str) -> Any:
        producer = {"kafka.linger.ms": "20", "kafka.batch.size": "1000000"}  # as good as we found it to get
        return writer.format("kafka").options(
            **{"kafka.bootstrap.servers": self.bootstrap, "topic": topic, **producer}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Nothing is tuned; only columns that are used are named, as the documentation says."""

    bootstrap: str
    exactly_once: str = "off"

    def load(self, reader: Any, topic: str, columns: Sequence[str]) -> Any:
        return self._source(reader, topic, columns).load()

    def load_documents(self, reader: Any, topic: str) -> Any:
        typed = self._source(reader, topic, ["value"]).options(value="json", valueSchema=DOCUMENT)
        return typed.load().select("value.*")

    def to_topic(self, writer: Any, topic: str) -> Any:
        return writer.format("headrace").options(
            bootstrap=self.bootstrap, topic=topic, exactlyOnce=self.exactly_once
        )

    def _source(self, reader: Any, topic: str, columns: Sequence[str]) -> Any:
        return reader.format("headrace").options(
            bootstrap=self.bootstrap, subscribe=topic, startingOffsets="earliest", columns=",".join(columns)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Rows of the same shape that Spark makes up itself: what a version of Spark costs without a source."""

    rows: int
    bootstrap: str = ""
    exactly_once: str = "off"

    def load(self, reader: Any, topic: str, columns: Sequence[str]) -> Any:
        """A stream of one micro-batch; `topic` is not read."""
        made = reader.format("rate-micro-batch").options(rowsPerBatch=self.rows, numPartitions=8).load()
        return made.selectExpr(
            "CAST(concat('key-', lpad(value, 8, '0')) AS BINARY) AS key",
            "CAST(repeat(concat('word', lpad(value % 1000, 4, '0')), 11) AS BINARY) AS value",
            "timestamp",
        ).select(*columns)

    def load_documents(self, reader: Any, topic: str) -> Any:
        raise NotImplementedError("no documents are made up")

    def to_topic(self, writer: Any, topic: str) -> Any:
        """Into our sink: what the sink costs without a source of ours."""
        return Ours(bootstrap=self.bootstrap, exactly_once=self.exactly_once).to_topic(writer, topic)
