"""Options that many commands share, and how their texts are read.

Knows no command. The help texts are here once, so that they read the same everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.errors import ClientError

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Any node of the cluster, Headrace or Apache Kafka; several are separated by commas.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated."),
]

BOOTSTRAP = DEFAULT_BOOTSTRAP


def parse_pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """`key=value` texts as a mapping; a key may stand only once."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        if key in pairs:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint=option)
        pairs[key] = value.strip()
    return pairs


def confirm(what: str, *, yes: bool) -> None:
    """Names the target back and asks (S18); where nobody can answer, only --yes will do."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ClientError(f"not done without confirmation: {what}", next_step="add --yes")
    sys.stderr.write(f"{what}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ClientError("not confirmed, nothing was changed")
