# SPDX-License-Identifier: Apache-2.0
"""A cluster as large as the console must bear: topics in batches, and groups that only committed.

Knows nothing of the console. Read next: measures/console.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, NewTopic

from bench.group_client import expect_none, wait_for_coordinator
from bench.raw_client import RawConnection, send_each
from headrace.cluster.engines.engine import RunningNode
from tests.harness.groups import wire

TOPICS, PARTITIONS, GROUPS = 1000, 10, 500
_BATCH = 100
_TIMEOUT_S = 120
_TOPICS_PER_GROUP = 2


def topic_name(number: int) -> str:
    return f"orders-{number:04}"


def group_name(number: int) -> str:
    return f"billing-{number:04}"


def build(node: RunningNode, *, topics: int, groups: int) -> None:
    """All groups have read to the end of their topics, which are empty."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    names = [topic_name(number) for number in range(topics)]
    for first in range(0, topics, _BATCH):
        new = [NewTopic(name, num_partitions=PARTITIONS) for name in names[first : first + _BATCH]]
        for done in admin.create_topics(new, operation_timeout=_TIMEOUT_S).values():
            done.result(_TIMEOUT_S)
    with RawConnection(node.host, node.port, buffer_bytes=1 << 16) as connection:
        for number in range(min(groups, 2 * _BATCH)):  # the coordinator's partitions are there by then
            wait_for_coordinator(connection, group_name(number))
        send_each(connection, [commit for g in range(groups) for commit in _commits(g, names)], _check)


def commit(node: RunningNode, group: str, topic: str, offset: int) -> float:
    """Move a group in partition 0; returns when it was acknowledged."""
    request = wire.request("offset_commit", wire.commit_fields(group, "", -1, topic, {0: offset}))
    with RawConnection(node.host, node.port, buffer_bytes=1 << 14) as connection:
        _check(connection.call(request))
    return time.monotonic()


def _commits(number: int, topics: Sequence[str]) -> list[bytes]:
    mine = [topics[(number * _TOPICS_PER_GROUP + step) % len(topics)] for step in range(_TOPICS_PER_GROUP)]
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    return [
        wire.request("offset_commit", wire.commit_fields(group_name(number), "", -1, topic, offsets))
        for topic in mine
    ]


def _check(frame: memoryview) -> None:
    for partition in wire.read_reply("offset_commit", frame).topics[0].partitions:
        expect_none("OffsetCommit", partition.error_code)


def requests_answered(metrics_port: int) -> float:
    """All requests that the node has answered so far."""
    with urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("headrace_requests_total"))
