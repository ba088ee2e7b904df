"""The memory that requests share: bounded, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.frame_memory import FrameMemory
from headrace.broker.metrics import Metrics
from headrace.realworld import RealClock


class Client:
    """Wants memory in steps until it has all, then gives it back."""

    def __init__(self, memory: FrameMemory, steps: list[int]) -> None:
        self.memory = memory
        self.steps = steps
        self.held = 0
        self.done = False

    def go_on(self) -> None:
        while self.steps:
            if not self.memory.reserve(self, self.steps[0]):
                return
            self.held += self.steps.pop(0)
        self.done = True
        self.memory.give_back(self.held)
        self.memory.frame_done(self)

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
        assert bench.memory.reserve(client, client.steps[0]) or client in bench.memory._waiting
    most = 0
    for client in clients:
        client.held = 25 if client not in bench.memory._waiting else 0
        client.steps = [25, 50] if client.held else [25, 25, 50]
    for client in clients:
        if client.held:
            client.go_on()
        most = max(most, bench.metrics.frames_bytes)
    bench.run_soon()
    assert all(client.done for client in clients)
    assert bench.metrics.frames_bytes == 0
    assert most <= 100 + 100


def test_whoever_asks_for_more_than_the_limit_gets_it_alone() -> None:
    bench = Bench(limit=100)
    giant, small = Client(bench.memory, [500]), Client(bench.memory, [10])
    assert bench.memory.reserve(giant, 500)
    assert not bench.memory.reserve(small, 10)
    bench.memory.give_back(500)
    bench.memory.frame_done(giant)
    bench.run_soon()
    assert small.done


def test_a_holder_that_is_gone_does_not_stand_in_the_way_of_the_others() -> None:
    bench = Bench(limit=100)
    holder, gone, waiting = (Client(bench.memory, [90]) for _ in range(3))
    assert bench.memory.reserve(holder, 90)
    other = Client(bench.memory, [])
    assert bench.memory.reserve(other, 90)  # the one that may go beyond the limit
    gone.go_on()
    waiting.go_on()
    bench.memory.frame_done(gone)
    bench.memory.give_back(90)
    bench.memory.frame_done(other)
    bench.run_soon()
    assert waiting.done
    assert not gone.done


def test_idle_buffers_are_called_back_once_and_not_by_everyone_who_waits() -> None:
    bench = Bench(limit=100)
    assert bench.memory.reserve(Client(bench.memory, []), 100)
    assert bench.memory.reserve(Client(bench.memory, []), 100)
    for _ in range(50):
        Client(bench.memory, [10]).go_on()
    assert bench.drops <= 3


def test_bytes_that_have_arrived_count_whatever_the_limit_says() -> None:
    bench = Bench(limit=100)
    bench.memory.take(150)
    assert bench.memory.used_up
    assert bench.memory.short
    bench.memory.give_back(150)
    assert not bench.memory.short
