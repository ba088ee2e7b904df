"""All commands together, as typer knows them.

Commands import what they need when they run, so that `headrace --help` stays quick.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headrace import __version__
from headrace.cli import cluster, configs, consume, groups, log, pipeline, plan, produce, serve, topics
from headrace.cli.help import HELP_STYLE
from headrace.cli.wrong_usage import WrongUsage

USAGE = 2

# What typer raises for wrong usage; its newer versions carry the class in a private package.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="headrace",
    help="An event-streaming platform that speaks the Kafka protocol.",
    epilog="Every command but `serve` and `log` works with Apache Kafka too: --bootstrap HOST:PORT.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=HELP_STYLE,
)
app.command("serve")(serve.serve)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(groups.app, name="groups")
app.command("plan")(plan.plan)
app.add_typer(configs.app, name="configs")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def invoke(arguments: list[str]) -> int:
    """Runs one command; its exit code. Raises WrongUsage, and whatever the command raises."""
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="headrace")
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help text
            print(error.format_message(), file=sys.stderr)
            return USAGE
        raise WrongUsage(error.format_message().rstrip("."), _help_for(error)) from error
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _help_for(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"see: {context.command_path if context else 'headrace'} --help"
