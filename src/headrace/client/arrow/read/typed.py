# SPDX-License-Identifier: Apache-2.0
"""Decodes keys and values into typed columns; records that do not fit are rejected with a reason.

Read next: values/converters.py, decode.py, reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.fetch.sections import Fetched
from headrace.client.arrow.kernels.types import FIELDS
from headrace.client.arrow.read.decode import DEFAULT_BATCH_BYTES, Decoder, check_columns
from headrace.client.arrow.values.converter_factory import converter_for
from headrace.client.arrow.values.formats import Format as Format
from headrace.client.errors import ClientError

_WHERE = ("partition", "offset")


class Rejects:
    """Collects records that cannot be decoded: pass one to `read` and inspect it afterwards.

    Example:
        ```python
        rejects = headrace.Rejects()
        table = headrace.read("orders", value="json", rejects=rejects).read_all()
        print(len(rejects), rejects.to_arrow())
        ```
    """

    schema = pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "column": pa.string(),
            "error": pa.string(),
            "bytes": pa.binary(),
        }
    )

    def __init__(self) -> None:
        self._batches: list[Any] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Of the columns of `schema`; called while a topic is read."""
        self._batches.append(batch)

    def to_arrow(self) -> pa.Table:
        """A table of topic, partition, offset, column, error and the original bytes."""
        return pa.Table.from_batches(self._batches, self.schema)

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def __repr__(self) -> str:
        return f"<{len(self)} rejected records>"


class TypedDecoder:
    """A Decoder whose key and value columns have types. Rejected records are not among its rows."""

    def __init__(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        key: Format = "raw",
        value: Format = "raw",
        rejects: Rejects | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        wanted = check_columns(columns)
        self._converters = {
            name: converter
            for name, form in (("key", key), ("value", value))
            if (converter := converter_for(name, form, topic)) is not None and name in wanted
        }
        needed = [*wanted, *_WHERE] if self._converters else list(wanted)
        self._inner = Decoder(topic, needed, batch_bytes=batch_bytes)
        self._names = [name for name in FIELDS if name in wanted]
        self._rejects = rejects
        self._schema: Any = None
        self.topic = topic

    @property
    def schema(self) -> Any:
        """None as long as a type is still to be learned from the first records."""
        if self._schema is None:
            fields = [
                self._converters[name].field if name in self._converters else FIELDS[name]
                for name in self._names
            ]
            if all(field is not None for field in fields):
                self._schema = pa.schema(fields)
        return self._schema

    def learn_nothing(self) -> Any:
        """The schema when there is no record to learn from."""
        for converter in self._converters.values():
            converter.learn(pa.array([], pa.binary()))
        return self.schema

    def decode(self, parts: Iterable[Fetched]) -> Iterator[Any]:
        for batch in self._inner.decode(parts):
            typed = self._typed(batch) if self._converters else batch
            if typed.num_rows:
                yield typed

    def _typed(self, batch: Any) -> Any:
        fits = np.ones(batch.num_rows, bool)
        columns = {name: batch.column(name) for name in self._names}
        for name, converter in self._converters.items():
            converter.learn(columns[name])
            columns[name], wrong = converter.convert(columns[name])
            if wrong:
                self._set_aside(batch, name, wrong)
                fits[list(wrong)] = False
        typed = pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)
        return typed if fits.all() else typed.filter(pa.array(fits))

    def _set_aside(self, batch: Any, name: str, wrong: Mapping[int, str]) -> None:
        bad = batch.take(pa.array(list(wrong), pa.int64()))
        errors = list(wrong.values())
        if self._rejects is None:
            raise ClientError(
                f"{name} at offset {bad['offset'][0]} of partition {bad['partition'][0]} "
                f"of topic {self.topic!r}: {errors[0]}",
                next_step="collect such records with rejects=headrace.Rejects()",
            )
        arrays = [
            pa.array([self.topic] * len(errors)),
            bad.column("partition"),
            bad.column("offset"),
            pa.array([name] * len(errors)),
            pa.array(errors),
            bad.column(name),
        ]
        self._rejects.add(pa.RecordBatch.from_arrays(arrays, schema=Rejects.schema))
