# SPDX-License-Identifier: Apache-2.0
"""A node alone with a damaged log: `headrace log scrub` names the range, `log repair` isolates it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Producer

from headrace.cli import main
from headrace.log.repair import marker
from headrace.types import TopicPartition
from tests.harness.live.load import read_all
from tests.harness.live.node import NodeProcess

TOPIC = "orders"
RECORDS = 8_000
SETTINGS = {"log.segment.bytes": str(1 << 20), "headrace.scrub.interval.ms": "-1"}


@pytest.fixture
def damaged(start_node: Callable[..., NodeProcess]) -> tuple[NodeProcess, Path]:
    """A stopped node, and the file in whose middle 5,000 bytes are overwritten."""
    node = start_node(SETTINGS)
    send(node, 0, RECORDS)
    assert node.stop() == 0
    path = sorted((node.data / f"{TOPIC}-0").glob("*.log"))[1]
    with path.open("r+b") as file:
        file.seek(200_000)
        file.write(b"\xee" * 5_000)
    return node, path


def send(node: NodeProcess, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 20, "linger.ms": 5})
    for number in range(first, end):
        producer.produce(TOPIC, value_of(number), partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def value_of(number: int) -> bytes:
    return b"%06d-" % number + b"x" * 300


def run(*arguments: str | Path) -> int:
    return main.run(["log", *(str(each) for each in arguments)])


def documents(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def unreadable(printed: str) -> list[int]:
    (finding,) = [each for each in documents(printed) if each["event"] == "damage"]
    return [offset for first, last in finding["unreadable"] for offset in range(first, last + 1)]


def test_a_repaired_log_is_read_around_the_damage(
    damaged: tuple[NodeProcess, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    node, path = damaged
    # It was a replica among others, and its repair was interrupted: without the command it stays offline.
    (path.parent / marker.FILE_NAME).write_text(f"{int(path.stem)}\n")
    before = path.read_bytes()
    assert run("scrub", node.data, "--json") == 1
    lost = unreadable(capfd.readouterr().out)
    assert 5_000 / 300 < len(lost) < 100
    assert run("repair", node.data, "--dry-run") == 0
    assert path.read_bytes() == before
    assert run("repair", node.data) == 1, "nobody confirmed"
    assert path.read_bytes() == before
    assert run("repair", node.data, "--yes") == 0
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == before
    assert run("scrub", node.data) == 0

    expected = [(number, value_of(number)) for number in range(RECORDS) if number not in lost]
    node.start()
    assert read_all(node.bootstrap, TopicPartition(TOPIC, 0)).records == expected
    assert asyncio.run(read_with_aiokafka(node, len(expected))) == expected
    send(node, RECORDS, RECORDS + 10)
    more = [(number, value_of(number)) for number in range(RECORDS, RECORDS + 10)]
    assert read_all(node.bootstrap, TopicPartition(TOPIC, 0)).records == expected + more


async def read_with_aiokafka(node: NodeProcess, count: int) -> list[tuple[int, bytes]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=node.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        partition = AioPartition(TOPIC, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        records: list[tuple[int, bytes]] = []
        while len(records) < count:
            found = await consumer.getmany(timeout_ms=5_000)
            assert found, f"only {len(records)} of {count}"
            records += [(each.offset, each.value) for batch in found.values() for each in batch]
        return records
    finally:
        await consumer.stop()


def test_a_running_node_is_left_alone(
    damaged: tuple[NodeProcess, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    node, path = damaged
    node.start()
    before = path.read_bytes()
    for command in ("scrub", "repair"):
        for place in (node.data, path.parent):
            assert run(command, place) == 1
            assert f"the node of {node.data} runs" in capfd.readouterr().err
    assert path.read_bytes() == before


def test_a_cut_end_of_a_cleanly_stopped_node_is_damage(
    start_node: Callable[..., NodeProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint says where the log ended; without it the offsets would be given to other records."""
    node = start_node(SETTINGS)
    send(node, 0, 1_000)
    assert node.stop() == 0
    path = sorted((node.data / f"{TOPIC}-0").glob("*.log"))[-1]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10_000)
    assert run("scrub", path.parent, "--json") == 1
    lost = unreadable(capfd.readouterr().out)
    assert lost[-1] == 999
    assert run("repair", path.parent, "--yes") == 0
    node.start()
    send(node, 1_000, 1_001)
    expected = [(number, value_of(number)) for number in (*range(lost[0]), 1_000)]
    assert read_all(node.bootstrap, TopicPartition(TOPIC, 0)).records == expected


def test_directories_that_are_none_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("scrub", "repair"):
        assert run(command, tmp_path / "empty") == 1
        assert "has no partitions" in capfd.readouterr().err
        assert run(command, tmp_path / "nothing") == 1
        assert "is not a directory" in capfd.readouterr().err
