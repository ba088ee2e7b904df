# SPDX-License-Identifier: Apache-2.0
"""The group options of `headrace consume`: help, checks and defaults.

Read next: consume_group.py, which implements them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeVar

import typer

Order = Literal["key", "partition", "none"]
Protocol = Literal["classic", "consumer", "cooperative", "eager"]
Choice = TypeVar("Choice")

_ORDERS: dict[str, Order] = {"key": "key", "partition": "partition", "none": "none"}
_PROTOCOLS: dict[str, Protocol] = {
    "classic": "classic",
    "consumer": "consumer",
    "cooperative": "cooperative",
    "eager": "eager",
}
_PANEL = "With a group"
_WORKERS_OF_A_COMMAND = 4

Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        rich_help_panel=_PANEL,
        help="Join this group: share its partitions and commit offsets.",
    ),
]
Consumers = Annotated[
    int | None,
    typer.Option("--consumers", min=1, rich_help_panel=_PANEL, help="Members in this process. Default: 1."),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        rich_help_panel=_PANEL,
        help="Records that each member processes in parallel. Default: 4 with --exec, else 1.",
    ),
]
OrderName = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="key|partition|none",
        rich_help_panel=_PANEL,
        help="Records processed in order: of a key (default), of a partition, or none.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--exec",
        metavar="CMD",
        rich_help_panel=_PANEL,
        help="Run this for each record: its value on stdin; HEADRACE_KEY, _TOPIC, _PARTITION, _OFFSET, "
        "_HEADERS and others in the environment. A non-zero exit is retried.",
    ),
]
Retries = Annotated[
    int | None,
    typer.Option("--retries", min=0, rich_help_panel=_PANEL, help="Retries of a failed record. Default: 5."),
]
DeadLetter = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="TOPIC",
        rich_help_panel=_PANEL,
        help="Topic for records whose retries are used up. Default: such a record stops the command.",
    ),
]
CommitEvery = Annotated[
    int | None,
    typer.Option(
        "--commit-every",
        min=1,
        metavar="MS",
        rich_help_panel=_PANEL,
        help="Commit interval in milliseconds. Default: 1000.",
    ),
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="classic|consumer",
        rich_help_panel=_PANEL,
        help="Rebalance protocol. Default: consumer (KIP-848) where the broker has it and the group has no "
        "classic members. cooperative and eager: classic with that kind of assignor.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The options with defaults filled in."""

    group: str
    consumers: int
    workers: int
    order: Order
    command: str | None
    retries: int
    dead_letter: str | None
    commit_every_ms: int
    protocol: Protocol | None
    """None: the best that broker and group have."""
    from_end: bool
    maximum: int | None
    follow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupArguments:
    """The options of the command line; None: not set."""

    consumers: Consumers = None
    workers: WorkerCount = None
    order: OrderName = None
    command: Command = None
    retries: Retries = None
    dead_letter: DeadLetter = None
    commit_every_ms: CommitEvery = None
    protocol: ProtocolName = None

    def refuse_all(self) -> None:
        """Refuse all of them when --group is not set."""
        names = {"command": "--exec", "dead_letter": "--dead-letter", "commit_every_ms": "--commit-every"}
        for field in fields(self):
            if getattr(self, field.name) is not None:
                name = names.get(field.name, f"--{field.name}")
                raise typer.BadParameter("needs --group", param_hint=name)

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
            protocol=None if self.protocol is None else _chosen(_PROTOCOLS, self.protocol, "--protocol"),
            from_end=from_end,
            maximum=maximum,
            follow=follow,
        )


def check_group(group: str, start: str, partitions: list[int] | None) -> None:
    """Refuse options that cannot be combined with a group."""
    if not group:
        raise typer.BadParameter("a group needs a name", param_hint="--group")
    if partitions:
        raise typer.BadParameter(
            "a group assigns partitions itself: use either --partition or --group",
            param_hint="--partition",
        )
    if start not in ("beginning", "end"):
        raise typer.BadParameter(
            "a group starts at its committed offsets; --from can only be beginning or end "
            f"(to change them: headrace groups reset {group})",
            param_hint="--from",
        )


def _chosen(known: Mapping[str, Choice], text: str, option: str) -> Choice:
    if text not in known:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint=option)
    return known[text]
