# SPDX-License-Identifier: Apache-2.0
"""Topics, configs and offsets of any Kafka cluster: confluent-kafka behind one small typed class.

The only other users of confluent-kafka are the sibling modules of this package; it is imported on
first use, since it takes longer to load than most commands take to run. Errors: kafka_errors.py.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.client.cluster import Cluster, as_cluster
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error
from headrace.client.reachable import check_reachable
from headrace.client.settings import client_settings

DEFAULT_TIMEOUT_MS = 15_000
BROKER_DEFAULT = -1

ResourceKind = Literal["topic", "node"]
OffsetSpec = Literal["earliest", "latest"] | int
"""An int is a timestamp in milliseconds: the first record at or after it."""

_SOURCES = {
    1: "topic",
    2: "node",
    3: "cluster",
    4: "file",
    5: "default",
}
"""Where a setting's value comes from, by Kafka's number for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A topic in a list."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition's leader (None while it has none), replicas and in-sync replicas, as node ids."""

    index: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions, by index."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """A setting; `source` says where its value comes from: topic, node, cluster, file or default."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller: int | None
    nodes: tuple[NodeAddress, ...]


class Admin:
    """Every method raises ClientError, and nothing else, when the cluster fails or refuses it."""

    def __init__(self, bootstrap: str | Cluster, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        check_reachable(bootstrap)
        import confluent_kafka.admin

        self._kafka: Any = confluent_kafka
        self._timeout_s = (as_cluster(bootstrap).request_timeout_ms or timeout_ms) / 1000
        self._client: Any = confluent_kafka.admin.AdminClient(client_settings(bootstrap))

    # cluster and topics

    def describe_cluster(self) -> ClusterDescription:
        metadata = self._metadata()
        return ClusterDescription(
            cluster_id=metadata.cluster_id or "",
            controller=None if metadata.controller_id < 0 else metadata.controller_id,
            nodes=tuple(
                NodeAddress(node_id=node.id, host=node.host, port=node.port)
                for node in sorted(metadata.brokers.values(), key=lambda node: int(node.id))
            ),
        )

    def list_topics(self, *, internal: bool = False) -> list[TopicSummary]:
        """Sorted by name. Internal topics begin with an underscore."""
        summaries = [
            TopicSummary(
                name=topic.topic,
                partitions=len(topic.partitions),
                replication_factor=max((len(p.replicas) for p in topic.partitions.values()), default=0),
                internal=_is_internal(topic.topic),
            )
            for topic in self._metadata().topics.values()
        ]
        return sorted((s for s in summaries if internal or not s.internal), key=lambda s: s.name)

    def topic_exists(self, name: str) -> bool:
        return self.find_topic(name) is not None

    def find_topic(self, name: str) -> TopicDescription | None:
        """None when there is no such topic. Never creates one, unlike librdkafka's own metadata call."""
        try:
            return self.describe_topic(name)
        except ClientError as error:
            if error.code == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise

    def describe_topic(self, name: str) -> TopicDescription:
        collection = self._kafka.TopicCollection([name])
        found = self._one(
            lambda: self._client.describe_topics(collection, request_timeout=self._timeout_s), name
        )
        partitions = sorted(found.partitions, key=lambda partition: int(partition.id))
        return TopicDescription(
            name=found.name,
            topic_id=str(found.topic_id).replace("+", "-").replace("/", "_"),
            internal=bool(found.is_internal) or _is_internal(name),
            partitions=tuple(
                PartitionDescription(
                    index=partition.id,
                    leader=partition.leader.id if partition.leader else None,
                    replicas=tuple(node.id for node in partition.replicas),
                    isr=tuple(node.id for node in partition.isr),
                )
                for partition in partitions
            ),
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Without counts the broker's defaults apply (num.partitions, default.replication.factor)."""
        topic = self._kafka.admin.NewTopic(
            name,
            num_partitions=BROKER_DEFAULT if partitions is None else partitions,
            replication_factor=BROKER_DEFAULT if replication_factor is None else replication_factor,
            config=dict(configs or {}),
        )
        self._one(
            lambda: self._client.create_topics(
                [topic],
                operation_timeout=self._timeout_s,
                request_timeout=self._timeout_s,
                validate_only=validate_only,
            ),
            name,
        )

    def provoke_creation(self, name: str, *, timeout_ms: int = 5_000) -> TopicDescription:
        """Mentions a topic that does not exist, which makes a broker create it if it is set up to."""
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            try:
                self._client.list_topics(name, timeout=self._timeout_s)
            except self._kafka.KafkaException as error:
                raise client_error(error, name=name) from error
            found = self.find_topic(name)
            if found is not None and all(partition.leader is not None for partition in found.partitions):
                return found
            time.sleep(0.05)
        raise ClientError(
            f"topic {name!r} does not exist, and the broker does not create topics by itself",
            next_step=f"create it: headrace topics create {name}",
            code="UNKNOWN_TOPIC_OR_PART",
        )

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """`total`: the new number of partitions, which cannot be lower than before."""
        wanted = self._kafka.admin.NewPartitions(name, total)
        self._one(
            lambda: self._client.create_partitions(
                [wanted],
                operation_timeout=self._timeout_s,
                request_timeout=self._timeout_s,
                validate_only=validate_only,
            ),
            name,
        )

    def delete_topic(self, name: str) -> None:
        self._one(
            lambda: self._client.delete_topics(
                [name], operation_timeout=self._timeout_s, request_timeout=self._timeout_s
            ),
            name,
        )

    # configs

    def configs(self, kind: ResourceKind, name: str) -> list[ConfigValue]:
        """Every setting of a topic or of a node, sorted by name."""
        resource = self._resource(kind, name)
        found = self._one(
            lambda: self._client.describe_configs([resource], request_timeout=self._timeout_s), name, kind
        )
        values = [
            ConfigValue(
                name=entry.name,
                value=entry.value,
                source=_SOURCES.get(int(getattr(entry.source, "value", entry.source)), "unknown"),
                read_only=entry.is_read_only,
                sensitive=entry.is_sensitive,
            )
            for entry in found.values()
        ]
        return sorted(values, key=lambda value: value.name)

    def alter_configs(
        self,
        kind: ResourceKind,
        name: str,
        *,
        values: Mapping[str, str],
        unset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Sets some and returns others to their default; the rest stays as it is."""
        kinds = self._kafka.admin.AlterConfigOpType
        entry = self._kafka.admin.ConfigEntry
        changes = [
            entry(key, value, incremental_operation=kinds.SET) for key, value in sorted(values.items())
        ]
        changes += [entry(key, None, incremental_operation=kinds.DELETE) for key in unset]
        resource = self._resource(kind, name, changes)
        self._one(
            lambda: self._client.incremental_alter_configs(
                [resource], request_timeout=self._timeout_s, validate_only=validate_only
            ),
            name,
            kind,
        )

    # offsets

    def offsets(self, topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """By partition. For a timestamp after the last record the end of the log is answered."""
        asked = {self._kafka.TopicPartition(topic, partition): self._spec(spec) for partition in partitions}
        if not asked:
            return {}
        answers = self._all(lambda: self._client.list_offsets(asked, request_timeout=self._timeout_s), topic)
        found = {partition.partition: int(answer.offset) for partition, answer in answers.items()}
        missing = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.offsets(topic, missing, "latest") if missing else {})

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Deletes records before the given offsets; returns the new log start offsets."""
        asked = [self._kafka.TopicPartition(topic, index, offset) for index, offset in before.items()]
        answers = self._all(
            lambda: self._client.delete_records(asked, request_timeout=self._timeout_s), topic
        )
        return {partition.partition: int(answer.low_watermark) for partition, answer in answers.items()}

    # private

    def _metadata(self) -> Any:
        try:
            return self._client.list_topics(timeout=self._timeout_s)
        except self._kafka.KafkaException as error:
            raise client_error(error, name="", kind="cluster") from error

    def _resource(self, kind: ResourceKind, name: str, changes: list[Any] | None = None) -> Any:
        if kind == "node":
            self._check_node(name)
        return self._kafka.admin.ConfigResource(
            "topic" if kind == "topic" else "broker", name, incremental_configs=changes
        )

    def _check_node(self, name: str) -> None:
        """librdkafka would wait for an unknown node until the time-out."""
        known = [str(node) for node in sorted(self._metadata().brokers)]
        if name not in known:
            raise ClientError(f"node {name} is not in the cluster; its nodes are {', '.join(known)}")

    def _spec(self, spec: OffsetSpec) -> Any:
        kinds = self._kafka.admin.OffsetSpec
        if spec == "earliest":
            return kinds.earliest()
        return kinds.latest() if spec == "latest" else kinds.for_timestamp(spec)

    def _one(self, call: Callable[[], Mapping[Any, Any]], name: str, kind: str = "topic") -> Any:
        return next(iter(self._all(call, name, kind).values()))

    def _all(self, call: Callable[[], Mapping[Any, Any]], name: str, kind: str = "topic") -> dict[Any, Any]:
        """Waits for every future; raises the first failure as ClientError."""
        try:
            futures = call()
            return {key: future.result(self._timeout_s + 1) for key, future in futures.items()}
        except self._kafka.KafkaException as error:
            raise client_error(error, name=name, kind=kind) from error
        except (ValueError, TypeError) as error:  # librdkafka's check of the arguments
            raise ClientError(f"{kind} {name!r}: {error}") from error
        except concurrent.futures.TimeoutError as error:
            raise ClientError("the broker did not answer in time", code="_TIMED_OUT") from error


def _is_internal(name: str) -> bool:
    return name.startswith(("__", "_headrace"))
