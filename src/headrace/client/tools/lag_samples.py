# SPDX-License-Identifier: Apache-2.0
"""When records were appended: samples of `__headrace_lag`, else the records' own timestamps.

Reads ordinary topics with an ordinary consumer, so it works against any Kafka; a cluster without that topic
has no samples. Evaluated by lag.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.settings import client_settings
from headrace.client.tools.admin import Admin
from headrace.client.tools.lag import Sample
from headrace.client.tools.reader import topic_reader
from headrace.types import LAG_TOPIC, LAG_VERSION, TopicPartition

_RECENT_MS = 120_000
_TIMESTAMPS_WAIT_S = 5.0


class SampleReader:
    """Keeps the newest samples of each partition; `update` reads what was written since."""

    def __init__(self, bootstrap: str | Cluster, admin: Admin) -> None:
        self._bootstrap = bootstrap
        self._admin = admin
        self._positions: dict[int, int] | None = None
        self._samples: dict[TopicPartition, tuple[Sample, ...]] = {}

    def update(self, wanted: set[TopicPartition]) -> dict[TopicPartition, tuple[Sample, ...]]:
        """Of the partitions that there are samples of. Most of the topic is old: all of it is read only when
        the partitions asked for have not changed lately."""
        found = self._admin.find_topic(LAG_TOPIC) if wanted else None
        if found is None:
            return {}
        partitions = [partition.index for partition in found.partitions]
        ends = self._admin.offsets(LAG_TOPIC, partitions, "latest")
        if self._positions is None:
            since = int(time.time() * 1000) - _RECENT_MS
            recent = self._admin.offsets(LAG_TOPIC, partitions, since)
            self._read(recent, ends)
            if wanted - self._samples.keys():
                newer = dict(self._samples)
                self._read(self._admin.offsets(LAG_TOPIC, partitions, "earliest"), recent)
                self._samples |= newer
        else:
            self._read(self._positions, ends)
        self._positions = ends
        return {partition: self._samples[partition] for partition in wanted & self._samples.keys()}

    def _read(self, starts: Mapping[int, int], stops: Mapping[int, int]) -> None:
        if all(start >= stops[partition] for partition, start in starts.items()):
            return
        reader = topic_reader(self._bootstrap, LAG_TOPIC, starts, stops)
        try:
            for record in reader:
                entry = read_samples(record.key, record.value)
                if entry is not None:
                    self._samples[entry[0]] = entry[1]
        finally:
            reader.close()


def read_samples(key: bytes | None, value: bytes | None) -> tuple[TopicPartition, tuple[Sample, ...]] | None:
    """One record of the topic; None for a tombstone and for what a newer program wrote."""
    try:
        where, document = json.loads(key or b""), json.loads(value or b"")
        if int(document.get("version", LAG_VERSION)) > LAG_VERSION:
            return None
        samples = tuple(Sample(int(offset), int(wall_ms)) for offset, wall_ms in document["samples"])
        return TopicPartition(str(where["topic"]), int(where["partition"])), samples
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def timestamps_at(
    bootstrap: str | Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The timestamp of the first record at or after each offset; what does not come in time is missing."""
    if not offsets:
        return {}
    import confluent_kafka

    consumer: Any = confluent_kafka.Consumer(
        client_settings(bootstrap)
        | {
            "group.id": "headrace-reader",  # demanded by the library; nothing is joined or committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1,  # at least one batch comes all the same, and one is enough
        }
    )
    found: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + _TIMESTAMPS_WAIT_S
    try:
        consumer.assign([confluent_kafka.TopicPartition(*where, offset) for where, offset in offsets.items()])
        while len(found) < len(offsets) and time.monotonic() < deadline:
            for message in consumer.consume(len(offsets), 0.1):
                kind, timestamp = message.timestamp()
                if message.error() is None and kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE:
                    found.setdefault(TopicPartition(message.topic(), message.partition()), int(timestamp))
    finally:
        consumer.close()
    return found
