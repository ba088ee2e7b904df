"""Compiles the kernels when a wheel or an editable install is made and a C compiler is there.

Without one the package installs all the same and works through NumPy and Python, slower. Why a plain shared
library: docs/decisions/0008-kernels-in-c-without-python-headers.md.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/headrace/kernels")
LIBRARY = FOLDER / "_kernels.so"
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=default")


class KernelsBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Not for any particular processor: a wheel must run on all of its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        library = Path(self.root, LIBRARY)
        library.unlink(missing_ok=True)
        reason = compile_kernels(Path(self.root, FOLDER), library)
        if reason is not None:
            self.app.display_warning(f"the kernels are not compiled: {reason}")
            return
        build_data["artifacts"].append(f"/{LIBRARY}")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_kernels(folder: Path, library: Path) -> str | None:
    """All C files of the folder to one library. None when it is there, otherwise why not."""
    compiler = find_compiler()
    if compiler is None:
        return "no C compiler was found (set CC to name one)"
    sources = [str(source) for source in sorted(folder.glob("*.c"))]
    draft = library.with_suffix(".draft")
    command = [*compiler, *FLAGS, "-o", str(draft), *sources]
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
