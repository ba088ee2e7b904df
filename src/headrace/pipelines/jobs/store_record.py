# SPDX-License-Identifier: Apache-2.0
"""What `store` records in its table about how it makes rows, so that a topic's tail becomes the same rows.

In every commit, as the sink's `userMetadata`. No addresses and no logins. Independent of Spark. Read next:
store.py, tables/topic_table.py.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from headrace.client.errors import ClientError
from headrace.errors import newer_format
from headrace.pipelines.definitions.definition import Source, Store

_NAME = "headrace.store"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord:
    topics: tuple[str, ...]
    pattern: str | None
    value: str
    key: str
    schema: str | None
    time: str
    zone: str
    """Spark's time zone, in which the date of a record is taken."""
    isolation: str
    registry: bool
    rejects: bool
    """The pipeline writes records that cannot be decoded elsewhere."""

    @classmethod
    def of(cls, store: Store, *, zone: str) -> StoreRecord:
        source = store.source
        return cls(
            topics=source.topics,
            pattern=source.pattern,
            value=source.value,
            key=source.key,
            schema=source.schema,
            time=store.time,
            zone=zone,
            isolation=_isolation(source),
            registry=source.registry is not None,
            rejects=source.rejects is not None or "rejectsTable" in source.options,
        )

    def to_text(self) -> str:
        return json.dumps({_NAME: {"version": _VERSION, **asdict(self)}}, separators=(",", ":"))


def read_record(text: str | None) -> StoreRecord | None:
    """None: the commit has none. Raises ClientError for one of a later release."""
    try:
        found: Any = json.loads(text or "{}")[_NAME]
        version = int(found.pop("version"))
        if version > _VERSION:
            raise ClientError(newer_format(f"the table's record {_NAME}", version, _VERSION))
        return StoreRecord(**{**found, "topics": tuple(found["topics"])})
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _isolation(source: Source) -> str:
    given = {name.lower(): value for name, value in source.options.items()}
    return given.get("isolation") or given.get("kafka.isolation.level") or "read_committed"
