# SPDX-License-Identifier: Apache-2.0
"""The typer application: all commands and their error handling.

Commands import what they need when they run, so that `headrace --help` stays quick.
"""

from __future__ import annotations

import functools
import platform
import sys
from typing import Annotated, Any

import typer
import typer.main

from headrace.cli import configs, console, demo, mcp, serve, top
from headrace.cli.acls import commands as acls
from headrace.cli.certs import commands as certs
from headrace.cli.cluster import commands as cluster
from headrace.cli.doctor import commands as doctor
from headrace.cli.errors import UsageError
from headrace.cli.groups import commands as groups
from headrace.cli.kafka_tools.names import TOOLS
from headrace.cli.log import commands as log
from headrace.cli.options import HELP_STYLE, Json
from headrace.cli.output import json_text
from headrace.cli.pipeline import commands as pipeline
from headrace.cli.plan import commands as plan
from headrace.cli.quotas import commands as quotas
from headrace.cli.records import consume, produce
from headrace.cli.store import commands as store
from headrace.cli.topics import commands as topics
from headrace.cli.transactions import commands as transactions
from headrace.cli.users import commands as users
from headrace.cli.wrong_values import usage_message
from headrace.version import __version__

USAGE = 2

# The usage error of typer; newer versions have the class in a private package.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="headrace",
    help="An event-streaming platform that speaks the Kafka protocol.",
    epilog="Every command but `serve`, `certs`, `store` and `log` works with Apache Kafka too: "
    f"--bootstrap HOST:PORT. With Apache Kafka's own options: {', '.join(TOOLS)}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=HELP_STYLE,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command("serve")(serve.serve)
app.command("up", short_help="Start a cluster on this host: short for `cluster up`.")(cluster.up)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.command("plan")(plan.plan)
app.add_typer(configs.app, name="configs")
app.add_typer(acls.app, name="acls")
app.add_typer(certs.app, name="certs")
app.add_typer(quotas.app, name="quotas")
app.add_typer(users.app, name="users")
app.add_typer(store.app, name="store")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.command("console")(console.console)
app.command("top")(top.top)
app.command("mcp")(mcp.mcp)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.command("version")
def version(as_json: Json = False) -> None:
    """Print the version of Headrace and of Python.

    \b
    Examples:
      headrace version
      headrace version --json
    """
    python = platform.python_version()
    if as_json:
        print(json_text({"headrace": __version__, "python": python}))
    else:
        print(f"headrace {__version__}, Python {python}")


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def invoke(arguments: list[str]) -> int:
    """Run one command and return its exit code. Raises UsageError and the command's own errors."""
    try:
        code = _command()(args=arguments, standalone_mode=False, prog_name="headrace")
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help text
            print(error.format_message(), file=sys.stderr)
            return USAGE
        raise UsageError(usage_message(error), _help_for(error)) from error
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


@functools.cache
def _command() -> Any:
    """Built once: tests run many commands in one process."""
    return typer.main.get_command(app)


def _help_for(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"see: {context.command_path if context else 'headrace'} --help"
