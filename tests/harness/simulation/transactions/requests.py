# SPDX-License-Identifier: Apache-2.0
"""Requests of transactional clients: versions of both protocols, fields, and the codes in the replies.

Protocol 1 (before KIP-890): the client adds partitions and groups before it writes, and keeps its epoch.
Protocol 2: leaders and group coordinators add them, and each end brings a new epoch. Read next: life.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientVersions:
    protocol: int
    init: int
    produce: int
    commit_offsets: int
    end: int
    add_partitions: int = 0
    add_offsets: int = 0


def draw_versions(random: Random) -> ClientVersions:
    """Clients of both protocols may share a transactional id, one after the other."""
    if random.random() < 0.5:
        return ClientVersions(protocol=2, init=random.choice((4, 5)), produce=12, commit_offsets=5, end=5)
    return ClientVersions(
        protocol=1,
        init=random.choice((3, 4, 5)),
        produce=random.choice((7, 9, 11)),
        commit_offsets=random.choice((2, 3, 4)),
        end=random.choice((1, 3, 4)),
        add_partitions=random.choice((1, 3)),
        add_offsets=random.choice((1, 3, 4)),
    )


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


def init_fields(producer: Producer, timeout_ms: int) -> Fields:
    return {**producer.fields(), "transaction_timeout": timeout_ms}


def add_partitions_fields(producer: Producer, partitions: Sequence[TopicPartition]) -> Fields:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    topics = [{"name": topic, "partitions": indexes} for topic, indexes in by_topic.items()]
    return {f"v3_and_below_{name}": value for name, value in {**producer.fields(), "topics": topics}.items()}


def add_offsets_fields(producer: Producer, group_id: str) -> Fields:
    return {**producer.fields(), "group_id": group_id}


def produce_fields(
    producer: Producer, where: TopicPartition, values: Sequence[bytes], sequence: int, wall_ms: int
) -> Fields:
    records = [Record(index, wall_ms, None, value) for index, value in enumerate(values)]
    batch = build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = [{"index": where.partition, "records": bytes(batch)}]
    return {
        "transactional_id": producer.transactional_id,
        "acks": -1,
        "timeout": 2_000,
        "topic_data": [{"name": where.topic, "partition_data": data}],
    }


def commit_offsets_fields(
    producer: Producer, group_id: str, source: TopicPartition, offset: int, metadata: str
) -> Fields:
    partition = {
        "partition_index": source.partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    return {
        **producer.fields(),
        "group_id": group_id,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": source.topic, "partitions": [partition]}],
    }


def end_fields(producer: Producer, *, committed: bool) -> Fields:
    return {**producer.fields(), "committed": committed}


def fetch_offset_fields(group_id: str, source: TopicPartition, *, require_stable: bool) -> Fields:
    topics = [{"name": source.topic, "partition_indexes": [source.partition]}]
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    return {"groups": [group], "require_stable": require_stable}


def fetch_fields(where: TopicPartition, position: int, max_bytes: int, *, committed: bool) -> Fields:
    partition = {"partition": where.partition, "fetch_offset": position, "partition_max_bytes": max_bytes}
    return {
        "replica_id": -1,
        "max_wait": 300,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": int(committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": where.topic, "partitions": [partition]}],
    }


FETCH_VERSION = 11
FETCH_OFFSET_VERSION = 9


def code_of(reply: Any) -> ErrorCode:
    return ErrorCode(reply.error_code)


def code_of_produce(reply: Any) -> ErrorCode:
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def code_of_added(reply: Any) -> ErrorCode:
    """The first that is no success."""
    codes = [
        ErrorCode(partition.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


def code_of_commit(reply: Any) -> ErrorCode:
    return ErrorCode(reply.topics[0].partitions[0].error_code)


def code_of_fetch(reply: Any) -> ErrorCode:
    return ErrorCode(reply.responses[0].partitions[0].error_code)


def code_of_fetched_offset(reply: Any) -> ErrorCode:
    (group,) = reply.groups
    code = ErrorCode(group.error_code)
    return code if code is not ErrorCode.none else ErrorCode(group.topics[0].partitions[0].error_code)
