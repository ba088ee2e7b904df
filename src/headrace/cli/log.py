"""`headrace log`: looks into segment files. The only module of the CLI that reaches into the log."""

from __future__ import annotations

import typer

from headrace.cli.help import HELP_STYLE

app = typer.Typer(
    help="Look into segment files on this machine.", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)


@app.callback()
def _log() -> None:
    pass
