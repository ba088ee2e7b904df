# SPDX-License-Identifier: Apache-2.0
"""Replies leave whole and in order, whatever the client, the disk and the page cache do; files are let go."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.network.send_queue import SENDFILE_TURN_BYTES, TURN_BYTES, Part, SendQueue
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.log_slice import LogSlice
from headrace.realworld import RealFiles
from headrace.testing.memory_files import MemoryFiles
from tests.harness.broker.fake_clients import FakeTasks, FakeTransport, slice_of

ENOUGH = 300 * 1024
"""More than an send_queue hands to its transport at a time."""


class Bench:
    """An send_queue on a transport, with files in memory."""

    def __init__(self, transport: FakeTransport | None = None) -> None:
        self.tasks = FakeTasks()
        self.transport = transport or FakeTransport()
        self.transport.protocol = self  # type: ignore[assignment]
        self.rooms = 0
        self.files = MemoryFiles()
        self.pool = DescriptorPool(self.files, 16)
        self.send_queue = SendQueue(
            self.transport,
            self.tasks,  # type: ignore[arg-type]
            self.tasks.call_soon,
            self.on_room,
        )

    def on_room(self) -> None:
        assert not self.send_queue.congested
        self.rooms += 1

    def pause_writing(self) -> None:
        self.send_queue.pause_writing()

    def resume_writing(self) -> None:
        self.send_queue.resume_writing()

    def slice_of(self, data: bytes, name: str = "a.log") -> LogSlice:
        return slice_of(self.files, self.pool, data, name)


def pattern(size: int) -> bytes:
    return bytes(range(251)) * (size // 251 + 1)


def test_bytes_and_file_ranges_leave_in_order() -> None:
    bench = Bench()
    small, large = pattern(100), pattern(ENOUGH)
    bench.send_queue.send([b"<", bench.slice_of(small), b"|", bench.slice_of(large, "b.log"), b">"])
    bench.send_queue.send([b"next"])
    bench.tasks.run_soon()
    assert bench.transport.sent == b"<" + small + b"|" + large + b">next"
    assert bench.pool.pinned_count == 0
    assert not bench.send_queue.congested


def test_small_ranges_leave_in_one_write_with_the_bytes_around_them() -> None:
    bench = Bench()
    writes: list[bytes] = []
    bench.transport.write = lambda data: writes.append(bytes(data))  # type: ignore[method-assign]
    parts: list[Part] = []
    for number in range(50):
        parts += [b"<%d" % number, bench.slice_of(pattern(1000 + number), f"{number}.log")]
    bench.send_queue.send([*parts, b">"])
    assert writes == [b"".join(b"<%d" % number + pattern(1000 + number) for number in range(50)) + b">"]
    assert bench.pool.pinned_count == 0


def test_many_small_ranges_leave_others_their_turn() -> None:
    bench = Bench()
    data = pattern(30_000)[:30_000]
    bench.send_queue.send([bench.slice_of(data, f"{number}.log") for number in range(30)])
    assert len(data) < len(bench.transport.sent) < TURN_BYTES + len(data)
    bench.tasks.run_soon()
    assert bench.transport.sent == data * 30
    assert bench.pool.pinned_count == 0


def test_a_small_cold_range_between_others_is_read_on_the_thread() -> None:
    async def run() -> None:
        bench = Bench()
        ranges = [bench.slice_of(b"%d" % number * 100, f"{number}.log") for number in range(3)]
        bench.files.cold_names.add("1.log")
        bench.send_queue.send([b"<", ranges[0], b"|", ranges[1], b"|", ranges[2], b">"])
        assert b"1" not in bench.transport.sent
        await bench.tasks.run_jobs()
        assert bench.transport.sent == b"<" + b"0" * 100 + b"|" + b"1" * 100 + b"|" + b"2" * 100 + b">"
        assert bench.pool.pinned_count == 0

    asyncio.run(run())


def test_of_a_range_only_a_little_is_read_ahead_of_a_client_that_does_not_read() -> None:
    bench = Bench()
    bench.transport.room = 0
    data = pattern(20 << 20)
    bench.send_queue.send([b"<", bench.slice_of(data), b">"])
    bench.send_queue.send([b"next"])
    assert len(bench.transport.buffered) <= 2 * 256 * 1024 + 1
    assert bench.send_queue.congested
    assert bench.rooms == 0
    bench.transport.client_reads()
    bench.tasks.run_soon()
    assert bench.transport.sent == b"<" + data + b">next"
    assert bench.pool.pinned_count == 0
    assert bench.rooms == 1


def test_a_long_reply_without_a_descriptor_leaves_others_their_turn() -> None:
    bench = Bench()
    data = pattern(3 << 20)
    bench.send_queue.send([bench.slice_of(data)])
    assert len(bench.transport.sent) == TURN_BYTES
    bench.tasks.run_soon()
    assert bench.transport.sent == data


def test_the_callback_comes_when_the_queue_is_empty_and_not_before() -> None:
    bench = Bench()
    bench.transport.room = 0
    bench.send_queue.send([bytes(ENOUGH)])
    assert bench.send_queue.congested
    bench.transport.client_reads(1000)
    assert bench.rooms == 0
    bench.transport.client_reads()
    assert bench.rooms == 1


def test_a_closed_send_queue_lets_its_files_go_and_takes_no_more() -> None:
    bench = Bench()
    bench.transport.room = 0
    bench.send_queue.send([bench.slice_of(pattern(ENOUGH)), b"-", bench.slice_of(pattern(ENOUGH), "b.log")])
    assert bench.pool.pinned_count > 0
    bench.send_queue.close()
    bench.send_queue.send([bench.slice_of(b"late", "c.log")])
    bench.transport.client_reads()
    assert bench.pool.pinned_count == 0


# Cold ranges


def test_a_cold_range_is_read_on_the_thread_and_nothing_overtakes_it() -> None:
    async def run() -> None:
        bench = Bench()
        data = pattern(3 << 20)
        cold = bench.slice_of(data)
        bench.files.cold_names.add("a.log")
        bench.send_queue.send([b"<", cold, b">"])
        bench.send_queue.send([b"next"])
        assert bench.transport.sent in (b"<", b"")
        bench.files.cold_names.clear()
        await bench.tasks.run_jobs()
        bench.tasks.run_soon()
        assert bench.transport.sent == b"<" + data + b">next"
        assert bench.pool.pinned_count == 0

    asyncio.run(run())


def test_a_range_that_never_stays_in_the_page_cache_is_sent_all_the_same() -> None:
    async def run() -> None:
        bench = Bench()
        data = pattern(5 << 20)
        cold = bench.slice_of(data)
        bench.files.cold_names.add("a.log")
        bench.send_queue.send([cold])
        await bench.tasks.run_jobs()
        assert bench.transport.sent == data

    asyncio.run(run())


def test_the_end_of_a_connection_during_a_cold_read_waits_for_the_thread_with_the_file() -> None:
    async def run() -> None:
        bench = Bench()
        cold = bench.slice_of(pattern(ENOUGH))
        bench.files.cold_names.add("a.log")
        bench.send_queue.send([b"<", cold, b">"])
        bench.send_queue.close()
        assert bench.pool.pinned_count == 1
        await bench.tasks.run_jobs()
        assert bench.pool.pinned_count == 0

    asyncio.run(run())


def test_a_cold_read_that_fails_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        bench = Bench()
        cold = bench.slice_of(pattern(ENOUGH))
        bench.files.cold_names.add("a.log")
        bench.files.errors["pread"] = OSError(errno.EIO, "bad sector")
        bench.send_queue.send([b"<", cold, b">"])
        await bench.tasks.run_jobs()
        assert bench.transport.aborted
        assert bench.pool.pinned_count == 0

    asyncio.run(run())
    (line,) = caplog.messages
    assert "bad sector" in line


# Files that are not what they should be


@pytest.mark.parametrize("size", [100, ENOUGH])
def test_a_file_that_is_too_short_ends_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    part = bench.slice_of(pattern(size))
    part.file.truncate(size // 2)
    bench.send_queue.send([b"<", part, b">"])
    assert bench.transport.aborted
    assert b">" not in bytes(bench.transport.sent)[-1:]
    assert bench.pool.pinned_count == 0
    (line,) = caplog.messages
    assert "a.log" in line


def test_a_read_error_closes_the_connection_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    part = bench.slice_of(pattern(100))
    bench.files.errors["pread"] = OSError(errno.EIO, "bad sector")
    bench.send_queue.send([b"<", part, b">"])
    assert bench.transport.aborted
    assert bench.send_queue.congested  # nothing may be started for a client that is gone
    (line,) = caplog.messages
    assert "bad sector" in line


# Past the transport


class SocketTransport(FakeTransport):
    """On one end of a socket pair, so that `sendfile` has a descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.near if name == "socket" else super().get_extra_info(name, default)

    def _send(self) -> None:
        try:
            while self.buffered:
                del self.buffered[: self.near.send(self.buffered)]
        except BlockingIOError:
            pass

    def receive_all(self) -> bytes:
        got = bytearray()
        while True:
            try:
                got += self.far.recv(1 << 20)
            except BlockingIOError:
                before = len(got)
                self.client_reads(0)
                try:
                    got += self.far.recv(1 << 20)
                except BlockingIOError:
                    assert before == len(got)
                    return bytes(got)


