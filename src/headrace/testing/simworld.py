# SPDX-License-Identifier: Apache-2.0
"""The simulated World: virtual time, in-memory network and disks, seeded randomness, inline threads.

A `Simulation` owns the loop, the network and the machines; `start_process` returns the World of one process;
`kill` and `cut_power` end it. The same seed gives the same run. Read next: simloop.py,
tests/harness/simulation/faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from headrace.errors import ConfigError
from headrace.testing.memory_files import MemoryFiles
from headrace.testing.simloop import Process, SimLoop, SimulationError, run_on_thread
from headrace.testing.simnetwork import NetworkProfile, SimListener, SimNetwork
from headrace.world import File, OnSynced, Timer, TlsContext, TlsMaterial, write_all

T = TypeVar("T")

_WALL_START_MS = 1_700_000_000_000
_UPTIME_AT_START_S = 10.0
DATA_DIRECTORY = Path("/data")
"""Exists and is synced on every machine."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkProfile:
    """Duration of a job on a thread or in the worker: until it runs, and until its result is known."""

    least_ms: float = 0.05
    most_ms: float = 4.0
    slow_probability: float = 0.02
    slow_ms: float = 200.0

    def draw_s(self, random: Random) -> float:
        if random.random() < self.slow_probability:
            return random.uniform(self.most_ms, self.slow_ms) / 1000
        return random.uniform(self.least_ms, self.most_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockProfile:
    """Clock behaviour of a process: time passes between two readings, and timers fire early.

    uvloop rounds both the delay and the start time to milliseconds, so a timer fires up to 1.5 ms early.
    """

    pass_probability: float = 0.1
    pass_ms: float = 1.0
    preempted_probability: float = 0.002
    preempted_ms: float = 25.0
    early_ms: float = 1.5

    def draw_passed_s(self, random: Random) -> float:
        chance = random.random()
        if chance < self.preempted_probability:
            return random.uniform(self.pass_ms, self.preempted_ms) / 1000
        return random.uniform(0, self.pass_ms) / 1000 if chance < self.pass_probability else 0.0

    def draw_early_s(self, random: Random) -> float:
        return random.uniform(0, self.early_ms) / 1000


EXACT = ClockProfile(pass_probability=0, preempted_probability=0, early_ms=0)
"""Time advances only between callbacks and timers are exact: for tests of exact times."""


class Machine:
    """A host: a disk and clocks that survive its processes; it runs one process at a time."""

    def __init__(self, name: str, loop: SimLoop, random: Random) -> None:
        self.name = name
        self.loop = loop
        self._random = random
        self.work = WorkProfile()
        self.wall_jump_ms = 0
        self._boots = 0
        self._booted_at = 0.0
        self.replace_disk()

    def replace_disk(self) -> None:
        """By an empty one, while the machine is off."""
        self.files = MemoryFiles(random=self._random)
        for directory in (_BOOT_ID.parent, DATA_DIRECTORY):
            self.files.make_directory(directory)
            for parent in directory.parents:
                self.files.sync_directory(parent)
        self.files.sync_directory(Path())
        self.boot()

    def boot(self) -> None:
        """Restarts the monotonic clock and generates a new boot id."""
        self._boots += 1
        self._booted_at = self.loop.time() - _UPTIME_AT_START_S
        boot_id = self.files.open(_BOOT_ID, "create")
        write_all(boot_id, f"{self.name}-{self._boots:08}\n".encode(), 0)
        boot_id.fsync()  # then the next one needs no further room, even on a full disk
        boot_id.close()
        self.files.sync_directory(_BOOT_ID.parent)

    def monotonic(self) -> float:
        return self.loop.time() - self._booted_at

    def wall_ms(self) -> int:
        return _WALL_START_MS + int(self.loop.time() * 1000) + self.wall_jump_ms

    def process_died(self) -> None:
        """What the kernel does after a process died: closes descriptors and releases locks."""
        self.files.locked.clear()
        self.files.open_files = 0


class SimClock:
    """The clocks of a machine for one process; reading them may take time."""

    def __init__(self, machine: Machine, profile: ClockProfile, random: Random) -> None:
        self._machine = machine
        self._profile = profile
        self._random = random

    def monotonic(self) -> float:
        self._pass_time()
        return self._machine.monotonic()

    def wall_ms(self) -> int:
        self._pass_time()
        return self._machine.wall_ms()

    def timer_s(self, delay_s: float) -> float:
        """The actual delay of a timer; a delay of zero stays exact."""
        return max(0.0, delay_s - self._profile.draw_early_s(self._random)) if delay_s > 0 else delay_s

    def _pass_time(self) -> None:
        self._machine.loop.spend(self._profile.draw_passed_s(self._random))


class SimThread:
    """Runs its jobs in order. A crash may come before or after the effect of a job."""

    def __init__(self, tasks: SimTasks) -> None:
        self._tasks = tasks
        self._free_at = 0.0

    def run(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        tasks = self._tasks
        future: asyncio.Future[T] = tasks.loop.create_future()
        start = max(self._free_at, tasks.loop.time()) + tasks.machine.work.draw_s(tasks.random)
        self._free_at = start + tasks.machine.work.draw_s(tasks.random)
        context = tasks.process.context()
        tasks.loop.call_at(start, self._act, future, self._free_at, function, args, context=context)
        return future

    @run_on_thread
    def _act(
        self, future: asyncio.Future[T], end: float, function: Callable[..., T], args: tuple[Any, ...]
    ) -> None:
        report: Callable[..., None]
        outcome: T | Exception
        try:
            report, outcome = _report_result, function(*args)
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the job
            report, outcome = _report_error, error
        self._tasks.loop.call_at(end, report, future, outcome, context=self._tasks.process.context())

    def close(self) -> None:
        pass


class SimFileSync:
    """Each file goes to the thread that is free first. A crash may come before or after an fsync."""

    def __init__(self, tasks: SimTasks, threads: int, capacity: int) -> None:
        self._tasks = tasks
        self._free_at = [0.0] * threads
        self._room = capacity

    def sync(self, file: File, done: OnSynced) -> None:
        tasks, free_at = self._tasks, self._free_at
        if not self._room:
            raise SimulationError("more files wait for their fsync than there is room for")
        self._room -= 1
        thread = free_at.index(min(free_at))
        began = max(free_at[thread], tasks.loop.time())
        act_at = began + tasks.machine.work.draw_s(tasks.random)
        end = free_at[thread] = act_at + tasks.machine.work.draw_s(tasks.random)
        told = partial(self._report, done, end - began)
        tasks.loop.call_at(act_at, self._act, file, end, told, context=tasks.process.context())

    def _act(self, file: File, end: float, told: Callable[[OSError | None], None]) -> None:
        failure: OSError | None = None
        try:
            file.fsync()
        except OSError as error:
            failure = error
        context = self._tasks.process.context()
        self._tasks.loop.call_at(end, told, failure, context=context)

    def _report(self, done: OnSynced, took_s: float, failure: OSError | None) -> None:
        self._room += 1
        done(failure, took_s)


def _report_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _report_error(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SimTasks:
    def __init__(
        self, loop: SimLoop, process: Process, machine: Machine, clock: SimClock, random: Random
    ) -> None:
        self.loop = loop
        self.process = process
        self.machine = machine
        self.random = random
        self._clock = clock
        self._worker = SimThread(self)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = self.loop.create_task(coroutine, name=name, context=self.process.context())
        task.add_done_callback(self.loop.note_failure)
        return task

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon(callback, *args, context=self.process.context())

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        delay_s = self._clock.timer_s(delay_s)
        return self.loop.call_later(delay_s, callback, *args, context=self.process.context())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(self._clock.timer_s(seconds))

    def thread(self, name: str) -> SimThread:
        return SimThread(self)

    def file_sync(self, *, threads: int, capacity: int) -> SimFileSync:
        return SimFileSync(self, threads, capacity)

    def bulk(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._worker.run(function, *args)

    def compute(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Later calls may end before earlier ones, as in several threads."""
        return SimThread(self).run(function, *args)

    async def close(self) -> None:
        pass


class ProcessNetwork:
    """The network for one process."""

    def __init__(self, network: SimNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    def server_tls(self, material: TlsMaterial) -> TlsContext:
        raise ConfigError("there is no TLS in the simulation")

    client_tls = server_tls

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: Callable[[], TlsContext] | None = None,
    ) -> SimListener:
        assert tls is None, "there is no TLS in the simulation"
        return self._network.open_listener(self._process, factory, host, port)

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: TlsContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert tls is None, "there is no TLS in the simulation"
        return await self._network.open_connection(self._process, factory, host, port)

    async def https_get(self, url: str, *, timeout_s: float, max_bytes: int) -> bytes:
        raise OSError(f"there is no page at {url} in a simulation")


class SimWorld:
    """headrace.world.World of one simulated process."""

    def __init__(self, simulation: Simulation, process: Process, machine: Machine) -> None:
        self.process = process
        self.machine = machine
        self.clock = SimClock(machine, simulation.clock, simulation.random_for(f"clock {process.name}"))
        self.random = simulation.random_for(f"process {process.name}")
        self.files = machine.files
        self.network = ProcessNetwork(simulation.network, process)
        work_random = simulation.random_for(f"work {process.name}")
        self.tasks = SimTasks(simulation.loop, process, machine, self.clock, work_random)


class Simulation:
    """One seeded run. Use it as a context manager: leaving it kills every process."""

    def __init__(
        self,
        seed: int,
        *,
        network: NetworkProfile | None = None,
        clock: ClockProfile = EXACT,
        max_steps: int = 2_000_000,
    ) -> None:
        self.seed = seed
        self.clock = clock
        self.loop = SimLoop(self.random_for("order"), max_steps=max_steps)  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, self.random_for("network"), network or NetworkProfile())
        self.machines: dict[str, Machine] = {}
        self._started = 0
        self._worlds: dict[Process, SimWorld] = {}

    def random_for(self, purpose: str) -> Random:
        """A random stream per purpose, so that an extra draw does not shift the other streams."""
        return Random(f"{self.seed} {purpose}")

    def machine(self, name: str) -> Machine:
        if name not in self.machines:
            self.machines[name] = Machine(name, self.loop, self.random_for(f"disk {name}"))
        return self.machines[name]

    def start_process(self, machine_name: str) -> SimWorld:
        self._started += 1
        process = Process(f"{machine_name}#{self._started}", machine_name)
        self.loop.note(f"start {process.name}")
        world = SimWorld(self, process, self.machine(machine_name))
        self._worlds[process] = world
        return world

    def kill(self, world: SimWorld) -> None:
        """SIGKILL: no code runs, connections are reset, locks are released; the page cache survives."""
        self.loop.note(f"kill {world.process.name}")
        self.loop.kill(world.process)
        world.machine.process_died()
        self.network.process_died(world.process)
        self._worlds.pop(world.process, None)

    def cut_power(self, machine_name: str) -> None:
        """Power failure: kills all processes of the machine and loses what was not synced."""
        machine = self.machine(machine_name)
        self.network.host_lost_power(machine_name)
        for world in [world for world in self._worlds.values() if world.machine is machine]:
            self.kill(world)
        machine.files.crash()
        machine.boot()

    def replace_disk(self, machine_name: str) -> None:
        """The machine is switched off, and comes back with an empty disk."""
        self.cut_power(machine_name)
        self.machine(machine_name).replace_disk()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine of the test in its own process until it ends."""
        context = self.start_process("driver").process.context()
        return self.loop.run_until_complete(self.loop.create_task(coroutine, name="driver", context=context))

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        for process in list(self._worlds):
            self.loop.kill(process)
        unhandled = [*self.loop.unhandled, *self.loop.unretrieved_failures()]
        self.loop.close()
        if unhandled and error_type is None:
            raise SimulationError(f"unhandled exceptions: {unhandled}")
