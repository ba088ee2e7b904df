# SPDX-License-Identifier: Apache-2.0
"""How far a stream is in the files of its starting table, as a part of its offsets in the checkpoint.

Pure. Read next: table_first.py, offsets.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.client.errors import ClientError
from pyspark_headrace.reading.offsets import TABLE, TABLE_VERSION, VERSION, read_document, refuse_newer

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """A place in the files of one version of a table, ordered by their paths."""

    id: str
    version: int
    next: int
    """The number of files that were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """Paths of files that one task reads, with the values of their partition columns."""

    files: tuple[tuple[str, Mapping[str, Any]], ...]


def read_position(document: Mapping[str, Any]) -> TablePosition | None:
    """None: all files were read."""
    if TABLE not in document:
        return None
    refuse_newer(document)
    try:
        found = document[TABLE]
        position = TablePosition(id=str(found["id"]), version=int(found["version"]), next=int(found["next"]))
        known = document["version"] == TABLE_VERSION
    except (KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise ClientError(
            f"the checkpoint has no offsets of this source: {json.dumps(document)[:200]}",
            next_step="it is damaged; start with a new checkpointLocation",
        )
    read_document(topic_document(document))
    return position


def with_position(document: Mapping[str, Any], position: TablePosition) -> Document:
    return {**topic_document(document), TABLE: asdict(position), "version": TABLE_VERSION}


def topic_document(document: Mapping[str, Any]) -> Document:
    """The topic's offsets without the place in the table."""
    plain = {name: value for name, value in document.items() if name != TABLE}
    return read_document({**plain, "version": VERSION}).to_document()
