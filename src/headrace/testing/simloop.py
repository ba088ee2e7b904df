# SPDX-License-Identifier: Apache-2.0
"""An asyncio event loop on virtual time that runs ready callbacks in a seeded order.

asyncio is not patched: its tasks and futures run on another loop. All code runs in a `Process`, which can be
killed (none of its code runs afterwards, as after SIGKILL) or paused (SIGSTOP).
Read next: simworld.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import inspect
import weakref
from asyncio.events import AbstractEventLoop, Handle, TimerHandle
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
_CLOSING_TRIES = 10

_process: ContextVar[Process | None] = ContextVar("simulated process", default=None)


class SimulationError(Exception):
    """The simulation cannot continue: nothing is left to run, or the step limit is reached."""


class Process:
    """A simulated process: all callbacks, tasks and timers started from its context."""

    def __init__(self, name: str, host: str = "") -> None:
        self.name = name
        self.host = host or name
        """Name of its machine in the network."""
        self.alive = True
        self.paused = False
        self.stalled = False
        """Its event loop is blocked; its threads run on."""
        self.held: list[Handle] = []
        """Callbacks that became due while it was paused or stalled."""
        self.tasks: weakref.WeakSet[SimTask[Any]] = weakref.WeakSet()

    def context(self) -> Context:
        """A context whose callbacks and tasks belong to this process."""
        context = copy_context()
        context.run(_process.set, self)
        return context

    def __repr__(self) -> str:
        return f"<Process {self.name}{'' if self.alive else ' (dead)'}>"


class SimTask(asyncio.Task[T]):
    """Hashed by its creation number, so that sets of tasks iterate in the same order in every run."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(asyncio.Future[T]):
    def __init__(self, *, number: int, loop: AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


def _owner(handle: Handle) -> object:
    """Callbacks of one owner keep their order: connections race, the bytes of one connection do not."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return handle if owner is None else owner


def run_on_thread(function: Callable[..., None]) -> Callable[..., None]:
    """Marks a callback as work of a thread, which a stalled event loop does not hold up."""
    function.__dict__["on_thread"] = True
    return function


def _is_of_a_thread(handle: Handle) -> bool:
    return getattr(handle._callback, "on_thread", False)  # type: ignore[attr-defined]


def _label(handle: Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine: Any = owner.get_coro()
        return str(coroutine.__qualname__)
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def _end_coroutine(coroutine: Any) -> None:
    """Closes the innermost coroutine first; one that awaits during cleanup is closed repeatedly."""
    if inspect.iscoroutine(inner := coroutine.cr_await):
        _end_coroutine(inner)
    for _ in range(_CLOSING_TRIES):
        with contextlib.suppress(BaseException):
            coroutine.close()
            return


class SimLoop(AbstractEventLoop):
    """The event loop. `max_steps` ends a simulation that spins without advancing time."""

    def __init__(self, random: Random, *, max_steps: int = 2_000_000) -> None:
        self._random = random
        self._steps_left = max_steps
        self._now = 0.0
        self._numbers = 0
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._graveyard: list[SimTask[Any]] = []
        self._trace = hashlib.blake2b(digest_size=16)
        self._running = False
        self._closed = False
        self.after_step: Callable[[], None] | None = None
        """Called after each callback to check invariants; an exception ends the run."""
        self.stepped: Process | None = None
        """Process of the last callback."""
        self.unhandled: list[dict[str, Any]] = []
        """What asyncio would have logged: exceptions that were never retrieved."""
        self._failed: list[asyncio.Task[Any]] = []

    # -- time and order ------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def spend(self, seconds: float) -> None:
        """Advances time during a callback, as a blocking disk would."""
        self._now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._next_number(), handle))
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """asyncio's own loops count these; here a cancelled timer is dropped when its time comes."""

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _run_ready(self) -> None:
        self._take_due_timers()
        batch, self._ready = self._ready, []
        if len(batch) > 1:
            batch = self._reordered(batch)
        for handle in batch:
            self._step(handle)

    def _take_due_timers(self) -> None:
        if not self._ready:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if not self._timers:
                raise SimulationError(f"nothing left to run at {self._now:.3f} s of virtual time")
            self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])

    def _reordered(self, batch: list[Handle]) -> list[Handle]:
        turns: dict[int, float] = {}
        return sorted(batch, key=lambda handle: turns.setdefault(id(_owner(handle)), self._random.random()))

    def _step(self, handle: Handle) -> None:
        process = handle._context.get(_process)  # type: ignore[attr-defined]
        if handle.cancelled() or (process is not None and not process.alive):
            return
        if process is not None and (process.paused or (process.stalled and not _is_of_a_thread(handle))):
            process.held.append(handle)
            return
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SimulationError(f"too many steps by {self._now:.3f} s of virtual time: {_label(handle)}")
        self.note(_label(handle))
        handle._run()
        self.stepped = process
        if self.after_step is not None:
            self.after_step()

    # -- trace ---------------------------------------------------------------------------------------------

    def note(self, event: str) -> None:
        """Adds an event to the trace; runs with the same seed have the same trace."""
        self._trace.update(f"{self._now:.9f} {event}\n".encode())

    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    # -- tasks and futures -----------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(number=self._next_number(), loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        context = context or copy_context()
        number = self._next_number()
        task = SimTask(coro, number=number, loop=self, name=name or f"task-{number}", context=context)  # type: ignore[arg-type]
        process = context.get(_process)
        if process is not None:
            process.tasks.add(task)
        return task

    def kill(self, process: Process) -> None:
        """Stops all code of the process. Its coroutines are held until `close`, so no finally block runs."""
        process.alive = False
        for task in process.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._graveyard.append(task)

    def pause(self, process: Process) -> None:
        """SIGSTOP: none of its code runs; clocks continue and its connections stay open."""
        process.paused = True

    def stall(self, process: Process) -> None:
        """Blocks its event loop, as a callback that does not return: only jobs on threads go on."""
        process.stalled = True

    def resume(self, process: Process) -> None:
        """SIGCONT, or the end of a stall: all callbacks that became due are ready at once."""
        process.paused = process.stalled = False
        held, process.held = process.held, []
        self._ready.extend(held)

    # -- running ---------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not task.done():
                self._run_ready()
        finally:
            self._running = False
            asyncio._set_running_loop(None)
        return task.result()

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.unhandled.append(context)

    def note_failure(self, task: asyncio.Task[Any]) -> None:
        """Records failed tasks; asyncio reports them only when they are garbage-collected."""
        if not task.cancelled() and task._exception is not None:
            self._failed.append(task)

    def unretrieved_failures(self) -> list[str]:
        """Failed tasks whose exception was never retrieved."""
        return [f"{task.get_name()}: {task.exception()!r}" for task in self._failed if task._log_traceback]

    def close(self) -> None:
        """Closes the coroutines of killed processes; their finally blocks no longer have any effect."""
        self._closed = True
        for task in self._graveyard:
            _end_coroutine(task.get_coro())
        self._graveyard.clear()
        self._ready.clear()
        self._timers.clear()
