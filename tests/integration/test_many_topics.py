# SPDX-License-Identifier: Apache-2.0
"""Many partitions and many topics: descriptors, memory and disk stay bounded and return.

A real Apache Kafka was seen to die of about 20,000 topics created and deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from headrace.wire.error_codes import ErrorCode
from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient, simple_batch
from tests.harness.waiting import poll, wait_until

StartNode = Callable[..., NodeProcess]
CREATE_TOPICS, DELETE_TOPICS, METADATA = 19, 20, 3
MIB = 1 << 20


def fill_two_thousand_partitions(start_node: StartNode) -> NodeProcess:
    node = start_node(descriptor_limit=1024)
    with RawClient(node.bootstrap, timeout_s=60) as client:
        client.create_topic("wide", partitions=2000, headrace_flush="os")
        for partition in range(2000):
            code, _ = client.produce("wide", simple_batch(b"first"), partition=partition, acks=1)
            assert code is ErrorCode.none
        assert node.descriptors() < 1024
        for partition in range(1999, -1, -7):
            assert b"first" in client.fetch("wide", 0, partition=partition)
    return node


def test_two_thousand_partitions_run_under_a_thousand_descriptors(start_node: StartNode) -> None:
    fill_two_thousand_partitions(start_node).kill()  # a clean stop would wait for the disk 2,000 times


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_soak_partitions_two_thousand_stop_and_start_under_a_thousand_descriptors(
    start_node: StartNode,
) -> None:
    begun = time.monotonic()
    node = fill_two_thousand_partitions(start_node)
    figures: dict[str, float] = {}
    for offset, end in enumerate((lambda: node.stop(timeout_ms=200_000), node.kill), 1):
        started = time.monotonic()
        end()
        stopped = time.monotonic()
        node.start(timeout_ms=200_000)
        figures |= {f"stop_{offset}_s": stopped - started, f"start_{offset}_s": time.monotonic() - stopped}
        with RawClient(node.bootstrap, timeout_s=60) as client:
            for partition in range(0, 2000, 97):
                assert client.produce("wide", simple_batch(b"more"), partition=partition)[1] == offset
                assert b"more" in client.fetch("wide", offset, partition=partition)
        assert node.descriptors() < 1024
    node.kill()
    soak.write_report("partitions", begun, figures)


def churn(node: NodeProcess, topics: int, together: int) -> dict[str, float]:
    """Creates and deletes topics, `together` at a time, each with a record in it."""
    with RawClient(node.bootstrap, timeout_s=120) as client:
        _create_and_delete(client, [f"warm-{number}" for number in range(together)])
        before = _figures(node)
        for start in range(0, topics, together):
            _create_and_delete(client, [f"churn-{number}" for number in range(start, start + together)])
        client.create_topic("last")
        assert client.produce("last", simple_batch(b"v"))[0] is ErrorCode.none
        assert {topic.name for topic in client.call(METADATA, 1, {"topics": None}).topics} == {"last"}
    allowed = before["descriptors"] + 10
    wait_until(lambda: _figures(node)["descriptors"] <= allowed, "files of deleted topics closed")
    after = _figures(node)
    assert after["memory_mib"] <= before["memory_mib"] + 64
    assert after["disk_mib"] <= before["disk_mib"] + 32
    assert node.alive
    return {
        f"{key}_{when}": value
        for when, figures in (("before", before), ("after", after))
        for key, value in figures.items()
    }


def _create_and_delete(client: RawClient, names: list[str]) -> None:
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    created = client.call(CREATE_TOPICS, 5, {"topics": wanted, "timeout": 60_000})
    assert {topic.error_code for topic in created.topics} == {ErrorCode.none}
    for name in names:
        assert client.produce(name, simple_batch(b"v"), acks=1)[0] is ErrorCode.none
    deleted = client.call(DELETE_TOPICS, 3, {"topic_names": names, "timeout": 60_000})
    assert {topic.error_code for topic in deleted.responses} == {ErrorCode.none}


def _figures(node: NodeProcess) -> dict[str, float]:
    return {
        "descriptors": node.descriptors(),
        "memory_mib": round(node.rss_bytes() / MIB, 1),
        "disk_mib": round(node.disk_bytes() / MIB, 1),
    }


def test_a_thousand_topics_created_and_deleted_leave_nothing(start_node: StartNode) -> None:
    churn(start_node({"log.segment.delete.delay.ms": "0"}), 1000, together=50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_topics_twenty_thousand_created_and_deleted_leave_nothing(start_node: StartNode) -> None:
    started = time.monotonic()
    figures = churn(start_node({"log.segment.delete.delay.ms": "0"}), 20_000, together=100)
    soak.write_report("topics", started, {"topics": 20_000, **figures})


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_topics_twenty_thousand_at_once_are_held_and_deleted(start_node: StartNode) -> None:
    started = time.monotonic()
    node = start_node({"log.segment.delete.delay.ms": "0"})
    with RawClient(node.bootstrap, timeout_s=600) as client:
        before = _figures(node)
        names = [f"many-{number}" for number in range(20_000)]
        for start in range(0, len(names), 500):
            wanted = [
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in names[start : start + 500]
            ]
            created = client.call(CREATE_TOPICS, 5, {"topics": wanted, "timeout": 600_000})
            assert {topic.error_code for topic in created.topics} == {ErrorCode.none}
        held = _figures(node)
        for start in range(0, len(names), 500):
            fields = {"topic_names": names[start : start + 500], "timeout": 600_000}
            deleted = client.call(DELETE_TOPICS, 3, fields)
            assert {topic.error_code for topic in deleted.responses} == {ErrorCode.none}
        assert client.call(METADATA, 1, {"topics": None}).topics == ()
    most_mib = before["disk_mib"] + 32
    after = poll(lambda: _figures(node), lambda now: now["disk_mib"] <= most_mib, timeout_s=120, poll_s=1)
    stopping = time.monotonic()
    assert node.stop(timeout_ms=120_000) == 0
    figures = {"before": before, "held": held, "after": after, "stop_s": time.monotonic() - stopping}
    soak.write_report("topics-at-once", started, figures)
    assert after["descriptors"] <= before["descriptors"] + 10
    assert after["disk_mib"] <= before["disk_mib"] + 32


@pytest.mark.parametrize("length", [210, 249])
def test_a_topic_with_a_long_name_is_deleted_with_its_files(start_node: StartNode, length: int) -> None:
    node, name = start_node(), "n" * length
    with RawClient(node.bootstrap, timeout_s=60) as client:
        client.create_topic(name, partitions=3)
        client.produce(name, simple_batch(b"gone"))
        client.call(DELETE_TOPICS, 6, {"topics": [{"name": name}], "timeout": 5000})
    wait_until(lambda: not list(node.data.glob("nnn*")), "no file of the topic left", timeout_s=10)


def test_files_that_an_earlier_version_left_of_a_long_topic_are_set_aside_at_the_start(
    start_node: StartNode,
) -> None:
    node, name = start_node(), "n" * 249
    with RawClient(node.bootstrap, timeout_s=60) as client:
        client.create_topic("short")
        client.produce("short", simple_batch(b"kept"))
    node.stop()
    (log,) = node.data.rglob("short-0")
    log.rename(log.with_name(f"{name}-0"))
    node.start()
    (left,) = node.data.rglob("nnn*")
    assert left.name.endswith("-stray")
    assert "belongs to no topic" in node.log_path.read_text()
