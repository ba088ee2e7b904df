# SPDX-License-Identifier: Apache-2.0
"""Disk full and freed again on a small tmpfs (T11): nothing acknowledged is lost, no restart, reads go on.

Needs the right to mount; without it the tests skip and say so.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness import soak
from tests.harness.history import FinalLog, History, Send, check
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient, simple_batch
from tests.harness.simulation.clients import records_in
from tests.harness.waiting import poll, wait_until

StartNode = Callable[..., NodeProcess]
TOPIC = "filling"
SIZE_MIB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        leave_out("small disks", f"no right to mount a tmpfs: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


def fill(path: Path) -> None:
    """Takes every byte that is left, past whatever the node keeps in reserve."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - it ends the loop


class Writer:
    """One record per request; what became of each goes to the history."""

    def __init__(self, bootstrap: str) -> None:
        self.history = History()
        self._client = RawClient(bootstrap, timeout_s=30)
        self._numbers = 0

    def send(self, size: int = 20_000) -> ErrorCode:
        value = f"{self._numbers}-".encode() + os.urandom(size)
        self._numbers += 1
        partition = TopicPartition(TOPIC, 0)
        send = self.history.sent(Send(producer="writer", partition=partition, value=value, durable=True))
        code, offset = self._client.produce(TOPIC, simple_batch(value))
        if code is ErrorCode.none:
            self.history.ended(send, "ok", offset)
        return code

    def send_until(self, wanted: Callable[[ErrorCode], bool], *, within_s: float = 30) -> None:
        code = poll(self.send, wanted, timeout_s=within_s, poll_s=0.002)
        assert wanted(code), f"still {code.name}"


def read_all(bootstrap: str) -> FinalLog:
    records: list[tuple[int, bytes]] = []
    with RawClient(bootstrap, timeout_s=30) as client:
        end = client.end_offset(TOPIC)
        while len(records) < end:
            data = client.fetch(TOPIC, len(records), max_bytes=10 << 20)
            records += [(r.offset, r.value or b"") for r in records_in(data) if r.offset >= len(records)]
    return FinalLog(records=records)


def fill_and_free(start_node: StartNode, disk: Path, cycles: int) -> dict[str, object]:
    node = start_node(directory=disk / "node")
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC)
    writer = Writer(node.bootstrap)
    pid = node.pid
    for cycle in range(cycles):
        for _ in range(20):
            assert writer.send() is ErrorCode.none
        fill(disk / "filler")
        writer.send_until(lambda code: code is ErrorCode.kafka_storage_error)
        final = {TopicPartition(TOPIC, 0): read_all(node.bootstrap)}
        assert check(writer.history, final) == [], f"while full, cycle {cycle}"
        (disk / "filler").unlink()
        writer.send_until(lambda code: code is ErrorCode.none)
    final = {TopicPartition(TOPIC, 0): read_all(node.bootstrap)}
    assert check(writer.history, final) == []
    assert node.alive
    assert node.pid == pid
    assert node.stop() == 0
    node.start()
    assert check(writer.history, {TopicPartition(TOPIC, 0): read_all(node.bootstrap)}) == []
    return {"cycles": cycles, "sends": writer.history.outcomes()}


def test_t11_a_full_disk_loses_nothing_and_needs_no_restart(start_node: StartNode, small_disk: Path) -> None:
    fill_and_free(start_node, small_disk, cycles=2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_t11_a_disk_filled_and_freed_ten_times(start_node: StartNode, small_disk: Path) -> None:
    started = time.monotonic()
    soak.write_report("T11", started, fill_and_free(start_node, small_disk, cycles=10))


def test_a_node_killed_on_a_full_disk_starts_again_and_serves(
    start_node: StartNode, small_disk: Path
) -> None:
    node = start_node(directory=small_disk / "node")
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC)
    writer = Writer(node.bootstrap)
    for _ in range(20):
        assert writer.send() is ErrorCode.none
    fill(small_disk / "filler")
    writer.send_until(lambda code: code is ErrorCode.kafka_storage_error)
    node.kill()
    (small_disk / "filler").unlink()
    node.start()
    writer = Writer(node.bootstrap)
    writer.send_until(lambda code: code is ErrorCode.none)


def test_producing_stops_before_the_disk_is_full_and_topics_can_still_be_deleted(
    start_node: StartNode, small_disk: Path
) -> None:
    """R25: the reserve is what tidying up lives on."""
    node = start_node({"headrace.disk.reserve.bytes": str(20 << 20)}, directory=small_disk / "node")
    with RawClient(node.bootstrap, timeout_s=30) as client:
        client.create_topic(TOPIC, file_delete_delay_ms="0")
        code, _ = poll(
            lambda: client.produce(TOPIC, simple_batch(os.urandom(900_000))),
            lambda answer: answer[0] is not ErrorCode.none,
            timeout_s=60,
            poll_s=0.08,  # slowly: the node looks at its disk once a second
        )
        assert code is ErrorCode.kafka_storage_error
        usage = os.statvfs(small_disk)
        assert usage.f_bavail * usage.f_frsize > 5 << 20
        client.call(20, 3, {"topic_names": [TOPIC], "timeout": 10_000})
        client.create_topic("next")
        wait_until(
            lambda: client.produce("next", simple_batch(b"room"))[0] is ErrorCode.none,
            "room for a new topic's records",
        )
