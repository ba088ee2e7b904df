# SPDX-License-Identifier: Apache-2.0
"""A node on data of a later release says so in one line and ends, and changes nothing (docs/formats.md)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.coordination.sqlite import ENTRIES_FILE, LEASES_PREFIX
from headrace.log.checkpoints import CLEAN_MARKER_FILE, META_PROPERTIES_FILE
from headrace.wire.coordinator import group_records
from headrace.wire.records import Record, build_batch
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

SETTINGS = {"offsets.topic.num.partitions": "1"}
TOPIC, GROUP = "orders", "readers"
TIMEOUT_S = 15.0


@pytest.fixture(scope="module")
def stopped_node(tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    """A node that has served a group and was stopped cleanly."""
    node = NodeProcess(tmp_path_factory.mktemp("newer"), settings=SETTINGS)
    with node:
        create_topic(node, TOPIC)
        commit(node, 3)
    return node


def create_topic(node: NodeProcess, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)


def commit(node: NodeProcess, offset: int) -> None:
    consumer = group_member(node)
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def group_member(node: NodeProcess) -> Consumer:
    return Consumer({"bootstrap.servers": node.bootstrap, "group.id": GROUP, "enable.auto.commit": False})


def raise_folder(data: Path) -> None:
    path = data / META_PROPERTIES_FILE
    path.write_text(path.read_text().replace("headrace.format=1", "headrace.format=2"))


def raise_store(data: Path) -> None:
    execute(data / "coordination" / ENTRIES_FILE, "PRAGMA user_version = 2")


def raise_sessions(data: Path) -> None:
    (path,) = (data / "coordination").glob(f"{LEASES_PREFIX}*.db")
    execute(path, "PRAGMA user_version = 1")


def raise_entry(data: Path) -> None:
    value = b'{"format":2,"partitions":"in another form"}'
    path = data / "coordination" / ENTRIES_FILE
    execute(path, "INSERT INTO entries VALUES ('/topics/later', ?, 1, 1, NULL)", value)


def execute(path: Path, statement: str, *values: bytes) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def contents(data: Path) -> dict[str, bytes]:
    """All files but those that SQLite keeps beside a database while it is open, and the empty lock."""
    paths = [path for path in data.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return {str(path.relative_to(data)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("raised", [raise_folder, raise_store, raise_sessions, raise_entry])
def test_a_node_refuses_what_a_later_release_wrote_and_changes_nothing(
    raised: Callable[[Path], None], stopped_node: NodeProcess
) -> None:
    data = stopped_node.data
    sound = contents(data)
    raised(data)
    before = contents(data)
    assert before != sound
    done = stopped_node.run_to_end()
    try:
        (line,) = (done.stdout + done.stderr).strip().splitlines()
        assert done.returncode == 1
        assert "written by a newer Headrace (this one reads up to " in line
        assert "use that version" in line
        assert contents(data) == before
        assert (data / CLEAN_MARKER_FILE).exists()
    finally:
        for name, content in sound.items():
            (data / name).write_bytes(content)


def test_groups_with_a_record_of_a_later_release_are_not_served_from_an_older_state(
    stopped_node: NodeProcess,
) -> None:
    """The log says why, the record stays, and other topics are served."""
    path = stopped_node.data / "__consumer_offsets-0" / "00000000000000000000.log"
    with stopped_node.restart():
        commit(stopped_node, 4)
        end = end_of(stopped_node, "__consumer_offsets")
    key, _ = group_records.encode(group_records.OffsetCommitRecord(GROUP, TOPIC, 0, None))
    batch = bytearray(build_batch([Record(0, 1, key, b"\0\x09later")]))
    batch[:8], batch[12:16] = end.to_bytes(8, "big"), bytes(4)  # offset and leader epoch
    with path.open("ab") as log:
        log.write(batch)
    (stopped_node.data / CLEAN_MARKER_FILE).unlink()
    with stopped_node.restart():
        wait_until(
            lambda: "written by a newer Headrace" in stopped_node.log_path.read_text(),
            stopped_node.log_tail,
        )
        assert end_of(stopped_node, TOPIC) == 0
        consumer = group_member(stopped_node)
        with pytest.raises(KafkaException):
            consumer.committed([TopicPartition(TOPIC, 0)], timeout=1)
        consumer.close()
        assert end_of(stopped_node, "__consumer_offsets") == end + 1
    assert path.read_bytes().endswith(bytes(batch)[61:])


def end_of(node: NodeProcess, topic: str) -> int:
    consumer = group_member(node)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        return int(end)
    finally:
        consumer.close()
