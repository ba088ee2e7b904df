# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.security.visibility import CLUSTER_OPERATIONS
from headrace.errors import ApiError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.read_handlers import FakeBroker, FakePartition, node, topic


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_its_nodes_as_the_listener_shows_them(version: int) -> None:
    broker = FakeBroker(nodes=[node(2, rack="r"), node(1), node(3, listeners=("OTHER",))])
    reply = broker.ask(ApiKey.DESCRIBE_CLUSTER, version)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (
        ErrorCode.none,
        "cluster-id-of-22-chars",
        1,
    )
    assert [(each.broker_id, each.host, each.port, each.rack) for each in reply.brokers] == [
        (1, "plaintext-1", 9001, None),
        (2, "plaintext-2", 9002, "r"),
    ]


def test_cluster_operations_are_returned_on_request() -> None:
    broker = FakeBroker()
    assert broker.ask(ApiKey.DESCRIBE_CLUSTER, 2).cluster_authorized_operations == -(2**31)
    asked = broker.ask(ApiKey.DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=True)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)],
)
def test_this_is_not_an_endpoint_of_controllers(endpoint_type: int, error: ErrorCode) -> None:
    with pytest.raises(ApiError) as raised:
        FakeBroker().ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=endpoint_type)
    assert raised.value.code is error


def sizes(reply: Any) -> dict[tuple[str, int], int]:
    (result,) = reply.results
    return {
        (entry.name, partition.partition_index): partition.partition_size
        for entry in result.topics
        for partition in entry.partitions
    }


def disk() -> FakeBroker:
    return FakeBroker(
        [topic("a", 2), topic("b")],
        partitions=[
            FakePartition("a", 0, size_bytes=1),
            FakePartition("a", 1, size_bytes=2),
            FakePartition("b", 0, size_bytes=3),
            FakePartition("broken", 0, online=False),
        ],
    )


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_log_dirs_show_every_partition_that_is_online(version: int) -> None:
    reply = disk().ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    assert sizes(reply) == {("a", 0): 1, ("a", 1): 2, ("b", 0): 3}
    (result,) = reply.results
    assert (result.error_code, result.log_dir) == (ErrorCode.none, "/data")
    if version >= 4:
        assert (result.total_bytes, result.usable_bytes) == (1_000_000, 400_000)


def test_log_dirs_of_some_partitions_leave_out_the_others_and_the_unknown() -> None:
    asked = [{"topic": "a", "partitions": [1, 9]}, {"topic": "nowhere", "partitions": [0]}]
    assert sizes(disk().ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=asked)) == {("a", 1): 2}


def test_a_directory_that_cannot_be_read_is_a_storage_error() -> None:
    broker = disk()
    broker.world.files.broken = True
    (result,) = asyncio.run(broker.ask_async(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)).results
    assert (result.error_code, result.topics) == (ErrorCode.kafka_storage_error, ())
