# SPDX-License-Identifier: Apache-2.0
"""The report of `headrace topics describe`: collected here, printed by commands.py.

Offsets and settings come through client/tools/admin.py, sizes and producers through client/tools/brokers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.cli.output import Cell, iso_time
from headrace.cli.topics.min_insync import min_insync_warning
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.partitioning.stored_ranges import StoredRanges
from headrace.client.tools.admin import Admin, ConfigValue, PartitionDescription, TopicDescription
from headrace.client.tools.brokers import ActiveProducer, describe_log_dirs, describe_producers
from headrace.client.tools.partitioner_store import PartitionerStore
from headrace.key_ranges import format_ranges

Table = tuple[Sequence[str], Sequence[tuple[Cell, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    topic: TopicDescription
    configs: tuple[ConfigValue, ...]
    """Those set for the topic."""
    warning: str | None
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    sizes: Mapping[int, int] | None
    """Log size of the leader in bytes; None when the cluster does not report it."""
    ranges: StoredRanges | None
    producers: tuple[ActiveProducer, ...] | None

    @classmethod
    def read(cls, bootstrap: str | Cluster, name: str, *, producers: bool) -> TopicReport:
        admin = Admin(bootstrap)
        topic = admin.describe_topic(name)
        configs = admin.configs("topic", name)
        led = [partition.index for partition in topic.partitions if partition.leader is not None]
        return cls(
            topic=topic,
            configs=tuple(value for value in configs if value.source == "topic"),
            warning=min_insync_warning(topic, configs),
            starts=admin.offsets(name, led, "earliest"),
            ends=admin.offsets(name, led, "latest"),
            sizes=_leader_sizes(bootstrap, topic),
            ranges=PartitionerStore(bootstrap, admin).load(name, topic.topic_id),
            producers=tuple(describe_producers(bootstrap, name)) if producers else None,
        )

    def fields(self) -> dict[str, Cell]:
        shown: dict[str, Cell] = {
            "topic": self.topic.name,
            "id": self.topic.topic_id,
            "partitions": len(self.topic.partitions),
            "replication factor": self.topic.replication_factor,
            "records": self._total(self.ends) - self._total(self.starts),
        }
        for value in self.configs:
            shown[f"config {value.name}"] = _hidden(value)
        if self.warning is not None:
            shown["warning"] = self.warning
        if self.ranges is not None:
            shown["key ranges"] = format_ranges(self.ranges.ranges)
            shown["keys outside"] = self.ranges.outside
        return shown

    def partition_table(self) -> Table:
        columns = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "SIZE")
        return columns, [
            (
                str(partition.index),
                None if partition.leader is None else str(partition.leader),
                _ids(partition.replicas),
                _ids(partition.isr),
                self.starts.get(partition.index),
                self.ends.get(partition.index),
                self._size(partition),
            )
            for partition in self.topic.partitions
        ]

    def producer_table(self) -> Table:
        columns = ("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST RECORD", "OPEN TRANSACTION")
        return columns, [
            (
                str(producer.partition),
                str(producer.producer_id),
                str(producer.producer_epoch),
                producer.last_sequence,
                iso_time(producer.last_timestamp_ms),
                producer.transaction_start_offset,
            )
            for producer in self.producers or ()
        ]

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "topic": self.topic.name,
            "topic_id": self.topic.topic_id,
            "internal": self.topic.internal,
            "replication_factor": self.topic.replication_factor,
            "configs": {value.name: _hidden(value) for value in self.configs},
            "warning": self.warning,
            "ranges": None if self.ranges is None else format_ranges(self.ranges.ranges),
            "outside": None if self.ranges is None else self.ranges.outside,
            "partitions": [
                {
                    "partition": partition.index,
                    "leader": partition.leader,
                    "replicas": partition.replicas,
                    "isr": partition.isr,
                    "start_offset": self.starts.get(partition.index),
                    "end_offset": self.ends.get(partition.index),
                    "size_bytes": self._size(partition),
                }
                for partition in self.topic.partitions
            ],
        }
        if self.producers is not None:
            document["producers"] = [
                {
                    "partition": producer.partition,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "last_sequence": producer.last_sequence,
                    "last_timestamp": iso_time(producer.last_timestamp_ms),
                    "transaction_start_offset": producer.transaction_start_offset,
                }
                for producer in self.producers
            ]
        return document

    def _size(self, partition: PartitionDescription) -> int | None:
        return None if self.sizes is None else self.sizes.get(partition.index)

    @staticmethod
    def _total(offsets: Mapping[int, int]) -> int:
        return sum(offsets.values())


def _leader_sizes(bootstrap: str | Cluster, topic: TopicDescription) -> dict[int, int] | None:
    leaders = {partition.index: partition.leader for partition in topic.partitions}
    try:
        replicas = describe_log_dirs(bootstrap, topic.name)
    except ClientError:
        return None  # sizes are optional: the cluster may deny the request
    return {
        replica.partition: replica.size_bytes
        for replica in replicas
        if replica.node_id == leaders.get(replica.partition)
    }


def _hidden(value: ConfigValue) -> str | None:
    return "(secret)" if value.sensitive else value.value


def _ids(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"
