# SPDX-License-Identifier: Apache-2.0
"""The most expensive well-formed request of each control API: as many items as its bound allows.

Knows the wire format only. What a node does with them: tests/integration/test_largest_requests.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.wire.api_key import ApiKey
from headrace.wire.request_bounds import max_items

TOPIC = 2
"""Resource type of configs."""


class LargeRequest(NamedTuple):
    name: str
    api_key: int
    version: int
    fields: Mapping[str, Any]


def largest_requests(topics: Sequence[str], wide: str, group: str) -> Iterator[LargeRequest]:
    """`topics` exist, `wide` has many partitions. Names beyond the existing ones do not exist."""
    yield from _of_topics(topics, wide)
    yield from _of_configs(topics)
    yield from _of_partitions(topics, wide)
    yield from _of_groups(topics, group)
    yield from _of_transactions(topics, wide)


def _bound(key: ApiKey) -> int:
    return max_items(key)


def _names(topics: Sequence[str], count: int) -> list[str]:
    return [*topics[:count], *(f"absent-{number}" for number in range(count - len(topics)))]


def _of_topics(topics: Sequence[str], wide: str) -> Iterator[LargeRequest]:
    names = _names(topics, _bound(ApiKey.METADATA))
    by_name = [{"name": name} for name in names]
    fields: dict[str, Any] = {"topics": by_name, "allow_auto_topic_creation": False}
    yield LargeRequest("Metadata", ApiKey.METADATA, 9, fields)
    yield LargeRequest("Metadata of all", ApiKey.METADATA, 9, {"topics": None})
    count = _bound(ApiKey.CREATE_TOPICS)
    counts = {"num_partitions": 1, "replication_factor": 1}
    fresh = [{"name": f"fresh-{number}", **counts} for number in range(count)]
    some = {"timeout": 1000, "validate_only": True}
    yield LargeRequest("CreateTopics, too many", ApiKey.CREATE_TOPICS, 7, {"topics": fresh, **some})
    checked = {"topics": fresh[:10_000], **some}
    yield LargeRequest("CreateTopics, validated", ApiKey.CREATE_TOPICS, 7, checked)
    made = {"topics": fresh[:2_000], "timeout": 1000}
    yield LargeRequest("CreateTopics, created", ApiKey.CREATE_TOPICS, 7, made)
    gone = [{"name": f"fresh-{number}"} for number in range(_bound(ApiKey.DELETE_TOPICS))]
    yield LargeRequest("DeleteTopics", ApiKey.DELETE_TOPICS, 6, {"topics": gone, "timeout": 1000})
    more = [{"name": name, "count": 1} for name in _names(topics, _bound(ApiKey.CREATE_PARTITIONS))]
    fields = {"topics": more, "timeout": 1000, "validate_only": True}
    yield LargeRequest("CreatePartitions", ApiKey.CREATE_PARTITIONS, 3, fields)
    wanted = [{"name": name} for name in _names(topics, _bound(ApiKey.DESCRIBE_TOPIC_PARTITIONS))]
    fields = {"topics": wanted, "response_partition_limit": 2000}
    yield LargeRequest("DescribeTopicPartitions", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)


def _of_configs(topics: Sequence[str]) -> Iterator[LargeRequest]:
    shown = {"include_synonyms": True, "include_documentation": True}
    count = _bound(ApiKey.DESCRIBE_CONFIGS)
    resources = [{"resource_type": TOPIC, "resource_name": name} for name in _names(topics, count)]
    fields: dict[str, Any] = {"resources": resources, **shown}
    yield LargeRequest("DescribeConfigs", ApiKey.DESCRIBE_CONFIGS, 4, fields)
    same = [{"resource_type": TOPIC, "resource_name": topics[0]}] * count
    fields = {"resources": same, **shown}
    yield LargeRequest("DescribeConfigs of one topic", ApiKey.DESCRIBE_CONFIGS, 4, fields)
    configs = [{"name": "retention.ms", "value": "5", "config_operation": 0}]
    count = _bound(ApiKey.INCREMENTAL_ALTER_CONFIGS) // 2
    altered = [
        {"resource_type": TOPIC, "resource_name": name, "configs": configs} for name in _names(topics, count)
    ]
    fields = {"resources": altered, "validate_only": True}
    yield LargeRequest("IncrementalAlterConfigs", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)


def _spread(
    topics: Sequence[str], wide: str, key: ApiKey, each: str, name: str = "name"
) -> list[dict[str, Any]]:
    """Half of the bound as partitions of one topic, half as topics of one partition."""
    half = _bound(key) // 2 - 1
    entry = {"partition_index": 0, "partition": 0, "timestamp": -1, "offset": 0, "leader_epoch": 0}
    if each == "partition_indexes":
        many: list[Any] = list(range(half))
        one: list[Any] = [0]
    else:
        many = [{**entry, "partition_index": index, "partition": index} for index in range(half)]
        one = [entry]
    return [{name: wide, each: many}, *({name: topic, each: one} for topic in _names(topics, half // 2))]


def _of_partitions(topics: Sequence[str], wide: str) -> Iterator[LargeRequest]:
    spread = _spread(topics, wide, ApiKey.LIST_OFFSETS, "partitions")
    spread = _only(spread, "partitions", ("partition_index", "timestamp"))
    yield LargeRequest("ListOffsets", ApiKey.LIST_OFFSETS, 6, {"replica_id": -1, "topics": spread})
    spread = _spread(topics, wide, ApiKey.DELETE_RECORDS, "partitions")
    spread = _only(spread, "partitions", ("partition_index", "offset"))
    yield LargeRequest("DeleteRecords", ApiKey.DELETE_RECORDS, 2, {"topics": spread, "timeout": 1000})
    spread = _spread(topics, wide, ApiKey.OFFSET_FOR_LEADER_EPOCH, "partitions", "topic")
    spread = _only(spread, "partitions", ("partition", "leader_epoch"))
    fields: dict[str, Any] = {"replica_id": -1, "topics": spread}
    yield LargeRequest("OffsetForLeaderEpoch", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, fields)
    spread = _spread(topics, wide, ApiKey.DESCRIBE_PRODUCERS, "partition_indexes")
    yield LargeRequest("DescribeProducers", ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": spread})
    spread = [
        {"topic": entry["name"], "partitions": entry["partition_indexes"]}
        for entry in _spread(topics, wide, ApiKey.DESCRIBE_LOG_DIRS, "partition_indexes")
    ]
    yield LargeRequest("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, 2, {"topics": spread})
    fields = {"election_type": 0, "topic_partitions": spread, "timeout": 1000}
    yield LargeRequest("ElectLeaders", ApiKey.ELECT_LEADERS, 2, fields)
    fields = {"election_type": 0, "topic_partitions": None, "timeout": 1000}
    yield LargeRequest("ElectLeaders of all", ApiKey.ELECT_LEADERS, 2, fields)
    spread = _spread(topics, wide, ApiKey.LIST_PARTITION_REASSIGNMENTS, "partition_indexes")
    fields = {"timeout": 1000, "topics": spread}
    yield LargeRequest("ListPartitionReassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, fields)
    spread = _spread(topics, wide, ApiKey.ALTER_PARTITION_REASSIGNMENTS, "partition_indexes")
    wide_moves = _moves(wide, spread[0]["partition_indexes"][::2])  # a move has an array of its own
    others = [_moves(entry["name"], entry["partition_indexes"]) for entry in spread[1 : len(spread) * 2 // 3]]
    moves = [wide_moves, *others]
    fields = {"timeout": 1000, "topics": moves}
    yield LargeRequest("AlterPartitionReassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields)


def _moves(name: str, indexes: Sequence[int]) -> dict[str, Any]:
    """To a node that does not exist."""
    return {"name": name, "partitions": [{"partition_index": index, "replicas": [7]} for index in indexes]}


def _only(topics: list[dict[str, Any]], each: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {**topic, each: [{name: entry[name] for name in names} for entry in topic[each]]} for topic in topics
    ]


def _of_groups(topics: Sequence[str], group: str) -> Iterator[LargeRequest]:
    keys = [f"group-{number}" for number in range(_bound(ApiKey.FIND_COORDINATOR))]
    fields: dict[str, Any] = {"key_type": 0, "coordinator_keys": keys}
    yield LargeRequest("FindCoordinator", ApiKey.FIND_COORDINATOR, 4, fields)
    yield LargeRequest("DescribeGroups", ApiKey.DESCRIBE_GROUPS, 5, {"groups": keys})
    yield LargeRequest("ConsumerGroupDescribe", ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": keys})
    yield LargeRequest("DeleteGroups", ApiKey.DELETE_GROUPS, 2, {"groups_names": keys})
    yield LargeRequest("ListGroups", ApiKey.LIST_GROUPS, 4, {"states_filter": ["Empty"] * 1000})
    place: dict[str, Any] = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    place["committed_metadata"] = ""
    named = _names(topics, _bound(ApiKey.OFFSET_COMMIT) // 2)
    commit = {"group_id": group, "topics": [{"name": name, "partitions": [place]} for name in named]}
    yield LargeRequest("OffsetCommit", ApiKey.OFFSET_COMMIT, 8, commit)
    half = _bound(ApiKey.OFFSET_FETCH) // 2
    asked = [{"name": name, "partition_indexes": [0]} for name in _names(topics, half - 1)]
    fields = {"groups": [{"group_id": group, "topics": asked}], "require_stable": False}
    yield LargeRequest("OffsetFetch", ApiKey.OFFSET_FETCH, 8, fields)
    every = [{"group_id": group, "topics": None}] * _bound(ApiKey.OFFSET_FETCH)
    fields = {"groups": every, "require_stable": False}
    yield LargeRequest("OffsetFetch of one group", ApiKey.OFFSET_FETCH, 8, fields)
    named = _names(topics, _bound(ApiKey.OFFSET_DELETE) // 2)
    gone = [{"name": name, "partitions": [{"partition_index": 0}]} for name in named]
    yield LargeRequest("OffsetDelete", ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": gone})
    leaving = [{"member_id": f"member-{number}"} for number in range(_bound(ApiKey.LEAVE_GROUP))]
    yield LargeRequest("LeaveGroup", ApiKey.LEAVE_GROUP, 4, {"group_id": group, "members": leaving})
    beat = {
        "group_id": "of-heartbeats",
        "member_id": "one",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": _names(topics, _bound(ApiKey.CONSUMER_GROUP_HEARTBEAT)),
        "topic_partitions": [],
    }
    yield LargeRequest("ConsumerGroupHeartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, beat)


def _of_transactions(topics: Sequence[str], wide: str) -> Iterator[LargeRequest]:
    """Of producers that nobody knows: partitions are looked up before the producer is."""
    producer = {"producer_id": 5, "producer_epoch": 0}
    spread = [
        {"name": entry["name"], "partitions": entry["partition_indexes"]}
        for entry in _spread(topics, wide, ApiKey.ADD_PARTITIONS_TO_TXN, "partition_indexes")
    ]
    of_client = {f"v3_and_below_{name}": value for name, value in producer.items()}
    fields: dict[str, Any] = {**of_client, "v3_and_below_transactional_id": "x"}
    largest = {**fields, "v3_and_below_topics": spread}
    yield LargeRequest("AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, 3, largest)
    known = [{"name": name, "partitions": [0]} for name in topics] + [
        {"name": wide, "partitions": list(range(1000))}
    ]
    existing = {**fields, "v3_and_below_topics": known}
    yield LargeRequest("AddPartitionsToTxn that exist", ApiKey.ADD_PARTITIONS_TO_TXN, 3, existing)
    one = [{"name": wide, "partitions": [0]}]
    transactions = [
        {**producer, "transactional_id": f"id-{number}", "topics": one}
        for number in range(_bound(ApiKey.ADD_PARTITIONS_TO_TXN) // 3)
    ]
    several = {"transactions": transactions}
    yield LargeRequest("AddPartitionsToTxn of nodes", ApiKey.ADD_PARTITIONS_TO_TXN, 5, several)
    offsets = [
        {"partition_index": index, "committed_offset": 0, "committed_metadata": "m"}
        for index in range(_bound(ApiKey.TXN_OFFSET_COMMIT) - 1)
    ]
    committed = {**producer, "transactional_id": "x", "group_id": "g"}
    committed["topics"] = [{"name": wide, "partitions": offsets}]
    yield LargeRequest("TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, 5, committed)
    absent = _spread([], "absent", ApiKey.WRITE_TXN_MARKERS, "partition_indexes")
    marker = {**producer, "transaction_result": False, "coordinator_epoch": 0, "topics": absent[:-1]}
    yield LargeRequest("WriteTxnMarkers", ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
    written = {**marker, "topics": [{"name": wide, "partition_indexes": list(range(1000))}]}
    yield LargeRequest("WriteTxnMarkers, written", ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [written]})
    names = [f"id-{number}" for number in range(_bound(ApiKey.DESCRIBE_TRANSACTIONS))]
    fields = {"transactional_ids": names}
    yield LargeRequest("DescribeTransactions", ApiKey.DESCRIBE_TRANSACTIONS, 0, fields)
    half = _bound(ApiKey.LIST_TRANSACTIONS) // 2
    filters = {"state_filters": names[:half], "producer_id_filters": list(range(half))}
    yield LargeRequest("ListTransactions", ApiKey.LIST_TRANSACTIONS, 2, filters)
