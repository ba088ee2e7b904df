# SPDX-License-Identifier: Apache-2.0
"""The offsets of a query: the document that Spark stores in its checkpoint and compares as text.

Pure. Keys are sorted and numbers are integers, so that equal positions are equal text. The topic id and the
partition's leader epoch are stored with each offset: they distinguish a recreated topic or a truncated log
from one that merely grew. Read next: data_loss.py (compares them with the cluster), splits.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.errors import ClientError
from headrace.errors import newer_format
from headrace.types import TopicPartition

VERSION = 1
TABLE, TABLE_VERSION = "table", 2
"""The place in the files of a starting table, and the version of documents that have it: table_first.py."""
NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next offset to read, and the leader epoch when it was read."""

    offset: int
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPositions:
    topic_id: str | None
    """None when the broker does not support topic ids."""
    partitions: Mapping[int, Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """`query` is a random id, created with the query and stored in its checkpoint like Spark's own id."""

    query: str
    topics: Mapping[str, TopicPositions] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[TopicPartition, Position]]:
        for topic, held in sorted(self.topics.items()):
            for partition, position in sorted(held.partitions.items()):
                yield TopicPartition(topic, partition), position

    def to_document(self) -> dict[str, Any]:
        """The checkpoint document."""
        return {
            "query": self.query,
            "topics": {
                topic: {
                    "id": held.topic_id,
                    "partitions": {
                        str(partition): {"epoch": position.epoch, "offset": position.offset}
                        for partition, position in sorted(held.partitions.items())
                    },
                }
                for topic, held in sorted(self.topics.items())
            },
            "version": VERSION,
        }


def read_document(document: Mapping[str, Any]) -> Offsets:
    """Parse a checkpoint document; ClientError when it belongs to another source or is damaged."""
    refuse_newer(document)
    if TABLE in document:
        raise ClientError(
            "the checkpoint is in the middle of the files of the table with which the query started",
            next_step='name that table in the query: .option("startingTable", …)',
        )
    if document.get("version") != VERSION or "topics" not in document:
        raise ClientError(
            f"the checkpoint has no offsets of this source: {json.dumps(document)[:200]}",
            next_step="it belongs to another query; start with a new checkpointLocation",
        )
    try:
        return Offsets(
            query=str(document["query"]),
            topics={str(topic): _topic(entry) for topic, entry in document["topics"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClientError(
            f"the offsets in the checkpoint are damaged ({error!r}): {json.dumps(document)[:200]}",
            next_step="restore the file under offsets/, or start with a new checkpointLocation",
        ) from error


def refuse_newer(document: Mapping[str, Any]) -> None:
    """Raises ClientError for a document of a later release. Those of other sources are not looked at."""
    found = document.get("version")
    if "query" in document and type(found) is int and found > TABLE_VERSION:
        raise ClientError(newer_format("the offsets of this source in the checkpoint", found, TABLE_VERSION))


def _topic(entry: Mapping[str, Any]) -> TopicPositions:
    return TopicPositions(
        topic_id=None if entry["id"] is None else str(entry["id"]),
        partitions={
            int(partition): Position(offset=_whole(position["offset"]), epoch=_whole(position["epoch"]))
            for partition, position in entry["partitions"].items()
        },
    )


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise ValueError(f"{number!r} is not a whole number")
    return number
