"""The options of `headrace consume` that need a group: their help, their checks, their defaults.

Knows no Kafka: what they do is consume_group.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeVar

import typer

Order = Literal["key", "partition", "none"]
Protocol = Literal["cooperative", "eager", "consumer"]
Choice = TypeVar("Choice")

_ORDERS: dict[str, Order] = {"key": "key", "partition": "partition", "none": "none"}
_PROTOCOLS: dict[str, Protocol] = {"cooperative": "cooperative", "eager": "eager", "consumer": "consumer"}
_PANEL = "With a group"
_WORKERS_OF_A_COMMAND = 4

Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        rich_help_panel=_PANEL,
        help="Join it: share the partitions, commit what is done, go on there next time.",
    ),
]
Consumers = Annotated[
    int | None,
    typer.Option("--consumers", min=1, rich_help_panel=_PANEL, help="Members in this process. Left out: 1."),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        rich_help_panel=_PANEL,
        help="Records that each member handles at a time. Left out: 4 with --exec, else 1.",
    ),
]
OrderName = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="key|partition|none",
        rich_help_panel=_PANEL,
        help="Whose records are handled one after another: a key's (the default), a partition's, none.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--exec",
        metavar="CMD",
        rich_help_panel=_PANEL,
        help="Run this for each record: its value on stdin; HEADRACE_KEY, _TOPIC, _PARTITION, _OFFSET, "
        "_HEADERS and others in the environment. A non-zero exit is tried again.",
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries", min=0, rich_help_panel=_PANEL, help="How often a failure is tried again. Left out: 5."
    ),
]
DeadLetter = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="TOPIC",
        rich_help_panel=_PANEL,
        help="Where a record goes that failed too often. Without it, such a record stops the command.",
    ),
]
CommitEvery = Annotated[
    int | None,
    typer.Option(
        "--commit-every",
        min=1,
        metavar="MS",
        rich_help_panel=_PANEL,
        help="How often offsets are committed, in milliseconds. Left out: 1000.",
    ),
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="cooperative|eager|consumer",
        rich_help_panel=_PANEL,
        help="How the group rebalances: cooperative (the default), eager, or consumer, which is KIP-848. "
        "Its members must agree.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """What the command line says, complete."""

    group: str
    consumers: int
    workers: int
    order: Order
    command: str | None
    retries: int
    dead_letter: str | None
    commit_every_ms: int
    protocol: Protocol
    from_end: bool
    maximum: int | None
    follow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenGroupOptions:
    """What the command line says; None where it says nothing."""

    consumers: Consumers = None
    workers: WorkerCount = None
    order: OrderName = None
    command: Command = None
    retries: Retries = None
    dead_letter: DeadLetter = None
    commit_every_ms: CommitEvery = None
    protocol: ProtocolName = None

    def refuse_all(self) -> None:
        """Without a group they would be ignored, which nobody means."""
        names = {"command": "--exec", "dead_letter": "--dead-letter", "commit_every_ms": "--commit-every"}
        for field in fields(self):
            if getattr(self, field.name) is not None:
                name = names.get(field.name, f"--{field.name}")
                raise typer.BadParameter("it means nothing without --group", param_hint=name)

    def complete(self, group: str, *, from_end: bool, maximum: int | None, follow: bool) -> GroupOptions:
        workers = 1 if self.command is None else _WORKERS_OF_A_COMMAND
        return GroupOptions(
            group=group,
            consumers=self.consumers or 1,
            workers=self.workers or workers,
            order=_chosen(_ORDERS, self.order or "key", "--order"),
            command=self.command,
            retries=5 if self.retries is None else self.retries,
            dead_letter=self.dead_letter,
            commit_every_ms=self.commit_every_ms or 1000,
            protocol=_chosen(_PROTOCOLS, self.protocol or "cooperative", "--protocol"),
            from_end=from_end,
            maximum=maximum,
            follow=follow,
        )


def check_group(group: str, start: str, partitions: list[int] | None) -> None:
    """What a group cannot be asked for."""
    if not group:
        raise typer.BadParameter("a group needs a name", param_hint="--group")
    if partitions:
        raise typer.BadParameter(
            "a group shares out all partitions by itself: use either --partition or --group",
            param_hint="--partition",
        )
    if start not in ("beginning", "end"):
        raise typer.BadParameter(
            "a group goes on where it committed; only beginning and end say where a new one starts "
            f"(to move it: headrace groups reset {group})",
            param_hint="--from",
        )


def _chosen(known: Mapping[str, Choice], text: str, option: str) -> Choice:
    if text not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint=option)
    return known[text]
