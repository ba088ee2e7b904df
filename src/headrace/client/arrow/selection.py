"""A part of a topic by name, for notebooks: `headrace.topic("orders").last("10m").to_pandas()`.

Nothing is read before one of the `to_…` calls. Read next: reader.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from headrace.client.arrow.bounds import Bound
from headrace.client.arrow.reader import read
from headrace.client.arrow.typed import Rejects
from headrace.client.arrow.values.formats import Format
from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.errors import ClientError
from headrace.client.security import Security


@dataclass(frozen=True, slots=True)
class Selection:
    """Each call gives a narrower selection; the one before stays as it is."""

    topic: str
    bootstrap: str = DEFAULT_BOOTSTRAP
    options: Mapping[str, Any] = field(default_factory=dict)

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
        """Keys and values as text or numbers; `rejects` takes what is not."""
        return self._with(key=key, value=value, rejects=rejects)

    def first(self, count: int) -> Selection:
        """At most so many records, as partitions deliver them."""
        return self._with(count=count)

    def to_reader(self) -> Any:
        """A pyarrow.RecordBatchReader, which fetches as it is read."""
        return read(self.topic, bootstrap=self.bootstrap, **self.options)

    def to_arrow(self) -> Any:
        """A pyarrow.Table."""
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        _needs("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        return _needs("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """DuckDB, polars, pandas and others take a selection as it is."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        chosen = "".join(f", {name}={value!r}" for name, value in self.options.items() if value is not None)
        return f"headrace.topic({self.topic!r}, bootstrap={self.bootstrap!r}{chosen})"

    def _with(self, **changes: Any) -> Selection:
        return Selection(self.topic, self.bootstrap, {**self.options, **changes})


def topic(name: str, *, bootstrap: str = DEFAULT_BOOTSTRAP, security: Security | None = None) -> Selection:
    """A topic to choose from: `.last("10m")`, `.between(…)`, `.select("key", "value")`, `.first(100)`."""
    return Selection(name, bootstrap, {} if security is None else {"security": security})


def _needs(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ClientError(f"{library} is not installed", next_step=f"pip install {library}") from error
