# SPDX-License-Identifier: Apache-2.0
"""`headrace consume --group`: runs one or more members of a group, each with its workers.

Records are printed or passed to a command (record_command.py). Order, retries, dead letters and commits are
those of the parallel consumer (client/parallel).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from headrace.cli.errors import OutputClosed
from headrace.cli.groups.drawing import compact
from headrace.cli.output import Output, json_bytes, quoted, text_of
from headrace.cli.records.consume_options import GroupOptions
from headrace.cli.records.group_protocol import choose_protocol
from headrace.cli.records.record_command import CommandResult, run_command
from headrace.cli.records.record_printer import RecordPrinter
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.parallel import Budget, FatalError, Observer, ParallelConsumer, Record, Stats
from headrace.client.parallel.signals import stop_on_signals
from headrace.client.tools.admin import Admin
from headrace.types import TopicPartition

_LOOK_S = 0.1
_COLOURS = ("green", "magenta", "yellow", "blue", "red", "cyan")


def consume_group(
    bootstrap: str | Cluster,
    topics: Sequence[str],
    options: GroupOptions,
    output: Output,
    printer: RecordPrinter,
) -> None:
    admin = Admin(bootstrap)
    for topic in topics:
        admin.describe_topic(topic)
    protocol = choose_protocol(bootstrap, options.group, options.protocol)
    console = _Console(output, printer, options)
    budget = None if options.maximum is None else Budget(options.maximum)
    consumers = [
        ParallelConsumer(
            bootstrap,
            options.group,
            topics,
            console.handler(member),
            workers=options.workers,
            order=options.order,
            retries=options.retries,
            dead_letter=options.dead_letter,
            start="latest" if options.from_end else "earliest",
            protocol=protocol,
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
        if isinstance(error.__cause__, OutputClosed):
            raise error.__cause__ from None
        raise ClientError(str(error)) from error
    finally:
        output.flush()
        console.sum_up(topics, [consumer.stats() for consumer in consumers])
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def _run_all(consumers: Sequence[ParallelConsumer], budget: Budget | None, *, follow: bool) -> list[int]:
    """Run until one member fails or all end; returns the signals received."""

    def stop_all() -> None:
        for consumer in consumers:
            consumer.stop()

    with stop_on_signals(stop_all) as received, ExitStack() as running:
        for consumer in consumers:
            running.enter_context(consumer)
        running.callback(stop_all)  # all at once, before waiting for each
        while not any(consumer.wait(0) for consumer in consumers) and not received:
            stats = [consumer.stats() for consumer in consumers]
            if budget is not None and budget.spent:
                break
            if not follow and any(stat.partitions for stat in stats) and all(stat.at_end for stat in stats):
                break
            time.sleep(_LOOK_S)
    return received


class _Console:
    """Serialises the output of all members and workers."""

    def __init__(self, output: Output, printer: RecordPrinter, options: GroupOptions) -> None:
        self._output = output
        self._printer = printer
        self._options = options
        self._lock = threading.Lock()
        self._in_trouble = False

    def handler(self, member: int) -> Callable[[Record], None]:
        """The record handler of a member; a record is done when its output is flushed."""
        command = self._options.command

        def handle(record: Record) -> None:
            result = None if command is None else run_command(command, record)
            try:
                self._show(member, record, result)
            except OutputClosed as gone:
                raise FatalError("the output was closed") from gone
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
        """Report an error once until records arrive again."""
        if not self._in_trouble:
            self._in_trouble = True
            self.note(member, f"is retrying: {text}")

    def sum_up(self, topics: Sequence[str], stats: Sequence[Stats]) -> None:
        if not self._output.terminal:
            return
        finished = sum(stat.finished for stat in stats)
        retried = sum(stat.retried for stat in stats)
        dead = sum(stat.dead_lettered for stat in stats)
        self._output.note(
            f"Handled {finished:,} record{'' if finished == 1 else 's'} of {quoted(topics)} in group "
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

    def place(self, record: Record) -> str:
        return self._printer.place(record)

    def listed(self, partitions: Sequence[TopicPartition]) -> str:
        """Partitions in a sentence: by number, with the topic where there are several."""
        if self._printer.several_topics:
            return compact(partitions)
        numbers = ", ".join(str(partition.partition) for partition in sorted(partitions))
        return f"partition{'' if len(partitions) == 1 else 's'} {numbers}"

    def _member_cell(self, member: int) -> tuple[str, str] | None:
        """The member's name; empty when one member writes plain values to a pipe."""
        if self._options.consumers == 1 and not self._output.terminal and self._printer.form != "json":
            return None
        return _name(member), _colour(member)

    def _show_result(self, member: int, record: Record, result: CommandResult) -> None:
        outcome = ("done", "green") if result.code == 0 else (f"exit code {result.code}", "red")
        name = (f"{_name(member)} ", _colour(member))
        place = (self._printer.place(record), "cyan")
        self._output.styled(name, place, ("  ", ""), outcome, (f"  {result.took_ms:.0f} ms", "dim"))
        for line in text_of(result.stdout).splitlines():
            self._output.styled(name, (f"  {line}", ""))


class _MemberNotes(Observer):
    def __init__(self, console: _Console, member: int) -> None:
        self._console = console
        self._member = member

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self._console.rebalanced(self._member, f"was assigned {self._console.listed(partitions)}")

    def revoked(self, partitions: Sequence[TopicPartition], *, unfinished: int) -> None:
        rest = f"; {unfinished} unfinished records will be redelivered" if unfinished else ""
        if partitions:
            self._console.rebalanced(self._member, f"revoked {self._console.listed(partitions)}{rest}")

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        listed = self._console.listed(partitions)
        self._console.note(self._member, f"lost {listed}: their last records may be redelivered")

    def retrying(self, record: Record, error: BaseException, delay_ms: float) -> None:
        place = self._console.place(record)
        self._console.note(
            self._member, f"{place} failed ({error}), attempt {record.attempt}; retry in {delay_ms:.0f} ms"
        )

    def dead_lettered(self, record: Record, error: BaseException) -> None:
        place = self._console.place(record)
        self._console.note(
            self._member, f"{place} failed ({error}), attempt {record.attempt}; sent to the dead-letter topic"
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


def _name(member: int) -> str:
    return f"c{member}"


def _colour(member: int) -> str:
    return _COLOURS[(member - 1) % len(_COLOURS)]
