# SPDX-License-Identifier: Apache-2.0
"""A machine driver with small test machines, over a partition whose high watermark the test moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.broker.coordinators.machine_driver import MachineDriver, MachineKind
from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.broker.partition.commit_tracker import AckWaiter
from headrace.errors import ApiError
from headrace.machines.machine import (
    BaseMachine,
    Command,
    Event,
    Question,
    ReplyBody,
    ReplyToken,
    Step,
    TimelineEvent,
    TimerFired,
)
from headrace.testing.simworld import Simulation, SimWorld
from headrace.types import TopicPartition
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.coordinator.record import BatchProducer, CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_record
from headrace.wire.records import read_records

COMMIT_TIMEOUT_MS = 5000


@dataclass(frozen=True, slots=True)
class Do(Event):
    """`what` = write, read, wait (for a later `release`), release, timer, cancel, ask, command, decide (write
    and command), fail, end. `producer`: whose transaction the records belong to."""

    what: str
    token: ReplyToken
    size: int = 1
    producer: BatchProducer | None = None


@dataclass(frozen=True, slots=True)
class Told(Event):
    text: str


@dataclass(frozen=True, slots=True)
class Wrote(CoordinatorRecord):
    text: str
    of: BatchProducer | None = None

    @property
    def producer(self) -> BatchProducer | None:
        return self.of


@dataclass(frozen=True, slots=True)
class Ended(CoordinatorRecord):
    """A transaction marker."""

    committed: bool


@dataclass(frozen=True, slots=True)
class Said(ReplyBody):
    text: str


@dataclass(frozen=True, slots=True)
class Riddle(Question):
    text: str


@dataclass(frozen=True, slots=True)
class Order(Command):
    text: str


class Toy(BaseMachine):
    """Remembers what it wrote; one timer; requests may wait for each other."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.written: list[str] = []
        self.waiting: list[ReplyToken] = []
        self.received: list[str] = []

    @property
    def is_gone(self) -> bool:
        return not self.written and not self.waiting

    def may_write(self, event: Event) -> bool:
        return not (isinstance(event, Do) and event.what in ("read", "wait", "timer"))

    def apply(self, record: CoordinatorRecord) -> None:
        if isinstance(record, Ended):
            self.written.append("committed" if record.committed else "aborted")
            return
        assert isinstance(record, Wrote)
        if record.text == "end":
            self.written.clear()
        else:
            self.written.append(record.text)

    def snapshot(self) -> Any:
        return tuple(self.written)

    def open_tokens(self) -> Iterable[ReplyToken]:
        return self.waiting

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case Do("command" | "decide"):
                self._order(event, step)
            case Do():
                self._do(event, step)
            case TimerFired():
                step.emit(Wrote("fired"))
            case Told(text):
                self.received.append(text)

    def _order(self, event: Do, step: Step) -> None:
        if event.what == "decide":
            step.emit(Wrote("decision"))
        step.command(Order("act"))
        step.reply(event.token, Said("decided"))

    def _do(self, event: Do, step: Step) -> None:
        match event:
            case Do("write"):
                for _ in range(event.size):
                    step.emit(Wrote("x", event.producer))
                step.log_event("wrote")
                step.reply(event.token, Said("written"))
            case Do("read"):
                step.reply(event.token, Said(f"{len(self.written)}"))
            case Do("wait"):
                self.waiting.append(event.token)
            case Do("release"):
                for token in (*self.waiting, event.token):
                    step.reply(token, Said("released"))
                self.waiting.clear()
            case Do("timer"):
                step.set_timer(("t",), event.size)
                step.reply(event.token, Said("set"))
            case Do("cancel"):
                step.cancel_timer(("t",))
                step.reply(event.token, Said("cancelled"))
            case Do("ask"):
                step.ask(Riddle("?"))
                step.reply(event.token, Said("asked"))
            case Do("end"):
                step.emit(Wrote("end"))
                step.reply(event.token, Said("ended"))
            case Do("fail"):
                raise RuntimeError("a defect")


class FakeRole:
    needs_insync = True
    too_few_in_sync = False

    def refusal_before_append(self) -> ApiError | None:
        return ApiError(ErrorCode.not_enough_replicas) if self.too_few_in_sync else None


class FakePartition:
    """Commits when the test says so."""

    topic_partition = TopicPartition("__consumer_offsets", 7)

    def __init__(self) -> None:
        self.online = self.leads = True
        self.role = FakeRole()
        self.high_watermark = 0
        self.log_end_offset = 0
        self.batches: list[list[str]] = []
        self.headers: list[BatchHeader] = []
        self.refuses_with: ErrorCode | None = None
        self.waiters: list[AckWaiter] = []

    def append_own(self, batch: bytearray) -> int:
        if self.refuses_with is not None:
            raise ApiError(self.refuses_with)
        records = read_records(memoryview(batch))
        self.headers.append(read_header(batch))
        self.batches.append([(record.value or b"").decode() for record in records])
        self.log_end_offset += len(records)
        return self.log_end_offset - 1

    def append_marker(self, text: str = "marker") -> int:
        if self.refuses_with is not None:
            raise ApiError(self.refuses_with)
        self.batches.append([text])
        self.log_end_offset += 1
        return self.log_end_offset - 1

    def wait_for_ack(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None:
        self.waiters.append(AckWaiter(last_offset, deadline, done))

    def commit(self) -> None:
        self.high_watermark = self.log_end_offset
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.done(ErrorCode.none)

    def give_up(self, code: ErrorCode) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.done(code)


class Lab:
    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.partition = FakePartition()
        self.ended = 0
        self.committed: list[tuple[str, list[CoordinatorRecord], list[TimelineEvent]]] = []
        self.answers: list[Any] = []
        self.orders: list[tuple[str, Command, Callable[[Event], None]]] = []
        self.version = 1
        self.timers = MachineTimers(world.clock, world.tasks)
        self.driver: MachineDriver[Toy] = MachineDriver(
            world=world,
            partition=self.partition,
            kind=MachineKind(
                make=Toy,
                pack=lambda record, number: [(plain_record(number, b"key", record.text.encode()), 1)],
                refresh=lambda: (self.version, lambda known: Told(f"{known}->{self.version}")),
                answer_question=self._answer_question,
                committed=lambda *step: self.committed.append(step),
                start_command=lambda *order: self.orders.append(order),
                measure=lambda toy: () if toy.is_gone else (("toys", 1), ("texts", len(toy.written))),
            ),
            timers=self.timers,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            on_end=self._on_end,
        )
        self.driver.serve()

    def _on_end(self) -> None:
        self.ended += 1

    async def _answer_question(self, question: Question) -> Event:
        await self.world.tasks.sleep(1)
        return Told("42")

    def ask(
        self,
        what: str,
        name: str = "m",
        size: int = 1,
        *,
        producer: BatchProducer | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.driver.submit(name, lambda token: Do(what, token, size, producer), self._answer, check=check)

    def end_transaction(self, producer_id: int, *, committed: bool = True) -> None:
        append = self.partition.append_marker
        self.driver.end_transaction(producer_id, Ended(committed), append, self._answer)

    def _answer(self, body: ReplyBody | ApiError) -> None:
        code_or_text = body.code if isinstance(body, ApiError) else getattr(body, "text", "marked")
        self.answers.append(code_or_text)

    async def turn(self) -> None:
        await self.world.tasks.sleep(0.001)


def in_lab(scenario: Callable[[Lab], Awaitable[None]]) -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")

        async def run() -> None:
            await scenario(Lab(world))

        simulation.run(run())
