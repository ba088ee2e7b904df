"""`headrace consume --group`: one or more members of a group in this process, each with its workers.

Records are printed, or handed to a command (record_command.py). Order, retries, dead letters and commits are
those of the parallel consumer (client/parallel).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from headrace.cli.consume_options import GroupOptions
from headrace.cli.output import Output, ReaderGone, json_bytes, text_of
from headrace.cli.record_command import CommandResult, run_command
from headrace.cli.record_printer import RecordPrinter
from headrace.client.admin import Admin
from headrace.client.errors import ClientError
from headrace.client.parallel import Budget, FatalError, Observer, ParallelConsumer, Record, Stats
from headrace.client.parallel.signals import stop_on_signals
from headrace.types import TopicPartition

_LOOK_S = 0.1
_COLOURS = ("green", "magenta", "yellow", "blue", "red", "cyan")


def consume_group(
    bootstrap: str, topic: str, options: GroupOptions, output: Output, printer: RecordPrinter
) -> None:
    Admin(bootstrap).describe_topic(topic)
    console = _Console(output, printer, options)
    budget = None if options.maximum is None else Budget(options.maximum)
    consumers = [
        ParallelConsumer(
            bootstrap,
            options.group,
            topic,
            console.handler(member),
            workers=options.workers,
            order=options.order,
            retries=options.retries,
            dead_letter=options.dead_letter,
            start="latest" if options.from_end else "earliest",
            protocol=options.protocol,
            commit_interval_ms=options.commit_every_ms,
            limit=budget,
            observer=_MemberNotes(console, member),
        )
        for member in range(1, options.consumers + 1)
    ]
    received: list[int] = []
    try:
        received = _run_all(consumers, budget, follow=options.follow)
    except FatalError as error:
        if isinstance(error.__cause__, ReaderGone):
            raise error.__cause__ from None
        raise ClientError(str(error)) from error
    finally:
        output.flush()
        console.sum_up(topic, [consumer.stats() for consumer in consumers])
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def _run_all(consumers: Sequence[ParallelConsumer], budget: Budget | None, *, follow: bool) -> list[int]:
    """Until one fails, all have ended, or there is nothing left; the signals that came."""

    def stop_all() -> None:
        for consumer in consumers:
            consumer.stop()

    with stop_on_signals(stop_all) as received, ExitStack() as running:
        for consumer in consumers:
            running.enter_context(consumer)
        running.callback(stop_all)  # at the same time, before each is waited for
        while not any(consumer.wait(0) for consumer in consumers) and not received:
            stats = [consumer.stats() for consumer in consumers]
            if budget is not None and budget.spent:
                break
            if not follow and any(stat.partitions for stat in stats) and all(stat.at_end for stat in stats):
                break
            time.sleep(_LOOK_S)
    return received


class _Console:
    """All that is printed, by whichever worker of whichever member: one at a time."""

    def __init__(self, output: Output, printer: RecordPrinter, options: GroupOptions) -> None:
        self._output = output
        self._printer = printer
        self._options = options
        self._lock = threading.Lock()
        self._in_trouble = False

    def handler(self, member: int) -> Callable[[Record], None]:
        """What a member does with each record. It is done when what it prints has left this process."""
        command = self._options.command

        def handle(record: Record) -> None:
            result = None if command is None else run_command(command, record)
            try:
                self._show(member, record, result)
            except ReaderGone as gone:
                raise FatalError("nobody reads the output any more") from gone
            if result is not None:
                result.check()

        return handle

    def note(self, member: int, text: str) -> None:
        with self._lock:
            self._output.note(f"{_name(member)} {text}")

    def rebalanced(self, member: int, text: str) -> None:
        if self._output.terminal:
            self.note(member, text)

    def trouble(self, member: int, text: str) -> None:
        """Once, until records come again."""
        if not self._in_trouble:
            self._in_trouble = True
            self.note(member, f"is in trouble and tries on: {text}")

    def sum_up(self, topic: str, stats: Sequence[Stats]) -> None:
        if not self._output.terminal:
            return
        finished = sum(stat.finished for stat in stats)
        retried = sum(stat.retried for stat in stats)
        dead = sum(stat.dead_lettered for stat in stats)
        self._output.note(
            f"Handled {finished:,} record{'' if finished == 1 else 's'} of '{topic}' in group "
            f"'{self._options.group}': {retried:,} retries, {dead:,} dead letters."
        )

    def _show(self, member: int, record: Record, result: CommandResult | None) -> None:
        with self._lock:
            self._in_trouble = False
            if result is None:
                self._printer.print(record, member=self._member_cell(member))
            elif self._output.as_json:
                self._output.json_line(_result_document(self._options.group, member, record, result))
            elif self._output.terminal:
                self._show_result(member, record, result)
            else:
                self._output.raw(result.stdout)
            self._output.flush()

    def _member_cell(self, member: int) -> tuple[str, str] | None:
        """A pipe of one member's values stays a pipe of values."""
        if self._options.consumers == 1 and not self._output.terminal and self._printer.form != "json":
            return None
        return _name(member), _colour(member)

    def _show_result(self, member: int, record: Record, result: CommandResult) -> None:
        outcome = ("done", "green") if result.code == 0 else (f"exit code {result.code}", "red")
        name = (f"{_name(member)} ", _colour(member))
        place = (f"{record.partition}:{record.offset}", "cyan")
        self._output.styled(name, place, ("  ", ""), outcome, (f"  {result.took_ms:.0f} ms", "dim"))
        for line in text_of(result.stdout).splitlines():
            self._output.styled(name, (f"  {line}", ""))


class _MemberNotes(Observer):
    def __init__(self, console: _Console, member: int) -> None:
        self._console = console
        self._member = member

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self._console.rebalanced(self._member, f"was given {_listed(partitions)}")

    def revoked(self, partitions: Sequence[TopicPartition], *, unfinished: int) -> None:
        rest = f"; {unfinished} records come again, they took too long" if unfinished else ""
        if partitions:
            self._console.rebalanced(self._member, f"gave back {_listed(partitions)}{rest}")

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._console.note(self._member, f"lost {_listed(partitions)}: their last records may come again")

    def retrying(self, record: Record, error: BaseException, delay_ms: float) -> None:
        place = f"{record.partition}:{record.offset}"
        self._console.note(
            self._member, f"{place} failed ({error}), attempt {record.attempt}; again in {delay_ms:.0f} ms"
        )

    def dead_lettered(self, record: Record, error: BaseException) -> None:
        place = f"{record.partition}:{record.offset}"
        self._console.note(
            self._member, f"{place} failed ({error}), attempt {record.attempt}; it is now a dead letter"
        )

    def trouble(self, text: str) -> None:
        self._console.trouble(self._member, text)


def _result_document(group: str, member: int, record: Record, result: CommandResult) -> dict[str, Any]:
    return {
        "group": group,
        "member": _name(member),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": json_bytes(record.key),
        "attempt": record.attempt,
        "exit_code": result.code,
        "milliseconds": round(result.took_ms, 1),
        "stdout": json_bytes(result.stdout),
        "stderr": json_bytes(result.stderr),
    }


def _listed(partitions: Sequence[TopicPartition]) -> str:
    numbers = ", ".join(str(partition.partition) for partition in partitions)
    return f"partition{'' if len(partitions) == 1 else 's'} {numbers}"


def _name(member: int) -> str:
    return f"c{member}"


def _colour(member: int) -> str:
    return _COLOURS[(member - 1) % len(_COLOURS)]
