"""The command `headrace`: the one place where errors become a line and a code.

`serve` starts without loading the command-line library (serve_plainly.py), all else through commands.py.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import Any

from headrace.cli.output import ReaderGone, clean, drop_stdout, json_text
from headrace.cli.serve_plainly import read_plainly, run_node
from headrace.cli.wrong_usage import WrongUsage
from headrace.errors import HeadraceError

FAILURE, USAGE, INTERRUPTED = 1, 2, 130


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code. Never raises, never prints a traceback."""
    fail = partial(_fail, as_json="--json" in arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except WrongUsage as error:
        return fail(error.what, USAGE, next_step=error.next_step)
    except HeadraceError as error:
        what = getattr(error, "what", str(error))
        next_step, code_name = getattr(error, "next_step", None), getattr(error, "code", None)
        return fail(what, FAILURE, next_step=next_step, code=code_name)
    except ReaderGone:
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
        return fail(
            f"a defect in Headrace: {type(error).__name__}: {error}",
            FAILURE,
            next_step="set HEADRACE_TRACEBACK=1 to see where, and report it",
        )


def _run(arguments: list[str]) -> int:
    options = read_plainly(arguments)
    if options is not None:
        return run_node(options)
    from headrace.cli.commands import invoke

    return invoke(arguments)


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


if __name__ == "__main__":
    main()
