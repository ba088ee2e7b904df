# SPDX-License-Identifier: Apache-2.0
"""A part of a topic by name, for notebooks: `headrace.topic("orders").last("10m").to_pandas()`.

Nothing is read before one of the `to_…` calls. Read next: reader.py, extent.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.client.arrow.read.bounds import Bound
from headrace.client.arrow.read.extent import PartitionExtent, extent_of
from headrace.client.arrow.read.reader import read
from headrace.client.arrow.read.typed import Rejects
from headrace.client.arrow.values.formats import Format
from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.errors import ClientError
from headrace.client.security import Security

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

_GLANCE_MS = 2_000
"""How long a notebook's output may wait for the broker."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of a topic, which is read when one of the `to_…` methods is called.

    Made by `headrace.topic`. Each method gives a narrower selection; the one before stays as it is. Libraries
    that take an Arrow stream (DuckDB, polars, pyarrow, `headrace.write`) take a selection as it is.

    Example:
        ```python
        recent = headrace.topic("orders").last("10m").typed(value="json")
        print(len(recent), "records")
        frame = recent.to_pandas()
        ```
    """

    topic: str
    bootstrap: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_flat: bool = False

    def last(self, duration: str | timedelta) -> Selection:
        """Records of the last `"30s"`, `"10m"`, `"2.5h"`, `"7d"`, or of a timedelta."""
        return self._with(last=duration, start=None)

    def between(self, start: Bound = None, end: Bound = None) -> Selection:
        """From `start` up to, and without, `end`: offsets, `{partition: offset}`, or datetimes."""
        return self._with(start=start, end=end, last=None)

    def select(self, *columns: str) -> Selection:
        """Only these columns; the others are never made."""
        return self._with(columns=list(columns))

    def typed(
        self, *, key: Format = "raw", value: Format = "raw", rejects: Rejects | None = None
    ) -> Selection:
        """Keys and values as text, numbers, JSON or Avro; `rejects` takes what is not."""
        return self._with(key=key, value=value, rejects=rejects)

    def flat(self) -> Selection:
        """Fields of JSON and Avro objects as columns of their own: `value.customer`."""
        return Selection(self.topic, self.bootstrap, self.options, True)

    def first(self, count: int) -> Selection:
        """At most so many records, as partitions deliver them."""
        return self._with(count=count)

    def progress(self, wanted: bool = True) -> Selection:
        """Show how far a read has come, or never do."""
        return self._with(progress=wanted)

    def extent(self) -> list[PartitionExtent]:
        """Which offsets of which partitions would be read now."""
        return extent_of(self.topic, bootstrap=self.bootstrap, **self.options)

    def __len__(self) -> int:
        """How many records it holds now, without reading them: the offsets of its ranges, at most `first`.

        Exact for topics that are neither compacted nor written in transactions. There it is an upper bound:
        compacted records, aborted records and the markers of transactions have offsets too.
        """
        offsets = sum(each.end - each.start for each in self.extent())
        count = self.options.get("count")
        return offsets if count is None else min(offsets, int(count))

    def to_reader(self) -> pa.RecordBatchReader:
        """A pyarrow.RecordBatchReader, which fetches as it is read."""
        reader = read(self.topic, bootstrap=self.bootstrap, **self.options)
        return _flat_reader(reader) if self.is_flat else reader

    def to_arrow(self) -> pa.Table:
        """A pyarrow.Table."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas.DataFrame; objects are flat, since pandas has no columns of them."""
        _needs("pandas")
        return self.flat().to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """A polars.DataFrame."""
        frame: polars.DataFrame = _needs("polars").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation over the records, to be queried: `.filter("value.price > 3")`."""
        library = _needs("duckdb")
        relation: duckdb.DuckDBPyRelation = (connection or library).from_arrow(self.to_arrow())
        return relation

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """DuckDB, polars, pandas and others take a selection as it is."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        chosen = "".join(f", {name}={value!r}" for name, value in self.options.items() if value is not None)
        flat = ".flat()" if self.is_flat else ""
        return f"headrace.topic({self.topic!r}, bootstrap={self.bootstrap!r}{chosen}){flat}"

    def _repr_html_(self) -> str:
        """What a notebook shows: the selection, and what it holds now if the broker says so soon."""
        head = f"<code>{escape(repr(self))}</code>"
        try:
            options = {**self.options, "timeout_ms": _GLANCE_MS}
            found = extent_of(self.topic, bootstrap=self.bootstrap, **options)
        except ClientError as error:
            return f"{head}<p>{escape(str(error))}</p>"
        return head + _as_html(found)

    def _with(self, **changes: Any) -> Selection:
        return Selection(self.topic, self.bootstrap, {**self.options, **changes}, self.is_flat)


def topic(
    name: str,
    *,
    bootstrap: str | None = None,
    security: Security | None = None,
    config: str | Path | None = None,
) -> Selection:
    """Selects a topic to read from; nothing is read before one of the `to_…` methods is called.

    Args:
        name: of the topic.
        bootstrap: `HOST:PORT,…`; without it `HEADRACE_BOOTSTRAP`, then 127.0.0.1:9092.
        security: TLS and login as a `headrace.Security`.
        config: the same in a properties file of a Kafka client.

    Returns:
        A `Selection`, to narrow with `.last("10m")`, `.between(…)`, `.select("key", "value")`, `.first(100)`.

    Example:
        ```python
        frame = headrace.topic("orders").last("10m").typed(value="json").to_pandas()
        ```
    """
    given = {"security": security, "config": config}
    chosen = chosen_bootstrap(bootstrap)
    return Selection(name, chosen, {option: value for option, value in given.items() if value is not None})


def _as_html(found: list[PartitionExtent]) -> str:
    heads = "".join(f"<th>{name}</th>" for name in ("partition", "from offset", "to", "records"))
    rows = "".join(
        f"<tr><td>{each.partition}</td><td>{each.start:,}</td><td>{each.end:,}</td>"
        f"<td>{each.end - each.start:,}</td></tr>"
        for each in found
    )
    total = sum(each.end - each.start for each in found)
    foot = f"<tr><th>all</th><td></td><td></td><td>{total:,}</td></tr>"
    return f"<table><tr>{heads}</tr>{rows}{foot}</table>"


def _flat_reader(reader: Any) -> Any:
    def batches() -> Iterator[Any]:
        for batch in reader:
            yield from _flattened(pa.Table.from_batches([batch])).to_batches()

    schema = _flattened(reader.schema.empty_table()).schema
    return pa.RecordBatchReader.from_batches(schema, batches())


def _flattened(table: Any) -> Any:
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def _needs(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ClientError(f"{library} is not installed", next_step=f"pip install {library}") from error
