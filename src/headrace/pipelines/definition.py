"""What a pipeline is: which topic, what is done with its records, where they go. Frozen values.

Knows no Spark and no file format. Read next: definition_keys.py (how they are written), store.py, analyze.py,
copying.py (what is made of them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

TableFormat = Literal["delta", "parquet"]
Emit = Literal["closed", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Records of topics. One of `topics` and `pattern` is there."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    begin: str = "earliest"
    """Where a pipeline without a checkpoint begins: earliest, latest, group, or offsets as JSON."""
    value: str = "raw"
    key: str = "raw"
    schema: str | None = None
    registry: str | None = None
    rejects: str | None = None
    """The topic of records that cannot be read so."""
    max_rows: int | None = None
    on_data_loss: str = "fail"
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the source, and of sinks that are topics: security above all."""

    @property
    def typed(self) -> bool:
        return self.value in ("json", "avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    kind: ClassVar[str]
    name: str
    source: Source
    group: str
    checkpoint: Path
    every_ms: int = 0
    """How long from one micro-batch to the next at least."""

    def lasting(self) -> dict[str, object]:
        """What has to stay as it is while a checkpoint is in use."""
        asked = list(self.source.topics) or self.source.pattern
        return {"kind": self.kind, "topic": asked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Pipeline):
    """Every record into a table."""

    kind: ClassVar[str] = "store"
    path: str
    format: TableFormat = "delta"
    time: str = "timestamp"
    """SQL: the moment whose date a record is filed under."""
    partition_by: tuple[str, ...] | None = None
    """None: by that date."""

    def lasting(self) -> dict[str, object]:
        return {**Pipeline.lasting(self), "path": self.path, "format": self.format}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A column of the result, in SQL."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyze(Pipeline):
    """Aggregates by window of event time and by key. One of `path` and `to` is there, or both."""

    kind: ClassVar[str] = "analyze"
    time: str = "timestamp"
    window_ms: int
    slide_ms: int | None = None
    watermark_ms: int
    by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    emit: Emit = "closed"
    path: str | None = None
    to: str | None = None

    def lasting(self) -> dict[str, object]:
        return {
            **Pipeline.lasting(self),
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
    """Records into another topic: all or some, as they are or changed. Texts are SQL."""

    kind: ClassVar[str] = "copy"
    to: str
    where: str | None = None
    select: tuple[str, ...] = ()
    """Columns of the new value, a JSON object."""
    expression: str | None = None
    """The new value itself."""
    new_key: str | None = None

    def lasting(self) -> dict[str, object]:
        return {**Pipeline.lasting(self), "to": self.to}
