"""Where range boundaries are kept: the compacted topic `_headrace_partitioners`, on any Kafka.

One record per topic, made on first use, so that every producer places a key alike. The newest record
wins. What the boundaries mean: ranges.py, partitioners.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.admin import Admin
from headrace.client.errors import ClientError
from headrace.client.partitioners import RangePartitioner
from headrace.client.producer import Delivery, OutgoingRecord, RecordProducer
from headrace.client.ranges import KeyRange, Outside, format_ranges, parse_ranges
from headrace.client.reader import RecordReader

STORE_TOPIC = "_headrace_partitioners"
FORMAT = 1
_MAX_REPLICAS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRanges:
    """The key ranges of one topic; `topic_id` tells a topic from a later one of the same name."""

    topic_id: str
    ranges: tuple[KeyRange, ...]
    outside: Outside = "error"

    def partitioner(self) -> RangePartitioner:
        return RangePartitioner(self.ranges, outside=self.outside)

    def to_json(self) -> bytes:
        document = {
            "format": FORMAT,
            "kind": "range",
            "topic_id": self.topic_id,
            "ranges": format_ranges(self.ranges),
            "outside": self.outside,
        }
        return json.dumps(document, sort_keys=True).encode()


def read_stored(topic: str, value: bytes) -> StoredRanges:
    """Raises ClientError for what another, perhaps newer, program wrote there."""
    try:
        document: Any = json.loads(value)
        if document["format"] != FORMAT or document["kind"] != "range":
            raise ClientError(f"format {document['format']!r}, kind {document['kind']!r}")
        if document["outside"] not in ("error", "nearest"):
            raise ClientError(f"outside {document['outside']!r}")
        return StoredRanges(
            topic_id=str(document["topic_id"]),
            ranges=parse_ranges(str(document["ranges"])),
            outside=document["outside"],
        )
    except (ValueError, KeyError, TypeError, ClientError) as error:
        raise ClientError(
            f"the key ranges kept for topic {topic!r} in {STORE_TOPIC} are not understood ({error})",
            next_step=f"set them anew: headrace topics alter {topic} --ranges LOW..HIGH,…",
        ) from error


class PartitionerStore:
    def __init__(self, bootstrap: str, admin: Admin) -> None:
        self._bootstrap = bootstrap
        self._admin = admin

    def load(self, topic: str, topic_id: str) -> StoredRanges | None:
        """None when the topic has none; those of a deleted topic of the same name do not count."""
        value = self._newest(topic)
        if value is None:
            return None
        stored = read_stored(topic, value)
        return stored if stored.topic_id == topic_id else None

    def save(
        self, topic: str, topic_id: str, ranges: Sequence[KeyRange], outside: Outside
    ) -> StoredRanges:
        stored = StoredRanges(topic_id=topic_id, ranges=tuple(ranges), outside=outside)
        self._create_store()
        self._write(topic, stored.to_json())
        return stored

    def remove(self, topic: str) -> None:
        """Writes a tombstone, if anything is kept for the topic."""
        if self._newest(topic) is not None:
            self._write(topic, None)

    def _newest(self, topic: str) -> bytes | None:
        """Reads the whole store: it is compacted and holds one small record per range topic."""
        if not self._admin.topic_exists(STORE_TOPIC):
            return None
        starts = self._admin.offsets(STORE_TOPIC, [0], "earliest")
        stops = self._admin.offsets(STORE_TOPIC, [0], "latest")
        reader = RecordReader(self._bootstrap, STORE_TOPIC, starts, stops)
        newest = None
        try:
            for record in reader:
                if record.key == topic.encode():
                    newest = record.value
        finally:
            reader.close()
        return newest

    def _create_store(self) -> None:
        if self._admin.topic_exists(STORE_TOPIC):
            return
        nodes = len(self._admin.describe_cluster().nodes)
        try:
            self._admin.create_topic(
                STORE_TOPIC,
                partitions=1,
                replication_factor=min(_MAX_REPLICAS, nodes),
                configs={"cleanup.policy": "compact"},
            )
        except ClientError as error:
            if error.code != "TOPIC_ALREADY_EXISTS":  # another producer was quicker
                raise

    def _write(self, topic: str, value: bytes | None) -> None:
        reports: list[Delivery] = []
        producer = RecordProducer(
            self._bootstrap, STORE_TOPIC, partitions=1, linger_ms=0, on_delivery=reports.append
        )
        producer.send(OutgoingRecord(key=topic.encode(), value=value, partition=0))
        producer.close()
        if reports[0].error is not None:
            raise reports[0].error
