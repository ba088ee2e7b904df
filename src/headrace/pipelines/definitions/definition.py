# SPDX-License-Identifier: Apache-2.0
"""Definitions of pipelines: source, processing and sinks, as frozen values.

Independent of Spark and of file formats. Read next: definition_keys.py (parsing); jobs/store.py,
jobs/analyze.py, jobs/copying.py (how they run).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from headrace.pipelines.delta.storage_options import storage_options, table_place
from headrace.pipelines.delta.table import TablePlace

TableFormat = Literal["delta", "parquet"]
Emit = Literal["closed", "all"]
DEFAULT_TARGET_SIZE = 128 << 20
"""Size towards which the files of a table are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source topics. Exactly one of `topics` and `pattern` is set."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    begin: str = "earliest"
    """Starting offsets without a checkpoint: earliest, latest, group, or offsets as JSON."""
    value: str = "raw"
    key: str = "raw"
    schema: str | None = None
    registry: str | None = None
    rejects: str | None = None
    """Topic for records that cannot be decoded."""
    max_rows: int | None = None
    on_data_loss: str = "fail"
    config: str | None = None
    """A client's properties file with TLS and login, for the source and for topic sinks."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of the source, and security of topic sinks; they may hold passwords (S8)."""

    @property
    def typed(self) -> bool:
        return self.value in ("json", "avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How tables in object stores are reached: options by deltalake's names, and a file with others."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """They may hold a login (S8)."""
    config: str | None = None

    def place(self, path: str) -> TablePlace:
        """Of a table, with the options that reach it; ClientError when they do not fit."""
        return table_place(path, storage_options(self.options, self.config))

    def sink_options(self) -> dict[str, str]:
        """Options of `format("headrace_delta")`."""
        named = {f"storage.{name}": value for name, value in self.options.items()}
        return named if self.config is None else {**named, "storageConfig": self.config}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    kind: ClassVar[str]
    name: str
    source: Source
    group: str
    checkpoint: Path
    every_ms: int = 0
    """Minimum interval between micro-batches."""

    def identity(self) -> dict[str, object]:
        """The settings that must not change while a checkpoint is in use."""
        asked = list(self.source.topics) or self.source.pattern
        return {"kind": self.kind, "topic": asked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Pipeline):
    """Stores every record in a table."""

    kind: ClassVar[str] = "store"
    path: str
    storage: Storage = Storage()
    format: TableFormat = "delta"
    time: str = "timestamp"
    """SQL expression of the time whose date partitions the table."""
    partition_by: tuple[str, ...] | None = None
    """None: partition by that date."""
    optimize_ms: int | None = None
    """Interval at which small files are merged; None: never."""
    target_size: int = DEFAULT_TARGET_SIZE

    def identity(self) -> dict[str, object]:
        return {**Pipeline.identity(self), "path": self.path, "format": self.format}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A column of the result, in SQL."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyze(Pipeline):
    """Aggregates by window of event time and by key. `path`, `to` or both are set."""

    kind: ClassVar[str] = "analyze"
    time: str = "timestamp"
    window_ms: int
    slide_ms: int | None = None
    watermark_ms: int
    by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    emit: Emit = "closed"
    path: str | None = None
    storage: Storage = Storage()
    to: str | None = None

    def identity(self) -> dict[str, object]:
        return {
            **Pipeline.identity(self),
            "window": self.window_ms,
            "slide": self.slide_ms,
            "by": list(self.by),
            "aggregates": [each.expression for each in self.aggregates],
            "emit": self.emit,
            "path": self.path,
            "to": self.to,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Pipeline):
    """Copies records to another topic. Strings are SQL expressions."""

    kind: ClassVar[str] = "copy"
    to: str
    where: str | None = None
    select: tuple[str, ...] = ()
    """Fields of the new value, a JSON object."""
    expression: str | None = None
    """The new value."""
    new_key: str | None = None

    def identity(self) -> dict[str, object]:
        return {**Pipeline.identity(self), "to": self.to}
