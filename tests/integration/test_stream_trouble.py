# SPDX-License-Identifier: Apache-2.0
"""Streams while nodes are killed, logs are cut and topics are deleted: they go on, or end with the reason."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.groups.stream_members import QUICK, StreamGroup
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import check_stays, wait_until

TIMEOUT_S = 20
with_both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def create(bootstrap: str, topic: str, partitions: int = 1) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    return admin


def write(bootstrap: str, topic: str, numbers: range, **more: Any) -> list[bytes]:
    values = [b"%d" % number for number in numbers]
    headrace.write(pa.table({"value": values}), topic, bootstrap=bootstrap, **more)
    return values


def test_a_stream_goes_on_when_its_node_is_killed_and_comes_back(node: NodeProcess) -> None:
    """Without a group: every record once, in order."""
    create(node.bootstrap, "t")
    expected = write(node.bootstrap, "t", range(3000), batch_bytes=2000)
    found: list[bytes] = []
    with headrace.stream("t", bootstrap=node.bootstrap, start="earliest", budget=20_000) as stream:
        while len(found) < 500:
            found += next(stream)["value"].to_pylist()
        node.kill()
        restart = threading.Timer(0.5, node.start)
        restart.start()
        while len(found) < 3000:
            found += next(stream)["value"].to_pylist()
        restart.join()
        expected += write(node.bootstrap, "t", range(3000, 3100))
        while len(found) < 3100:
            found += next(stream)["value"].to_pylist()
    assert found == expected


@with_both_protocols
def test_a_group_outlives_its_coordinator(start_node: Any, protocol: str) -> None:
    node = start_node(QUICK_GROUPS)
    create(node.bootstrap, "t", 4)
    with StreamGroup(node.bootstrap, "g", "t", protocol=protocol, may_lose=True) as group:
        group.join("one")
        group.join("two")
        group.until_shared(2, 2)
        values = write(node.bootstrap, "t", range(100), partitioner="round_robin")
        group.until_read(values)
        node.kill()
        time.sleep(0.3)  # members meet a node that is gone
        node.start()
        values += write(node.bootstrap, "t", range(100, 200), partitioner="round_robin")
        group.until_read(values)
        group.until_shared(2, 2)
        one = group.leave("one")
        group.until_shared(4)
        assert set(values) == {*group.values(), *one.values}


def test_a_stream_gives_up_with_the_reason_when_the_node_stays_away(node: NodeProcess) -> None:
    create(node.bootstrap, "t")
    options: Any = {"bootstrap": node.bootstrap, "timeout_ms": 500}
    tail = headrace.stream("t", **options)
    member = headrace.stream("t", group="g", **options)
    assert [tail.poll(100), member.poll(100)] == [None, None]
    node.kill()
    for stream in (tail, member):
        with pytest.raises(ClientError, match=r"127\.0\.0\.1"):
            stream.poll(20_000)
        with pytest.raises(ClientError, match="the stream is closed"):
            stream.poll(0)


def test_records_deleted_by_retention_are_skipped_and_reported(
    start_node: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = start_node(QUICK_GROUPS).bootstrap
    create(bootstrap, topic)
    write(bootstrap, topic, range(100), batch_bytes=200)
    options: Any = {"bootstrap": bootstrap, "group": topic, **QUICK}
    with headrace.stream(topic, commit=False, **options) as stream:
        next(stream)
        stream.commit({(topic, 0): 3})
    Admin(bootstrap).delete_records(topic, {0: 50})
    with headrace.stream(topic, columns=["offset"], **options) as stream:
        offsets = next(stream)["offset"].to_pylist()
        while offsets[-1] < 99:
            offsets += next(stream)["offset"].to_pylist()
    assert offsets == list(range(50, 100))
    assert f"{topic}-0 does not hold offset 3: continuing at 50" in caplog.text
    with headrace.stream(topic, start="committed", commit=False, **options) as stream:
        stream.poll(300)
        stream.commit({(topic, 0): 3})
    with (
        headrace.stream(topic, start="committed", **options) as stream,
        pytest.raises(ClientError, match=f'{topic}-0 does not hold offset 3; .*start="earliest"'),
    ):
        next(stream)


def test_an_offset_past_the_end_goes_on_at_the_end(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    write(bootstrap, topic, range(3))
    with headrace.stream(topic, bootstrap=bootstrap, start="earliest", **QUICK) as stream:
        next(stream)
        stream.seek({(topic, 0): 1000})
        while stream.position() == {(topic, 0): 1000}:
            stream.poll(50)
        assert stream.position() == {(topic, 0): 3}


def test_a_topic_deleted_while_it_is_streamed_is_an_error(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic)
    with headrace.stream(topic, bootstrap=bootstrap, timeout_ms=500, **QUICK) as stream:
        stream.poll(50)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        with pytest.raises(ClientError, match=f"topic '{topic}' does not exist any more"):
            stream.poll(20_000)


def test_a_topic_recreated_while_it_is_streamed_is_an_error(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic)
    write(bootstrap, topic, range(5))
    with headrace.stream(topic, bootstrap=bootstrap, start="earliest", **QUICK) as stream:
        next(stream)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        create(bootstrap, topic)
        write(bootstrap, topic, range(10))
        with pytest.raises(ClientError, match=f"{topic}' was deleted and recreated"):
            stream.poll(20_000)


@with_both_protocols
def test_a_group_goes_on_with_the_topics_that_are_left(start_node: Any, protocol: str) -> None:
    node = start_node(QUICK_GROUPS)
    admin = create(node.bootstrap, "kept")
    create(node.bootstrap, "dropped")
    with StreamGroup(node.bootstrap, "g", ["kept", "dropped"], protocol=protocol) as group:
        group.join("one")
        group.until_shared(2)
        admin.delete_topics(["dropped"])["dropped"].result(TIMEOUT_S)
        group.until_shared(1)
        group.until_read(write(node.bootstrap, "kept", range(5)))


def test_a_stream_keeps_to_its_budget(bootstrap: str, topic: str) -> None:
    """A reader that takes its time has no more fetched for it than it allowed."""
    create(bootstrap, topic, 4)
    rows = pa.table({"value": [b"x" * 1000] * 8000})
    headrace.write(rows, topic, bootstrap=bootstrap, partitioner="round_robin", batch_bytes=20_000)
    budget = 800_000
    with headrace.stream(topic, bootstrap=bootstrap, start="earliest", budget=budget) as stream:
        seen = next(stream).num_rows
        fetcher = stream._core._fetch._fetcher
        wait_until(lambda: fetcher._held > 0)
        check_stays(lambda: fetcher._held <= budget, "more than the budget was fetched", seconds=0.5)
        while seen < 8000:
            seen += next(stream).num_rows
    assert seen == 8000


def test_no_partition_waits_for_the_end_of_another(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    rows = pa.table({"value": [b"x" * 1000] * 4003, "partition": [0] * 2000 + [1] * 2000 + [2] * 3})
    headrace.write(rows, topic, bootstrap=bootstrap, partition="partition", batch_bytes=20_000)
    options: Any = {"bootstrap": bootstrap, "start": "earliest", "budget": 400_000}
    order: list[int] = []
    with headrace.stream(topic, columns=["partition"], **options) as stream:
        while len(order) < 4003:
            order += next(stream)["partition"].to_pylist()
    first_of = [order.index(partition) for partition in range(3)]
    assert max(first_of) < 400, "each partition's first records came with the first few replies"
