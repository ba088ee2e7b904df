# SPDX-License-Identifier: Apache-2.0
"""Partitions follow the cluster's view, also over crashes, full disks and directories that are not theirs."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from headrace.broker.partition.checkpoints import TOPIC_ID_FILE
from headrace.log.checkpoints import (
    CLEAN_MARKER_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offset_checkpoint,
)
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import TOPIC, SimBroker, directory_of, on_a_node

VALUES = [b"0", b"1", b"2"]
PARTITION = TopicPartition(TOPIC, 0)


def strays(node: SimBroker) -> list[str]:
    return [name for name in node.files.listdir(DATA_DIRECTORY) if name.endswith("-stray")]


def make_directory(node: SimBroker, path: Path, **contents: bytes) -> None:
    node.files.make_directory(path)
    for name, data in contents.items():
        file = node.files.open(path / name.replace("_", "."), "create")
        file.pwritev([data], 0)
        file.close()


# A topic and its successor of the same name


def test_a_topic_made_again_loses_nothing_of_what_it_acknowledged_when_the_node_is_killed() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for _ in range(20):
            await node.produce(b"old")
        assert await node.delete_records(15) == 15
        await node.delete()
        await node.create()
        for value in VALUES:
            await node.produce(value)
        await node.kill()
        await node.start()
        assert await node.values() == VALUES

    on_a_node(scenario)


def test_a_topic_made_again_with_more_than_its_predecessor_keeps_its_beginning() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for _ in range(5):
            await node.produce(b"old")
        await node.delete_records(2)
        await node.delete()
        await node.create()
        values = [b"%d" % n for n in range(10)]
        for value in values:
            await node.produce(value)
        await node.kill()
        await node.start()
        assert await node.values() == values

    on_a_node(scenario)


def test_a_directory_of_a_deleted_topic_is_set_aside_when_the_name_is_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A crash came after the store forgot the topic and before its directory was renamed."""

    async def scenario(node: SimBroker) -> None:
        await node.create()
        foreign = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n"
        make_directory(node, directory_of("again"), partition_metadata=foreign)
        assert await node.create("again") == 0
        assert await node.produce(b"new", name="again") == (0, 0)
        assert len(strays(node)) == 1

    on_a_node(scenario)
    assert "again-0 belongs to no topic" in caplog.text


def test_stray_logs_are_renamed_at_the_start_and_others_are_kept() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("a-1", partitions=2)
        await node.produce(b"kept", name="a-1")
        await node.stop()
        await node.kill()
        for name in ("gone-0", "a-1-7", "notes", "a-1-x", "b.-delete"):
            make_directory(node, DATA_DIRECTORY / name, keep=b"me")
        await node.start()
        assert await node.values(name="a-1") == [b"kept"]
        assert [name.split(".")[0] for name in strays(node)] == ["a-1-7", "gone-0"]
        await asyncio.sleep(1)
        left = set(node.files.listdir(DATA_DIRECTORY))
        assert {"notes", "a-1-x"} <= left
        assert "b.-delete" not in left

    on_a_node(scenario)


# Logs that cannot be opened


def corrupt(node: SimBroker) -> None:
    """Flips a bit of the first batch, below the recovery point."""
    path = directory_of() / "00000000000000000000.log"
    file = node.files.open(path, "write")
    byte = file.pread(1, 70)[0]
    file.pwritev([bytes([byte ^ 1])], 70)
    file.close()


def test_a_damaged_log_stays_offline_uncut_over_restarts() -> None:
    """R27: what is known of it must outlive the checkpoints of those that could be opened."""

    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.create("sound")
        for value in VALUES:
            await node.produce(value)
            await node.produce(value, name="sound")
        await node.broker.offsets.persist()
        await node.kill()
        corrupt(node)
        for _ in range(3):
            await node.start()
            assert (await node.fetch()).error_code == ErrorCode.kafka_storage_error
            assert (await node.produce(b"x"))[0] == ErrorCode.kafka_storage_error
            assert await node.values(name="sound") == VALUES
            await node.stop()
            assert not node.files.exists(DATA_DIRECTORY / CLEAN_MARKER_FILE)
            await node.kill()
        points = read_offset_checkpoint(node.files, DATA_DIRECTORY / RECOVERY_POINT_FILE)
        assert points[PARTITION] == 3

    on_a_node(scenario)


