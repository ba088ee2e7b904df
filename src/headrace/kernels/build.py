# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels: `python -m headrace.kernels.build [FOLDER]`; hatch_build.py does it for a wheel.

Needs nothing but a C compiler and the standard library, since it also runs before Headrace is installed.
Read next: library.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LIBRARY_NAME = "_kernels.so"
_FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=default")
"""Not for any particular processor: a wheel must run on all of its platform."""


def compile_kernels(folder: Path) -> str | None:
    """All C files of the folder to one library in it. None when it is there, otherwise why not."""
    library = folder / LIBRARY_NAME
    compiler = find_compiler()
    if compiler is None:
        return "no C compiler was found (set CC to name one)"
    sources = [str(source) for source in sorted(folder.glob("*.c"))]
    draft = library.with_suffix(".draft")
    processors = shlex.split(os.environ.get("ARCHFLAGS", ""))  # macOS: which ones the library is for
    command = [*compiler, *_FLAGS, *processors, "-o", str(draft), *sources]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode != 0:
        draft.unlink(missing_ok=True)
        return f"{shlex.join(command)}: {done.stderr.strip()}"
    draft.replace(library)  # a running process keeps the file it has mapped
    return None


def find_compiler() -> list[str] | None:
    """What CC names, or else the usual ones. `CC=` (empty) means none."""
    named = os.environ.get("CC")
    for candidate in (named,) if named is not None else ("cc", "gcc", "clang"):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    return None


def main(arguments: Sequence[str]) -> str | None:
    """Compiles those of the folder named, or of this one; why not, for the exit code."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    reason = compile_kernels(folder)
    return f"the kernels are not compiled: {reason}" if reason is not None else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
