# SPDX-License-Identifier: Apache-2.0
"""A request of every API that clients use, with the ACLs that it needs; for comparisons with Apache Kafka.

Requests change nothing that another one looks at, so they may be sent in any order and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.wire.api_key import ApiKey
from tests.harness.live.raw_client import simple_batch

TOPIC, GROUP, GHOST = "t", "g", "ghost"
Need = tuple[ResourceType, str, Operation]


@dataclass(frozen=True, slots=True)
class Case:
    key: ApiKey
    version: int
    needs: tuple[Need, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    def acls(self, principal: str) -> list[AclBinding]:
        return [
            AclBinding(kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)
            for kind, name, operation in self.needs
        ]


def _topic(operation: Operation, name: str = TOPIC) -> Need:
    return ResourceType.TOPIC, name, operation


def _group(operation: Operation, name: str = GROUP) -> Need:
    return ResourceType.GROUP, name, operation


def _cluster(operation: Operation) -> Need:
    return ResourceType.CLUSTER, CLUSTER_NAME, operation


def _transactional_id(operation: Operation) -> Need:
    return ResourceType.TRANSACTIONAL_ID, "x", operation


_OF_X = {"transactional_id": "x", "producer_id": 5, "producer_epoch": 0}
_COMMITTED = {
    "name": TOPIC,
    "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}],
}
_MARKER = {
    "producer_id": 5, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
    "topics": [{"name": GHOST, "partition_indexes": [0]}],
}  # fmt: skip
_READ_BOTH = (_topic(Operation.READ), _group(Operation.READ))
_PARTITION = {"name": TOPIC, "partition_indexes": [0]}
_MEMBER = {"group_id": GROUP, "member_id": "m", "group_instance_id": None}
_NEW_TOPIC = {
    "name": GHOST, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [],
}  # fmt: skip
_CONFIGS = {"resource_type": 2, "resource_name": TOPIC}
_ACL_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": "User:nobody", "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_ACL = {
    "resource_type": 2, "resource_name": "other", "resource_pattern_type": 3, "principal": "User:other",
    "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
_QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "other"}],
    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
}

CASES: dict[str, Case] = {
    "Produce": Case(
        ApiKey.PRODUCE,
        9,
        (_topic(Operation.WRITE),),
        {
            "transactional_id": None,
            "acks": -1,
            "timeout": 5000,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": 0, "records": simple_batch(b"value")}]}
            ],
        },
    ),
    "Fetch": Case(
        ApiKey.FETCH,
        12,
        (_topic(Operation.READ),),
        {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 0,
            "max_bytes": 1000,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
                }
            ],
            "forgotten_topics_data": [],
        },
    ),
    "ListOffsets": Case(
        ApiKey.LIST_OFFSETS,
        7,
        (_topic(Operation.DESCRIBE),),
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
                }
            ],
        },
    ),
    "Metadata": Case(
        ApiKey.METADATA,
        12,
        (_topic(Operation.DESCRIBE),),
        {
            "topics": [{"topic_id": None, "name": name} for name in (TOPIC, GHOST)],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
    ),
    "OffsetCommit": Case(
        ApiKey.OFFSET_COMMIT,
        8,
        _READ_BOTH,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 0,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        },
    ),
    "OffsetFetch": Case(
        ApiKey.OFFSET_FETCH,
        8,
        (_topic(Operation.DESCRIBE), _group(Operation.DESCRIBE)),
        {"groups": [{"group_id": GROUP, "topics": [_PARTITION]}], "require_stable": False},
    ),
    "FindCoordinator": Case(
        ApiKey.FIND_COORDINATOR,
        4,
        (_group(Operation.DESCRIBE),),
        {"key_type": 0, "coordinator_keys": [GROUP]},
    ),
    "FindCoordinator of transactions": Case(
        ApiKey.FIND_COORDINATOR,
        4,
        (_transactional_id(Operation.DESCRIBE),),
        {"key_type": 1, "coordinator_keys": ["x"]},
    ),
    "JoinGroup": Case(
        ApiKey.JOIN_GROUP,
        9,
        (_group(Operation.READ, "joined"),),
        {
            "group_id": "joined",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "Heartbeat": Case(ApiKey.HEARTBEAT, 4, (_group(Operation.READ),), {**_MEMBER, "generation_id": 1}),
    "LeaveGroup": Case(
        ApiKey.LEAVE_GROUP,
        5,
        (_group(Operation.READ),),
        {"group_id": GROUP, "members": [{"member_id": "m", "group_instance_id": None}]},
    ),
    "SyncGroup": Case(
        ApiKey.SYNC_GROUP,
        5,
        (_group(Operation.READ),),
        {
            **_MEMBER,
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
    ),
    "DescribeGroups": Case(
        ApiKey.DESCRIBE_GROUPS,
        6,
        (_group(Operation.DESCRIBE),),
        {"groups": [GROUP], "include_authorized_operations": True},
    ),
    "ListGroups": Case(ApiKey.LIST_GROUPS, 4, (_group(Operation.DESCRIBE),), {"states_filter": ["Stable"]}),
    "SaslHandshake": Case(ApiKey.SASL_HANDSHAKE, 1, (), {"mechanism": "SCRAM-SHA-512"}),
    "ApiVersions": Case(
        ApiKey.API_VERSIONS, 3, (), {"client_software_name": "c", "client_software_version": "1"}
    ),
    "CreateTopics": Case(
        ApiKey.CREATE_TOPICS,
        7,
        (_topic(Operation.CREATE, GHOST),),
        {"topics": [_NEW_TOPIC], "timeout": 5000, "validate_only": True},
    ),
    "DeleteTopics": Case(
        ApiKey.DELETE_TOPICS,
        6,
        (_topic(Operation.DELETE, GHOST),),
        {"topics": [{"name": GHOST, "topic_id": None}], "timeout": 5000},
    ),
    "DeleteRecords": Case(
        ApiKey.DELETE_RECORDS,
        2,
        (_topic(Operation.DELETE),),
        {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 5000,
        },
    ),
    "InitProducerId": Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        (_cluster(Operation.IDEMPOTENT_WRITE),),
        {"transactional_id": None, "transaction_timeout": 5000, "producer_id": -1, "producer_epoch": -1},
    ),
    "InitProducerId of transactions": Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        (_transactional_id(Operation.WRITE),),
        {"transactional_id": "x", "transaction_timeout": -5, "producer_id": -1, "producer_epoch": -1},
    ),
    "AddPartitionsToTxn": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        (_transactional_id(Operation.WRITE), _topic(Operation.WRITE)),
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 5,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
    ),
    "AddPartitionsToTxn, one topic denied": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        (_transactional_id(Operation.WRITE), _topic(Operation.WRITE)),
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 5,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [
                {"name": TOPIC, "partitions": [0]},
                {"name": "hidden", "partitions": [0]},
                {"name": "__consumer_offsets", "partitions": [0]},
            ],
        },
    ),
    "AddPartitionsToTxn of nodes": Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        5,
        (_cluster(Operation.CLUSTER_ACTION),),
        {"transactions": [{**_OF_X, "verify_only": True, "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    ),
    "AddOffsetsToTxn": Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        (_transactional_id(Operation.WRITE), _group(Operation.READ)),
        {**_OF_X, "group_id": GROUP},
    ),
    "AddOffsetsToTxn without its group": Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        (_transactional_id(Operation.WRITE),),
        {**_OF_X, "group_id": "hidden"},
    ),
    "EndTxn": Case(ApiKey.END_TXN, 5, (_transactional_id(Operation.WRITE),), {**_OF_X, "committed": True}),
    "TxnOffsetCommit": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        (_transactional_id(Operation.WRITE), *_READ_BOTH),
        {**_OF_X, "group_id": GROUP, "topics": [_COMMITTED]},
    ),
    "TxnOffsetCommit, one topic denied": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        (_transactional_id(Operation.WRITE), *_READ_BOTH),
        {**_OF_X, "group_id": GROUP, "topics": [_COMMITTED, {**_COMMITTED, "name": "hidden"}]},
    ),
    "TxnOffsetCommit without its group": Case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        (_transactional_id(Operation.WRITE), _topic(Operation.READ)),
        {**_OF_X, "group_id": "hidden", "topics": [_COMMITTED]},
    ),
    "WriteTxnMarkers": Case(
        ApiKey.WRITE_TXN_MARKERS, 1, (_cluster(Operation.CLUSTER_ACTION),), {"markers": [_MARKER]}
    ),
    "WriteTxnMarkers of a tool": Case(
        ApiKey.WRITE_TXN_MARKERS, 1, (_cluster(Operation.ALTER),), {"markers": [_MARKER]}
    ),
    "DescribeTransactions": Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        (_transactional_id(Operation.DESCRIBE),),
        {"transactional_ids": ["x", "hidden"]},
    ),
    "ListTransactions": Case(
        ApiKey.LIST_TRANSACTIONS,
        2,
        (_transactional_id(Operation.DESCRIBE),),
        {"state_filters": ["Nonsense"], "producer_id_filters": []},
    ),
    "OffsetForLeaderEpoch": Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        (_topic(Operation.DESCRIBE),),
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        },
    ),
    "DescribeAcls": Case(ApiKey.DESCRIBE_ACLS, 3, (_cluster(Operation.DESCRIBE),), _ACL_FILTER),
    "CreateAcls": Case(ApiKey.CREATE_ACLS, 3, (_cluster(Operation.ALTER),), {"creations": [_ACL]}),
    "DeleteAcls": Case(ApiKey.DELETE_ACLS, 3, (_cluster(Operation.ALTER),), {"filters": [_ACL_FILTER]}),
    "DescribeConfigs": Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        (_topic(Operation.DESCRIBE_CONFIGS),),
        {
            "resources": [{**_CONFIGS, "configuration_keys": ["retention.ms"]}],
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    "AlterConfigs": Case(
        ApiKey.ALTER_CONFIGS,
        2,
        (_topic(Operation.ALTER_CONFIGS),),
        {"resources": [{**_CONFIGS, "configs": []}], "validate_only": True},
    ),
    "DescribeLogDirs": Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        (_cluster(Operation.DESCRIBE),),
        {"topics": [{"topic": TOPIC, "partitions": [0]}]},
    ),
    "SaslAuthenticate": Case(ApiKey.SASL_AUTHENTICATE, 2, (), {"auth_bytes": b"n,,n=u,r=nonce"}),
    "CreatePartitions": Case(
        ApiKey.CREATE_PARTITIONS,
        3,
        (_topic(Operation.ALTER),),
        {
            "topics": [{"name": TOPIC, "count": 2, "assignments": None}],
            "timeout": 5000,
            "validate_only": True,
        },
    ),
    "DeleteGroups": Case(
        ApiKey.DELETE_GROUPS, 2, (_group(Operation.DELETE, GHOST),), {"groups_names": [GHOST]}
    ),
    "ElectLeaders": Case(
        ApiKey.ELECT_LEADERS,
        2,
        (_cluster(Operation.ALTER),),
        {
            "election_type": 0,
            "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            "timeout": 5000,
        },
    ),
    "IncrementalAlterConfigs": Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        (_topic(Operation.ALTER_CONFIGS),),
        {"resources": [{**_CONFIGS, "configs": []}], "validate_only": True},
    ),
    "AlterPartitionReassignments": Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        (_cluster(Operation.ALTER),),
        {
            "timeout": 5000,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
    ),
    "ListPartitionReassignments": Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        (_cluster(Operation.DESCRIBE),),
        {"timeout": 5000, "topics": None},
    ),
    "OffsetDelete": Case(
        ApiKey.OFFSET_DELETE,
        0,
        (_topic(Operation.READ), _group(Operation.DELETE, GHOST)),
        {"group_id": GHOST, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    ),
    "DescribeClientQuotas": Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        (_cluster(Operation.DESCRIBE_CONFIGS),),
        {"components": [], "strict": False},
    ),
    "AlterClientQuotas": Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        (_cluster(Operation.ALTER_CONFIGS),),
        {"entries": [_QUOTA], "validate_only": True},
    ),
    "DescribeUserScramCredentials": Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        (_cluster(Operation.DESCRIBE),),
        {"users": [{"name": "nobody"}]},
    ),
    "AlterUserScramCredentials": Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        (_cluster(Operation.ALTER),),
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    ),
    "DescribeCluster": Case(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        (_cluster(Operation.DESCRIBE),),
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ),
    "DescribeProducers": Case(
        ApiKey.DESCRIBE_PRODUCERS, 0, (_topic(Operation.READ),), {"topics": [_PARTITION]}
    ),
    "UnregisterBroker": Case(ApiKey.UNREGISTER_BROKER, 0, (_cluster(Operation.ALTER),), {"broker_id": 9}),
    "ConsumerGroupHeartbeat": Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        (_topic(Operation.DESCRIBE), _group(Operation.READ, "consumers")),
        {
            "group_id": "consumers",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
    ),
    "ConsumerGroupDescribe": Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        (_group(Operation.DESCRIBE, GHOST),),
        {"group_ids": [GHOST], "include_authorized_operations": True},
    ),
    "DescribeTopicPartitions": Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        (_topic(Operation.DESCRIBE),),
        {"topics": [{"name": TOPIC}], "response_partition_limit": 100, "cursor": None},
    ),
}
