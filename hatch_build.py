# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels for a wheel or an editable install, and gives a release its `project.urls`.

Without a C compiler the package installs all the same and works through NumPy and Python, slower; where the
variable HEADRACE_REQUIRE_KERNELS is set, as in the Dockerfile, the build fails instead. Why a shared library:
docs/decisions/0008-kernels-in-c-without-python-headers.md. How: src/headrace/kernels/build.py.
"""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from platform import machine
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDER = Path("src/headrace/kernels")
REQUIRED = "HEADRACE_REQUIRE_KERNELS"

PAGES = {
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
    "Security": "/security/policy",
}


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
        build_data["tag"] = f"py3-none-{platform_tag()}"


class UrlsMetadataHook(MetadataHookInterface):
    """Pages of the repository whose workflow builds the release; none elsewhere."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, repository = (os.environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY"))
        known = server and repository
        metadata["urls"] = (
            {name: f"{server}/{repository}{page}" for name, page in PAGES.items()} if known else {}
        )


def platform_tag() -> str:
    """Of the library, which has no Python API: any Python 3 of this platform loads it.

    A universal build of Python for macOS compiles for both processors only when ARCHFLAGS asks for them.
    """
    platform = sysconfig.get_platform()
    if not os.environ.get("ARCHFLAGS"):
        platform = platform.replace("universal2", machine())
    return platform.replace("-", "_").replace(".", "_")
