# SPDX-License-Identifier: Apache-2.0
"""Which operations the requests of each API need, by the type of the resource they name; as in Apache Kafka.

One row for every API of api_table.py. Rows say what is asked for; what a denial changes in the reply is
decided in broker/authorization/. docs/security.md explains the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.acls import Operation
from headrace.wire.api_key import ApiKey

_ALTER, _DESCRIBE, _READ, _WRITE = Operation.ALTER, Operation.DESCRIBE, Operation.READ, Operation.WRITE
_CREATE, _DELETE, _CLUSTER_ACTION = Operation.CREATE, Operation.DELETE, Operation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


class Needed(NamedTuple):
    """The operation needed on each resource of a type that a request names."""

    cluster: Operation | None = None
    topic: Operation | None = None
    group: Operation | None = None
    transactional_id: Operation | None = None
    cluster_suffices: bool = False
    """With the operation on the cluster, that on the topics or groups is not needed."""


NOTHING = Needed()

NEEDED: Mapping[int, Needed] = MappingProxyType(
    {
        ApiKey.PRODUCE: Needed(topic=_WRITE, transactional_id=_WRITE),
        # As a follower: ClusterAction instead.
        ApiKey.FETCH: Needed(cluster=_CLUSTER_ACTION, topic=_READ),
        ApiKey.LIST_OFFSETS: Needed(topic=_DESCRIBE),
        # Create, on the cluster or the topic, only for a topic that the request would create.
        ApiKey.METADATA: Needed(cluster=_CREATE, topic=_DESCRIBE),
        ApiKey.OFFSET_COMMIT: Needed(topic=_READ, group=_READ),
        ApiKey.OFFSET_FETCH: Needed(topic=_DESCRIBE, group=_DESCRIBE),
        ApiKey.FIND_COORDINATOR: Needed(group=_DESCRIBE, transactional_id=_DESCRIBE),
        ApiKey.JOIN_GROUP: Needed(group=_READ),
        ApiKey.HEARTBEAT: Needed(group=_READ),
        ApiKey.LEAVE_GROUP: Needed(group=_READ),
        ApiKey.SYNC_GROUP: Needed(group=_READ),
        ApiKey.DESCRIBE_GROUPS: Needed(group=_DESCRIBE),
        ApiKey.LIST_GROUPS: Needed(cluster=_DESCRIBE, group=_DESCRIBE, cluster_suffices=True),
        ApiKey.SASL_HANDSHAKE: NOTHING,
        ApiKey.API_VERSIONS: NOTHING,
        ApiKey.CREATE_TOPICS: Needed(cluster=_CREATE, topic=_CREATE, cluster_suffices=True),
        ApiKey.DELETE_TOPICS: Needed(cluster=_DELETE, topic=_DELETE, cluster_suffices=True),
        ApiKey.DELETE_RECORDS: Needed(topic=_DELETE),
        # IdempotentWrite, or Write on any topic (KIP-679).
        ApiKey.INIT_PRODUCER_ID: Needed(cluster=Operation.IDEMPOTENT_WRITE, transactional_id=_WRITE),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Needed(
            cluster=_CLUSTER_ACTION, topic=_DESCRIBE, cluster_suffices=True
        ),
        # Of other nodes, from version 4 on: ClusterAction instead.
        ApiKey.ADD_PARTITIONS_TO_TXN: Needed(cluster=_CLUSTER_ACTION, topic=_WRITE, transactional_id=_WRITE),
        ApiKey.ADD_OFFSETS_TO_TXN: Needed(group=_READ, transactional_id=_WRITE),
        ApiKey.END_TXN: Needed(transactional_id=_WRITE),
        # Or Alter (KIP-1037).
        ApiKey.WRITE_TXN_MARKERS: Needed(cluster=_CLUSTER_ACTION),
        ApiKey.TXN_OFFSET_COMMIT: Needed(topic=_READ, group=_READ, transactional_id=_WRITE),
        ApiKey.DESCRIBE_ACLS: Needed(cluster=_DESCRIBE),
        ApiKey.CREATE_ACLS: Needed(cluster=_ALTER),
        ApiKey.DELETE_ACLS: Needed(cluster=_ALTER),
        # On the cluster: configs of nodes.
        ApiKey.DESCRIBE_CONFIGS: Needed(
            cluster=_DESCRIBE_CONFIGS, topic=_DESCRIBE_CONFIGS, group=_DESCRIBE_CONFIGS
        ),
        ApiKey.ALTER_CONFIGS: Needed(cluster=_ALTER_CONFIGS, topic=_ALTER_CONFIGS, group=_ALTER_CONFIGS),
        ApiKey.DESCRIBE_LOG_DIRS: Needed(cluster=_DESCRIBE),
        ApiKey.SASL_AUTHENTICATE: NOTHING,
        ApiKey.CREATE_PARTITIONS: Needed(topic=_ALTER),
        ApiKey.DELETE_GROUPS: Needed(group=_DELETE),
        ApiKey.ELECT_LEADERS: Needed(cluster=_ALTER),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Needed(
            cluster=_ALTER_CONFIGS, topic=_ALTER_CONFIGS, group=_ALTER_CONFIGS
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Needed(cluster=_ALTER),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Needed(cluster=_DESCRIBE),
        ApiKey.OFFSET_DELETE: Needed(topic=_READ, group=_DELETE),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Needed(cluster=_DESCRIBE_CONFIGS),
        ApiKey.ALTER_CLIENT_QUOTAS: Needed(cluster=_ALTER_CONFIGS),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Needed(cluster=_DESCRIBE),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Needed(cluster=_ALTER),
        ApiKey.ALTER_PARTITION: Needed(cluster=_CLUSTER_ACTION),
        # Only the authorized operations in the reply depend on it.
        # Only from a node that has logged in; what is in it is authorized for its client.
        ApiKey.ENVELOPE: Needed(cluster=_CLUSTER_ACTION),
        ApiKey.DESCRIBE_CLUSTER: NOTHING,
        ApiKey.DESCRIBE_PRODUCERS: Needed(topic=_READ),
        ApiKey.BROKER_HEARTBEAT: Needed(cluster=_CLUSTER_ACTION),
        ApiKey.UNREGISTER_BROKER: Needed(cluster=_ALTER),
        # Topics of a transaction without Describe are left out.
        ApiKey.DESCRIBE_TRANSACTIONS: Needed(topic=_DESCRIBE, transactional_id=_DESCRIBE),
        ApiKey.LIST_TRANSACTIONS: Needed(transactional_id=_DESCRIBE),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Needed(topic=_DESCRIBE, group=_READ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Needed(topic=_DESCRIBE, group=_DESCRIBE),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Needed(topic=_DESCRIBE),
    }
)
