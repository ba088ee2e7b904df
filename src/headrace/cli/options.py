# SPDX-License-Identifier: Apache-2.0
"""Options shared by many commands, with their help texts and parsers.

Read next: option_sets.py (how a command takes a dataclass of options).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from headrace.cli.client_settings import connect
from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.client_config import VARIABLE
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError

HELP_STYLE: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None
"""Help is coloured on a terminal and plain text in a pipe."""

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Brokers to connect to, Headrace or Apache Kafka, separated by commas.",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        envvar=VARIABLE,
        metavar="FILE",
        help="Properties with TLS and login, under the names of Kafka's Java client or of librdkafka.",
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--command-property",
        metavar="NAME=VALUE",
        help="One setting of the client, before those of the file; repeatable. Not for passwords.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated."),
]

BOOTSTRAP = DEFAULT_BOOTSTRAP


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """How a command reaches the cluster."""

    bootstrap: Bootstrap = BOOTSTRAP
    command_config: CommandConfig = None
    client_settings: ClientSettings = None

    def cluster(self) -> Cluster:
        """Reads the file: call it once, for it may be a pipe."""
        return connect(self.bootstrap, self.command_config, self.client_settings or ())


def parse_pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse `key=value` texts into a mapping; duplicate keys are an error."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        if key in pairs:
            raise typer.BadParameter(f"{key!r} is set twice", param_hint=option)
        pairs[key] = value.strip()
    return pairs


def confirm(what: str, *, yes: bool) -> None:
    """Ask for confirmation, naming the target (S18); without a terminal only --yes confirms."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ClientError(f"confirmation needed: {what}", next_step="add --yes")
    sys.stderr.write(f"{what}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ClientError("not confirmed, nothing was changed")
