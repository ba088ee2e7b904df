# SPDX-License-Identifier: Apache-2.0
"""C libraries that are preloaded into nodes under test, each told what to do by a number in a mapped file."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

from headrace.cluster.engines.engine import PreparedNode
from tests.harness.left_out import leave_out


class Preload:
    """One library for all nodes of a cluster, a number for each. `variable` names the file of the number."""

    def __init__(self, source: str, variable: str, folder: Path) -> None:
        self._variable = variable
        self._folder = folder
        self._library = folder / f"{Path(source).stem}.so"
        compiler = shutil.which("cc")
        if compiler is None:
            leave_out(
                "clocks that jump, loops that hang, slow disks", "no C compiler (cc): install gcc or clang"
            )
        path = Path(__file__).with_name(source)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(path), "-ldl"]
        subprocess.run(command, check=True, timeout=60)

    def set(self, node_id: int, number: int) -> None:
        """The file stays the same one: it is mapped."""
        file = self._file(node_id)
        with file.open("r+b" if file.exists() else "wb") as opened:
            opened.write(struct.pack("=q", number))

    def environment(self, node_id: int) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), self._variable: str(self._file(node_id))}

    def dress(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        if not self._file(node_id).exists():
            self.set(node_id, 0)
        return replace(prepared, environment={**prepared.environment, **self.environment(node_id)})

    def _file(self, node_id: int) -> Path:
        return self._folder / f"{self._library.stem}-{node_id}"
