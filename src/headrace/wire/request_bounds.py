# SPDX-License-Identifier: Apache-2.0
"""How many array items, at all depths together, a request of each API may hold (S1).

Two bytes of a frame become an object of 100, and an item may be answered with thousands of bytes. The bounds
leave room for tools that handle 10,000 topics at once. Produce and Fetch: requests/topic_entries.py.
Read next: messages.py (which applies them), api_table.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.wire.api_key import ApiKey

DEFAULT_MAX_ITEMS = 1_000
"""For requests whose arrays are short: filters, protocols, listeners."""

_PARTITIONS = 100_000
_TOPICS = 20_000
_GROUPS = 10_000
_USERS = 10_000
_TRANSACTIONAL_IDS = 10_000

MAX_ITEMS: Mapping[int, int] = MappingProxyType(
    {
        ApiKey.LIST_OFFSETS: _PARTITIONS,
        ApiKey.METADATA: _TOPICS,
        # A member commits what it is assigned; the group takes all in one turn of the event loop.
        ApiKey.OFFSET_COMMIT: 10_000,
        ApiKey.OFFSET_FETCH: _TOPICS,
        ApiKey.FIND_COORDINATOR: _GROUPS,
        ApiKey.LEAVE_GROUP: _GROUPS,
        ApiKey.SYNC_GROUP: _GROUPS,
        ApiKey.DESCRIBE_GROUPS: _GROUPS,
        # 10,000 partitions are created at most, as in Apache Kafka: with configs or replicas for each.
        ApiKey.CREATE_TOPICS: _PARTITIONS,
        ApiKey.DELETE_TOPICS: _TOPICS,
        ApiKey.DELETE_RECORDS: _PARTITIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
        ApiKey.DESCRIBE_CONFIGS: _TOPICS,
        ApiKey.ALTER_CONFIGS: 50_000,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 50_000,
        ApiKey.DESCRIBE_LOG_DIRS: _PARTITIONS,
        ApiKey.CREATE_PARTITIONS: 50_000,
        ApiKey.DELETE_GROUPS: _GROUPS,
        ApiKey.ELECT_LEADERS: _PARTITIONS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _PARTITIONS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _PARTITIONS,
        ApiKey.OFFSET_DELETE: 10_000,
        ApiKey.ALTER_PARTITION: _PARTITIONS,
        ApiKey.DESCRIBE_PRODUCERS: _TOPICS,
        # The coordinator takes all partitions of a transaction in one turn of the event loop.
        ApiKey.ADD_PARTITIONS_TO_TXN: 20_000,
        ApiKey.WRITE_TXN_MARKERS: _PARTITIONS,
        ApiKey.TXN_OFFSET_COMMIT: 10_000,
        ApiKey.DESCRIBE_TRANSACTIONS: _TRANSACTIONAL_IDS,
        ApiKey.LIST_TRANSACTIONS: 10_000,
        ApiKey.ALTER_CLIENT_QUOTAS: _USERS,
        ApiKey.CREATE_ACLS: _USERS,
        ApiKey.DELETE_ACLS: _USERS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _USERS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _USERS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 10_000,
        ApiKey.CONSUMER_GROUP_DESCRIBE: _GROUPS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _TOPICS,
    }
)

_BYTES_PER_ITEM = 200
"""Of an item once it is decoded and its answer is built."""
_REPLY_BYTES_PER_ITEM: Mapping[int, int] = MappingProxyType({ApiKey.DESCRIBE_CONFIGS: 4_500})
"""Where an item is answered with more than that: every config of a topic, with documentation."""
_FRAME_BYTES_PER_ITEM = 10


def max_items(api_key: int) -> int:
    return MAX_ITEMS.get(api_key, DEFAULT_MAX_ITEMS)


def estimated_bytes(api_key: int, frame_bytes: int) -> int:
    """Memory that a request of this size may take while it is handled, beside its frame."""
    items = min(max_items(api_key), frame_bytes // _FRAME_BYTES_PER_ITEM)
    return frame_bytes + items * _REPLY_BYTES_PER_ITEM.get(api_key, _BYTES_PER_ITEM)
