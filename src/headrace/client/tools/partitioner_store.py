# SPDX-License-Identifier: Apache-2.0
"""Loads and saves the key ranges of topics, on any Kafka.

Where they are stored and what they mean: ../partitioning/stored_ranges.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.partitioning.stored_ranges import (
    OUTSIDE_CONFIG,
    RANGES_CONFIG,
    STORE_TOPIC,
    NewerRangesError,
    StoredRanges,
    read_configs,
    read_record,
)
from headrace.client.tools.admin import Admin
from headrace.client.tools.producer import Delivery, OutgoingRecord, RecordProducer
from headrace.client.tools.reader import topic_reader
from headrace.key_ranges import KeyRange, Outside

_MAX_REPLICAS = 3
_UNKNOWN = re.compile(f"Unknown topic config name: ({re.escape(RANGES_CONFIG)}|{re.escape(OUTSIDE_CONFIG)})")
_DENIED = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")


class PartitionerStore:
    def __init__(self, bootstrap: str | Cluster, admin: Admin) -> None:
        self._bootstrap = bootstrap
        self._admin = admin

    def load(self, topic: str, topic_id: str) -> StoredRanges | None:
        """None when the topic has none; those of a deleted topic of the same name do not count."""
        stored = read_configs(topic, topic_id, self._configs(topic))
        if stored is not None:
            return stored
        value = self._newest(topic)
        stored = None if value is None else read_record(topic, value)
        return stored if stored is not None and stored.topic_id == topic_id else None

    def save(self, topic: str, topic_id: str, ranges: Sequence[KeyRange], outside: Outside) -> StoredRanges:
        stored = StoredRanges(topic_id=topic_id, ranges=tuple(ranges), outside=outside)
        if RANGES_CONFIG in self._configs(topic):
            self._admin.alter_configs("topic", topic, values=stored.to_configs())
        else:
            self._create_store()
            self._check_replaceable(topic)
            self._write(topic, stored.to_json())
        return stored

    def create_topic(self, topic: str, ranges: Sequence[KeyRange], outside: Outside, **more: Any) -> None:
        """As Admin.create_topic, with the ranges among the configs if the cluster takes these.

        Otherwise without: `save` stores them once the topic has an id.
        """
        stored = StoredRanges(topic_id="", ranges=tuple(ranges), outside=outside)
        configs = more.pop("configs", {})
        try:
            self._admin.create_topic(topic, configs={**configs, **stored.to_configs()}, **more)
        except ClientError as error:
            if error.code != "INVALID_CONFIG" or not _UNKNOWN.search(error.what):
                raise
            self._admin.create_topic(topic, configs=configs, **more)

    def remove(self, topic: str) -> None:
        """Writes a tombstone, if anything is kept for the topic."""
        if self._newest(topic) is not None:
            self._write(topic, None)

    def _check_replaceable(self, topic: str) -> None:
        """Raises NewerRangesError; ranges that are not understood otherwise are set anew."""
        value = self._newest(topic)
        try:
            if value is not None:
                read_record(topic, value)
        except NewerRangesError:
            raise
        except ClientError:
            return

    def _configs(self, topic: str) -> dict[str, str | None]:
        """None at all where the cluster does not let us see them."""
        try:
            return {each.name: each.value for each in self._admin.configs("topic", topic)}
        except ClientError as error:
            if error.code not in _DENIED:
                raise
            return {}

    def _newest(self, topic: str) -> bytes | None:
        """Reads the whole store: it is compacted and holds one small record per range topic.

        Nothing where the cluster does not let us see it: who may not read the store has no ranges there.
        """
        try:
            return self._read_newest(topic)
        except ClientError as error:
            if error.code not in _DENIED:
                raise
            return None

    def _read_newest(self, topic: str) -> bytes | None:
        if not self._admin.topic_exists(STORE_TOPIC):
            return None
        starts = self._admin.offsets(STORE_TOPIC, [0], "earliest")
        stops = self._admin.offsets(STORE_TOPIC, [0], "latest")
        reader = topic_reader(self._bootstrap, STORE_TOPIC, starts, stops)
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
