"""The options of `headrace groups reset` that say where to, with their help. Read next: group_reset.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """Exactly one of them must be given."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: skip all there is.")] = False
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Where they are; to the end where nothing is committed.")
    ] = False
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="MOMENT", help="To the first since 2026-01-31T12:00:00Z."),
    ] = None
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="To the first since 15m, 2h, PT1H30M ago."),
    ] = None
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N records on, or back with -N.")
    ] = None
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="Lines of TOPIC,PARTITION,OFFSET, as of --export."),
    ] = None
