# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command `headrace`: turns errors into one line on stderr and an exit code.

`serve` starts without loading typer (serve_without_typer.py), every other command through commands.py. Called
as `kafka-topics` and the like, it is that tool (kafka_tools/entry.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import Any

from headrace.cli.errors import OutputClosed, UsageError
from headrace.cli.kafka_tools.names import TOOLS, headrace_arguments
from headrace.cli.output import clean, drop_stdout, json_text
from headrace.cli.serve_without_typer import parse_serve, run_node
from headrace.client.errors import as_flags
from headrace.errors import ArgumentError, HeadraceError

FAILURE, USAGE, INTERRUPTED = 1, 2, 130


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Never raises, never prints a traceback."""
    fail = partial(_fail, as_json="--json" in arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        return fail(error.what, USAGE, next_step=error.next_step)
    except ArgumentError as error:
        return fail(str(error), USAGE)
    except HeadraceError as error:
        what = getattr(error, "what", str(error))
        next_step, code_name = getattr(error, "next_step", None), getattr(error, "code", None)
        return fail(what, FAILURE, next_step=next_step, code=code_name)
    except OutputClosed:
        return 0
    except BrokenPipeError:
        drop_stdout()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return fail(f"{error.filename or 'the operating system'}: {error.strerror or error}", FAILURE)
    except Exception as error:
        if os.environ.get("HEADRACE_TRACEBACK"):
            raise
        if type(error).__name__ == "KafkaException":  # of confluent-kafka, which need not be loaded
            from headrace.client.kafka_errors import client_error

            known = client_error(error, name="", kind="cluster")
            return fail(known.what, FAILURE, next_step=known.next_step, code=known.code)
        return fail(
            f"a bug in Headrace: {type(error).__name__}: {error}",
            FAILURE,
            next_step="set HEADRACE_TRACEBACK=1 to see the traceback, and report it",
        )


def _run(arguments: list[str]) -> int:
    options = parse_serve(arguments)
    if options is not None:
        return run_node(options)
    if arguments and arguments[0] in TOOLS:
        from headrace.cli.kafka_tools.entry import run_tool

        return run_tool(arguments[0], arguments[1:])
    from headrace.cli.commands import invoke

    return invoke(arguments)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Characters that the encoding lacks are escaped instead of raising.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(headrace_arguments(sys.argv)))


def _fail(what: str, exit_code: int, *, as_json: bool, next_step: str | None = None, code: Any = None) -> int:
    """Print one line on stderr: what failed and what to do next."""
    next_step = as_flags(next_step)
    if as_json:
        line = json_text({"error": what, "next": next_step, "code": None if code is None else str(code)})
    else:
        line = "headrace: " + clean(" ".join((f"{what}; {next_step}" if next_step else what).split()))
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)
    return exit_code


if __name__ == "__main__":
    main()
