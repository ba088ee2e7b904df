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
from typing import Any

import pyarrow as pa

from headrace.client.arrow.read.bounds import Bound
from headrace.client.arrow.read.extent import PartitionExtent, extent_of
from headrace.client.arrow.read.reader import read
from headrace.client.arrow.read.typed import Rejects
from headrace.client.arrow.values.formats import Format
from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.errors import ClientError
from headrace.client.security import Security

_GLANCE_MS = 2_000
"""How long a notebook's output may wait for the broker."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Each call gives a narrower selection; the one before stays as it is."""

    topic: str
    bootstrap: str = DEFAULT_BOOTSTRAP
    options: Mapping[str, Any] = field(default_factory=dict)
    is_flat: bool = False

    def last(self, duration: str | timedelta) -> Selection:
        """Records of the last `10m`, `2.5h`, `7d`."""
        return self._with(last=duration, start=None)

    def between(self, start: Bound = None, end: Bound = None) -> Selection:
        """From one offset or time on, up to and without another."""
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

    def to_reader(self) -> Any:
        """A pyarrow.RecordBatchReader, which fetches as it is read."""
        reader = read(self.topic, bootstrap=self.bootstrap, **self.options)
        return _flat_reader(reader) if self.is_flat else reader

    def to_arrow(self) -> Any:
        """A pyarrow.Table."""
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; objects are flat, since pandas has no columns of them."""
        _needs("pandas")
        return self.flat().to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A polars.DataFrame."""
        return _needs("polars").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A DuckDB relation over the records, to be queried: `.filter("value.price > 3")`."""
        duckdb = _needs("duckdb")
        table = self.to_arrow()
        return (connection or duckdb).from_arrow(table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
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
    bootstrap: str = DEFAULT_BOOTSTRAP,
    security: Security | None = None,
    config: str | Path | None = None,
) -> Selection:
    """A topic to choose from: `.last("10m")`, `.between(…)`, `.select("key", "value")`, `.first(100)`.

    bootstrap, security, config: as in `read`.
    """
    given = {"security": security, "config": config}
    return Selection(name, bootstrap, {option: value for option, value in given.items() if value is not None})


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
