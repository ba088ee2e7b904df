"""Compiles the kernels when a wheel or an editable install is made and a C compiler is there.

Without one the package installs all the same and works through NumPy and Python, slower; where the variable
HEADRACE_REQUIRE_KERNELS is set, as in the Dockerfile, the build fails instead. Why a plain shared library:
docs/decisions/0008-kernels-in-c-without-python-headers.md. How: src/headrace/kernels/build.py.
"""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/headrace/kernels")
REQUIRED = "HEADRACE_REQUIRE_KERNELS"


class KernelsBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        folder = Path(self.root, FOLDER)
        build = runpy.run_path(str(folder / "build.py"))
        (folder / build["LIBRARY_NAME"]).unlink(missing_ok=True)
        reason = build["compile_kernels"](folder)
        if reason is not None:
            if os.environ.get(REQUIRED):
                raise RuntimeError(f"the kernels are not compiled, and {REQUIRED} is set: {reason}")
            self.app.display_warning(f"the kernels are not compiled: {reason}")
            return
        build_data["artifacts"].append(f"/{FOLDER.as_posix()}/{build['LIBRARY_NAME']}")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
