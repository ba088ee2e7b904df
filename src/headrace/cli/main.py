"""The command `headrace`: all commands together, and the one place where errors become a line and a code.

Commands import what they need when they run, so that `headrace --help` stays quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import Annotated, Any

import typer

from headrace import __version__
from headrace.cli import configs, consume, log, produce, serve, topics
from headrace.cli.help import HELP_STYLE
from headrace.cli.output import ReaderGone, clean, drop_stdout, json_text
from headrace.errors import HeadraceError

FAILURE, USAGE, INTERRUPTED = 1, 2, 130

# What typer raises for wrong usage; its newer versions carry the class in a private package.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="headrace",
    help="An event-streaming platform that speaks the Kafka protocol.",
    epilog="Every command but `serve` and `log` works against Apache Kafka too: --bootstrap HOST:PORT.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=HELP_STYLE,
)
app.command("serve")(serve.serve)
app.add_typer(topics.app, name="topics")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(configs.app, name="configs")
app.add_typer(log.app, name="log")


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


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code. Never raises, never prints a traceback."""
    fail = partial(_fail, as_json="--json" in arguments)
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="headrace")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help text
            print(error.format_message(), file=sys.stderr)
            return USAGE
        return fail(error.format_message().rstrip("."), USAGE, next_step=_help_for(error))
    except HeadraceError as error:
        what = getattr(error, "what", str(error))
        next_step, code = getattr(error, "next_step", None), getattr(error, "code", None)
        return fail(what, FAILURE, next_step=next_step, code=code)
    except ReaderGone:
        return 0
    except BrokenPipeError:
        drop_stdout()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        return fail(f"{error.filename or 'the operating system'}: {error.strerror or error}", FAILURE)
    except Exception as error:
        if os.environ.get("HEADRACE_TRACEBACK"):
            raise
        return fail(
            f"a defect in Headrace: {type(error).__name__}: {error}",
            FAILURE,
            next_step="set HEADRACE_TRACEBACK=1 to see where, and report it",
        )


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a letter gets its escape, not an exception.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def _fail(
    what: str, exit_code: int, *, as_json: bool, next_step: str | None = None, code: Any = None
) -> int:
    """One line on stderr: what failed, and what to do next."""
    if as_json:
        line = json_text({"error": what, "next": next_step, "code": None if code is None else str(code)})
    else:
        line = "headrace: " + clean(" ".join((f"{what}; {next_step}" if next_step else what).split()))
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)
    return exit_code


def _help_for(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"see: {context.command_path if context else 'headrace'} --help"


if __name__ == "__main__":
    main()