@pytest.fixture
def on_socket() -> Iterator[Bench]:
    transport = SocketTransport()
    bench = Bench(transport)
    yield bench
    bench.send_queue.close()
    transport.near.close()
    transport.far.close()


def real_slice(tmp_path: Path, data: bytes) -> tuple[DescriptorPool, LogSlice]:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    pool = DescriptorPool(RealFiles(), 16)
    return pool, LogSlice(pool.file(path, "read"), 0, len(data), 1)


def test_a_large_range_goes_past_the_transport_and_arrives_whole(on_socket: Bench, tmp_path: Path) -> None:
    data = pattern(6 << 20)
    pool, part = real_slice(tmp_path, data)
    on_socket.send_queue.send([b"before", part, b"after"])
    on_socket.send_queue.send([b"next"])
    got = b""
    for _ in range(100):
        assert isinstance(on_socket.transport, SocketTransport)
        got += on_socket.transport.receive_all()
        on_socket.tasks.run_soon()
    assert got == b"before" + data + b"afternext"
    assert pool.pinned_count == 0
    assert on_socket.rooms == 1


@pytest.mark.timeout(10)
def test_a_client_that_goes_away_while_a_file_is_sent_ends_its_connection_and_nothing_else(
    on_socket: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(on_socket.transport, SocketTransport)
    pool, part = real_slice(tmp_path, pattern(6 << 20))
    on_socket.transport.far.close()
    on_socket.send_queue.send([b"before", part, b"after"])
    assert on_socket.transport.aborted
    assert pool.pinned_count == 0
    assert caplog.messages == []


def test_a_reader_that_keeps_up_does_not_keep_the_others_waiting(
    on_socket: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def sendfile(out: int, source: int, position: int, count: int) -> int:
        sizes.append(count)
        return count

    monkeypatch.setattr(os, "sendfile", sendfile)
    pool, part = real_slice(tmp_path, bytes(5 * SENDFILE_TURN_BYTES))
    on_socket.send_queue.send([part, b"after"])
    turns = 1
    while on_socket.tasks.soon:
        assert sum(sizes) == turns * SENDFILE_TURN_BYTES
        turns += 1
        on_socket.tasks.soon.pop(0)[0]()
    assert turns == 5
    assert sum(sizes) == 5 * SENDFILE_TURN_BYTES
    assert pool.pinned_count == 0
