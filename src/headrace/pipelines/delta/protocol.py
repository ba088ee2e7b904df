# SPDX-License-Identifier: Apache-2.0
"""Checks the writer features of a table; tables with unsupported ones are refused.

The library itself would append rows to a table without checking its constraints. Independent of Spark.
Read next: table.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SINCE_WRITER_VERSION = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}
"""Features that older table versions imply, used or not."""
_NAMES_ITS_FEATURES = 7
_NEEDS_NOTHING = frozenset({"appendOnly", "changeDataFeed", "domainMetadata", "timestampNtz"})
"""Features that need nothing when whole files are added or replaced."""
_NEEDS_NOTHING_TO_APPEND = frozenset({"deletionVectors"})
_BY_FIELD = {
    "invariants": "delta.invariants",
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.start",
}
"""The entry in a column's metadata that shows a feature in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTerms:
    """Protocol and properties of a table from its log."""

    writer_version: int
    writer_features: Collection[str] | None
    configuration: Mapping[str, str | None]
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, table: DeltaTable) -> TableTerms:
        protocol = table.protocol()
        return cls(
            writer_version=protocol.min_writer_version,
            writer_features=protocol.writer_features,
            configuration=table.metadata().configuration,
            schema=json.loads(table.schema().to_json()),
        )

    def unmet(self, *, overwrite: bool = False) -> list[str]:
        """Features in use that this writer does not support."""
        fine = _NEEDS_NOTHING if overwrite else _NEEDS_NOTHING | _NEEDS_NOTHING_TO_APPEND
        if self.writer_version > _NAMES_ITS_FEATURES:
            return [f"writer version {self.writer_version}"]
        if self.writer_version == _NAMES_ITS_FEATURES:
            asked: Collection[str] = self.writer_features or ()
        else:
            asked = [name for name, since in _SINCE_WRITER_VERSION.items() if since <= self.writer_version]
        return sorted(name for name in asked if name not in fine and self._in_use(name))

    def _in_use(self, feature: str) -> bool:
        if feature in _BY_FIELD:
            return any(_BY_FIELD[feature] in metadata for metadata in _metadata(self.schema))
        if feature == "checkConstraints":
            return any(name.startswith("delta.constraints.") for name in self.configuration)
        if feature == "columnMapping":
            return self.configuration.get("delta.columnMapping.mode") not in (None, "none")
        return True


def check_features(table: DeltaTable, *, overwrite: bool) -> None:
    """Raises ClientError for unsupported features. `overwrite`: files are removed, too."""
    unmet = TableTerms.of(table).unmet(overwrite=overwrite)
    if unmet:
        raise ClientError(
            f"the table {table.table_uri} needs unsupported writer features: {', '.join(unmet)}",
            next_step="write to another table, or drop the feature from this one",
        )


def check_append_only(table: DeltaTable) -> None:
    """Raises ClientError for an append-only table."""
    if str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true":
        raise ClientError(
            f"the table {table.table_uri} is append-only: delta.appendOnly is true",
            next_step="append, or unset the property",
        )


def _metadata(part: Any) -> Iterator[Mapping[str, Any]]:
    """Metadata of every field in a schema, including nested ones."""
    if isinstance(part, list):
        for each in part:
            yield from _metadata(each)
    elif isinstance(part, Mapping):
        for name, inner in part.items():
            if name == "metadata":
                yield inner
            else:
                yield from _metadata(inner)
