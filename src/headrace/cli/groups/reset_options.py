# SPDX-License-Identifier: Apache-2.0
"""Target options of `headrace groups reset`. Read next: reset.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.start_position import FORMS


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """Exactly one of them is required."""

    start: Annotated[
        str | None, typer.Option("--from", metavar="WHERE", help=f"As in `headrace consume`: {FORMS}.")
    ] = None
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: skip all records.")] = False
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Keep committed offsets; others to the end.")
    ] = False
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="MOMENT", help="To the first record at or after 2026-01-31T12:00:00Z."
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="DURATION", help="To the first record since 15m, 2h, PT1H30M ago."
        ),
    ] = None
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward by N records, or back with -N.")
    ] = None
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", help="From lines TOPIC,PARTITION,OFFSET, as from --export."
        ),
    ] = None
