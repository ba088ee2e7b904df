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

    def store(self, spark: Any, topic: str, path: str, schema: str | None) -> None:
        """The whole topic into a table. `schema`: of JSON values, as columns."""

    def history(self, spark: Any, topic: str, path: str) -> Any:
        """All records; `path`: the table that ours has stored."""

    def typed_history(self, spark: Any, topic: str, path: str, schema: str) -> Any:
        """Their fields as columns."""


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

    def store(self, spark: Any, topic: str, path: str, schema: str | None) -> None:
        raise NotImplementedError("the connector reads the topic")

    def history(self, spark: Any, topic: str, path: str) -> Any:
        return self.load(spark.read, topic, ["key", "value"])

    def typed_history(self, spark: Any, topic: str, path: str, schema: str) -> Any:
        values = self.load(spark.read, topic, ["value"])
        return values.selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS value").select("value.*")


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

    def store(self, spark: Any, topic: str, path: str, schema: str | None) -> None:
        from pathlib import Path
        from threading import Event

        from headrace.pipelines.definitions.definition_file import pipelines_of
        from headrace.pipelines.runner import Runner

        typed = {} if schema is None else {"value": "json", "schema": schema}
        document = {
            "bootstrap": self.bootstrap,
            "checkpoints": f"{Path(path).parent}/checkpoints-{topic}",
            "store": {topic: {"topic": topic, "path": path, "max_rows": 2_000_000, **typed}},
        }
        runner = Runner(spark, pipelines_of(document, "bench").pipelines, once=True)
        try:
            runner.start()
            runner.run(lambda _: None, Event())
        finally:
            runner.close()

    def history(self, spark: Any, topic: str, path: str) -> Any:
        from headrace.spark import table

        return table(spark, topic, path=path, bootstrap=self.bootstrap)

    def typed_history(self, spark: Any, topic: str, path: str, schema: str) -> Any:
        return self.history(spark, topic, path)

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

    def store(self, spark: Any, topic: str, path: str, schema: str | None) -> None:
        raise NotImplementedError("nothing is stored from rows that are made up")

    def history(self, spark: Any, topic: str, path: str) -> Any:
        raise NotImplementedError("rows that are made up have no history")

    def typed_history(self, spark: Any, topic: str, path: str, schema: str) -> Any:
        raise NotImplementedError("rows that are made up have no history")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """`spark.read.parquet` of the files of the table, without anything of ours: what Spark itself costs."""

    def load(self, reader: Any, topic: str, columns: Sequence[str]) -> Any:
        raise NotImplementedError("files are no topic")

    def load_documents(self, reader: Any, topic: str) -> Any:
        raise NotImplementedError("files are no topic")

    def to_topic(self, writer: Any, topic: str) -> Any:
        raise NotImplementedError("files are no topic")

    def store(self, spark: Any, topic: str, path: str, schema: str | None) -> None:
        raise NotImplementedError("files are stored by ours")

    def history(self, spark: Any, topic: str, path: str) -> Any:
        from deltalake import DeltaTable

        return spark.read.option("basePath", path).parquet(*DeltaTable(path).file_uris())

    def typed_history(self, spark: Any, topic: str, path: str, schema: str) -> Any:
        return self.history(spark, topic, path)