def test_a_log_that_found_no_room_is_opened_once_there_is_some(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: SimBroker) -> None:
        node.files.errors["create:.metadata"] = OSError(errno.ENOSPC, "No space left on device")
        await node.create()
        assert (await node.produce(b"x"))[0] == ErrorCode.kafka_storage_error
        await asyncio.sleep(5)
        node.files.errors.clear()
        await asyncio.sleep(3)
        assert await node.produce(b"x") == (0, 0)

    on_a_node(scenario)
    assert len([line for line in caplog.messages if "stays offline" in line]) == 1


def test_deleting_a_topic_that_could_not_be_opened_removes_its_directory() -> None:
    async def scenario(node: SimBroker) -> None:
        node.files.errors["create:.metadata"] = OSError(errno.EIO, "Input/output error")
        await node.create()
        node.files.errors.clear()
        assert node.files.exists(directory_of())
        await node.delete()
        await asyncio.sleep(1)
        assert not node.files.exists(directory_of())
        assert strays(node) == []
        await node.create()
        assert await node.produce(b"new") == (0, 0)

    on_a_node(scenario)


def test_a_topic_whose_directory_cannot_be_moved_does_not_keep_others_from_going(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        await node.create("other")

        def refuse(operation: str, path: Path) -> None:
            if operation == "rename" and path == directory_of():
                raise OSError(errno.EACCES, "Permission denied")

        node.files.on_operation = refuse
        assert await node.delete() == 0
        assert await node.delete("other") == 0
        await asyncio.sleep(1)
        assert not node.files.exists(directory_of(index=1))
        assert not node.files.exists(directory_of("other"))

    on_a_node(scenario)
    assert "t-0 is deleted, but its files stay" in caplog.text


# Checkpoints and the mark of a clean stop


def test_checkpoints_hold_offsets_and_the_ids_they_belong_to() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for value in VALUES:
            await node.produce(value)
        await node.delete_records(1)
        for name, number in (
            (RECOVERY_POINT_FILE, 3),
            (LOG_START_FILE, 1),
            (TOPIC_ID_FILE, node.partition().topic_id.int),
        ):
            assert read_offset_checkpoint(node.files, DATA_DIRECTORY / name) == {PARTITION: number}

    on_a_node(scenario)


# Many topics


def test_a_change_of_one_topic_does_not_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimBroker) -> None:
        for number in range(30):
            await node.create(f"topic{number}")
        looked_at: list[str] = []
        usual = node.broker.partitions._match

        def match(view: object, topic: object) -> None:
            looked_at.append(topic.name)  # type: ignore[attr-defined]
            usual(view, topic)  # type: ignore[arg-type]

        monkeypatch.setattr(node.broker.partitions, "_match", match)
        await node.create("one more")
        await node.create("one-more")
        assert looked_at == ["one-more"]

    on_a_node(scenario)


def test_a_hundred_topics_made_and_deleted_leave_nothing_behind() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await asyncio.sleep(10)  # for the ballast
        open_before, entries = node.files.open_files, len(node.files.listdir(DATA_DIRECTORY))
        for number in range(100):
            await node.create(f"topic{number}")
            await node.produce(b"x", name=f"topic{number}")
        for number in range(100):
            await node.delete(f"topic{number}")
        await asyncio.sleep(10)
        assert node.files.open_files == open_before
        assert len(node.files.listdir(DATA_DIRECTORY)) == entries
        assert list(node.broker.metrics.topics) == [TOPIC]

    on_a_node(scenario)
