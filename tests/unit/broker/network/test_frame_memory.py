# SPDX-License-Identifier: Apache-2.0
"""The memory that requests share: bounded, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.metrics import Metrics
from headrace.broker.network.frame_memory import SLOWEST_BYTES_PER_TICK, STALLED_TICKS, FrameMemory
from headrace.realworld import RealClock


class Client:
    """Wants memory in steps until it has all, then gives it back."""

    def __init__(self, memory: FrameMemory, steps: list[int], address: str = "10.0.0.1") -> None:
        self.address = address
        self.awaited_bytes: int | None = 0
        self.has_memory_of_its_own = False
        self.refused = ""
        self.memory = memory
        self.steps = steps
        self.held = 0
        self.done = False
        self.on_done: Callable[[], None] = lambda: None

    def go_on(self) -> None:
        while self.steps:
            if not self.memory.reserve(self, self.steps[0]):
                return
            self.held += self.steps.pop(0)
        self.done = True
        self.on_done()
        self.end()

    def end(self) -> None:
        self.memory.give_back(self, self.held)
        self.held = 0
        self.memory.frame_done(self)

    def refuse(self, reason: str) -> None:
        self.refused = reason
        self.end()

    def memory_returned(self) -> None:
        self.go_on()


class Bench:
    def __init__(self, limit: int) -> None:
        self.soon: list[Callable[[], None]] = []
        self.metrics = Metrics(RealClock())
        self.drops = 0
        self.memory = FrameMemory(self.metrics, limit, self.soon.append, self._drop)

    def _drop(self) -> None:
        self.drops += 1

    def run_soon(self) -> None:
        while self.soon:
            self.soon.pop(0)()


def test_frames_that_each_hold_a_part_of_the_memory_do_not_wait_for_each_other() -> None:
    bench = Bench(limit=100)
    clients = [Client(bench.memory, [25, 25, 50]) for _ in range(10)]
    for client in clients:
        if bench.memory.reserve(client, client.steps[0]):
            client.held = client.steps.pop(0)
    most = 0
    for client in clients:
        if client.held:
            client.go_on()
        most = max(most, bench.metrics.frames_bytes)
    bench.run_soon()
    assert all(client.done for client in clients)
    assert bench.metrics.frames_bytes == 0
    assert most <= 100 + 100


def test_a_frame_above_the_limit_gets_memory_alone() -> None:
    bench = Bench(limit=100)
    giant, small = Client(bench.memory, [500]), Client(bench.memory, [10])
    assert bench.memory.reserve(giant, 500)
    assert not bench.memory.reserve(small, 10)
    bench.memory.give_back(giant, 500)
    bench.memory.frame_done(giant)
    bench.run_soon()
    assert small.done


def test_a_closed_holder_does_not_block_the_others() -> None:
    bench = Bench(limit=100)
    holder, gone, waiting = (Client(bench.memory, [90], address) for address in "abc")
    assert bench.memory.reserve(holder, 90)
    other = Client(bench.memory, [], "d")
    assert bench.memory.reserve(other, 90)  # the one that may go beyond the limit
    gone.go_on()
    waiting.go_on()
    bench.memory.frame_done(gone)
    bench.memory.give_back(other, 90)
    bench.memory.frame_done(other)
    bench.run_soon()
    assert waiting.done
    assert not gone.done


def test_idle_buffers_are_called_back_once_and_not_by_everyone_who_waits() -> None:
    bench = Bench(limit=100)
    assert bench.memory.reserve(Client(bench.memory, [], "a"), 100)
    assert bench.memory.reserve(Client(bench.memory, [], "b"), 100)
    for _ in range(50):
        Client(bench.memory, [10]).go_on()
    assert bench.drops <= 3


def test_received_bytes_count_even_above_the_limit() -> None:
    bench = Bench(limit=100)
    client = Client(bench.memory, [])
    bench.memory.take(client, 150)
    assert bench.memory.used_up
    assert bench.memory.short
    bench.memory.give_back(client, 150)
    assert not bench.memory.short


# Addresses


def _holding(bench: Bench, byte_count: int, address: str) -> Client:
    """A client that has so much and does not go on by itself."""
    client = Client(bench.memory, [], address)
    assert bench.memory.reserve(client, byte_count)
    client.held = byte_count
    return client


def _waiting(bench: Bench, byte_count: int, address: str) -> Client:
    client = Client(bench.memory, [byte_count], address)
    client.go_on()
    assert not client.done
    return client


def test_one_address_leaves_a_quarter_of_the_memory_to_others() -> None:
    bench = Bench(limit=100)
    for _ in range(7):
        _holding(bench, 10, "greedy")
    _holding(bench, 10, "greedy")  # one frame of an address may exceed its share
    _waiting(bench, 10, "greedy")
    other = Client(bench.memory, [20], "other")
    other.go_on()
    assert other.done


def test_memory_goes_first_to_the_address_that_holds_least() -> None:
    bench = Bench(limit=100)
    first, _ = _holding(bench, 50, "greedy"), _holding(bench, 10, "greedy")
    _holding(bench, 30, "other")
    _holding(bench, 20, "third")  # the one that may go beyond the limit
    of_greedy = [_waiting(bench, 35, "greedy") for _ in range(3)]
    of_new = _waiting(bench, 35, "new")
    order: list[str] = []
    for client in (*of_greedy, of_new):
        client.on_done = lambda address=client.address: order.append(address)
    first.end()
    bench.run_soon()
    assert order[0] == "new"


def test_who_waits_longest_at_an_address_is_first_even_after_a_vain_attempt() -> None:
    bench = Bench(limit=100)
    holder = _holding(bench, 60, "a")
    small = _holding(bench, 10, "a")
    _holding(bench, 35, "b")
    waiting = [_waiting(bench, 60, "a") for _ in range(3)]
    order: list[int] = []
    for number, client in enumerate(waiting):
        client.on_done = lambda number=number: order.append(number)
    small.end()
    bench.run_soon()
    assert order == []
    holder.end()
    bench.run_soon()
    assert order[0] == 0


def test_many_waiting_clients_are_served_in_several_turns() -> None:
    bench = Bench(limit=100)
    holder = _holding(bench, 100, "a")
    other = _holding(bench, 100, "b")
    waiting = [_waiting(bench, 10, f"c{number}") for number in range(500)]
    holder.end()
    other.end()
    bench.run_soon()
    assert all(client.done for client in waiting)
    assert bench.metrics.frames_bytes == 0


# Stalled clients


def _ticks(bench: Bench, count: int = 1) -> None:
    for _ in range(count):
        bench.memory.next_tick()
        bench.run_soon()


def test_clients_that_make_no_progress_are_closed_when_others_wait_for_memory() -> None:
    bench = Bench(limit=100)
    stalled = [_holding(bench, 50, "a"), _holding(bench, 50, "b")]
    _holding(bench, 1, "c")
    waiting = _waiting(bench, 50, "d")
    _ticks(bench, STALLED_TICKS + 1)
    assert all("others wait for memory" in client.refused for client in stalled)
    assert waiting.done


def test_nobody_is_closed_while_nobody_waits() -> None:
    bench = Bench(limit=100)
    clients = [_holding(bench, 50, "a"), _holding(bench, 50, "b")]
    _ticks(bench, 20)
    assert not any(client.refused for client in clients)


def test_clients_that_send_or_read_or_wait_for_the_node_are_not_stalled() -> None:
    bench = Bench(limit=100)
    moving, ours, trickling = (_holding(bench, 50, address) for address in "abc")
    ours.awaited_bytes = None
    _waiting(bench, 50, "d")
    for _ in range(10):
        assert moving.awaited_bytes is not None
        assert trickling.awaited_bytes is not None
        moving.awaited_bytes += SLOWEST_BYTES_PER_TICK
        trickling.awaited_bytes += 1
        _ticks(bench)
    assert not moving.refused
    assert not ours.refused
    assert trickling.refused


def test_another_node_does_not_wait_for_memory_that_clients_hold() -> None:
    bench = Bench(100)
    client = Client(bench.memory, [100])
    client.go_on()
    node = Client(bench.memory, [80])
    node.has_memory_of_its_own = True
    node.go_on()
    assert node.done
