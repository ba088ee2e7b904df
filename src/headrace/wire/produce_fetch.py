"""The hot requests, one door for their callers: Produce (produce.py) and Fetch (fetch.py)."""

from headrace.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopic,
    read_fetch,
    write_fetch_reply,
)
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    read_produce,
    write_produce_reply,
)
from headrace.wire.topic_entries import (
    MAX_PARTITIONS_PER_PRODUCE,
    MAX_PARTITIONS_PER_REQUEST,
    NodeEndpoint,
)

__all__ = [
    "MAX_PARTITIONS_PER_PRODUCE",
    "MAX_PARTITIONS_PER_REQUEST",
    "FetchPartition",
    "FetchRequest",
    "FetchResult",
    "FetchTopic",
    "NodeEndpoint",
    "ProducePartition",
    "ProduceRequest",
    "ProduceResult",
    "ProduceTopic",
    "read_fetch",
    "read_produce",
    "write_fetch_reply",
    "write_produce_reply",
]
