# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of a document from top to bottom and compares what they print with what it shows.

Addresses in the document are those of a reader's machine (127.0.0.1:9092); a test's ports replace them.
Read next: blocks.py (the conventions), sessions.py (shell and Python).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.snippets.blocks import Language, Snippet, matches, read_snippets
from tests.harness.snippets.sessions import PythonProgram, Shell

NODE_PORT, METRICS_PORT = 9092, 9404
"""As documents write them."""
_BLOCK_S = 240.0
_WITHOUT_PORT = re.compile(r"headrace (?:serve|cluster up|up)\b(?!.*--(?:config|from-env|listener|port))")
"""Commands that would take the document's port by themselves."""


@dataclass(slots=True, kw_only=True)
class PageRun:
    """A document, and where its snippets run: an empty folder, and ports in place of the document's."""

    document: Path
    folder: Path
    ports: Mapping[int, int]
    python: str = sys.executable
    languages: Collection[Language] = ("sh", "python")
    timeout_s: float = _BLOCK_S
    _open: ExitStack = field(default_factory=ExitStack)
    _shell: Shell | None = None
    _program: PythonProgram | None = None
    _background: list[Shell] = field(default_factory=list)

    def run(self) -> int:
        """How many snippets were executed; an AssertionError names the first whose output is another."""
        (self.folder / "home").mkdir(parents=True)
        (self.folder / "work").mkdir()
        wanted = [each for each in read_snippets(self.document) if each.language in self.languages]
        executed = [each for each in wanted if each.not_executed is None]
        with self._open:
            for snippet in executed:
                self._execute(snippet)
        return len(executed)

    def _execute(self, snippet: Snippet) -> None:
        name = f"{self.document.name}, line {snippet.line}"
        code = self._here(snippet.code)
        if snippet.interrupts:
            self._background.pop().close()
            return
        if snippet.background:
            self._start(code, snippet.output or "")
            return
        status, printed = (
            self._run_python(code, name) if snippet.language == "python" else self._run_shell(code)
        )
        printed = self._as_shown(printed)
        assert (status != 0) == snippet.fails, f"{name} ended with {status}:\n{printed}{self._errors()}"
        if snippet.output is not None:
            shown = f"{name} shows\n{snippet.output}\nbut this is printed:\n{printed}"
            assert matches(snippet.output, printed), shown

    def _start(self, code: str, output: str) -> None:
        """In a terminal of its own, until it has printed what the document shows."""
        self._background.append(self._new_shell())
        self._background[-1].start(
            code,
            until=lambda text: matches(output, self._as_shown(text), prefix=True),
            timeout_s=self.timeout_s,
        )

    def _run_shell(self, code: str) -> tuple[int, str]:
        if self._shell is None:
            self._shell = self._new_shell()
        return self._shell.run(code, timeout_s=self.timeout_s)

    def _run_python(self, code: str, name: str) -> tuple[int, str]:
        if self._program is None:
            program = PythonProgram(
                self.python, self._environment(), self.folder / "work", self.folder / "errors.txt"
            )
            self._program = self._open.enter_context(closing(program))
        return self._program.run(code, name, timeout_s=self.timeout_s)

    def _new_shell(self) -> Shell:
        shell = Shell(self._environment(), self.folder / "work", self.folder)
        return self._open.enter_context(closing(shell))

    def _environment(self) -> dict[str, str]:
        """Of a new user: nothing but the programs, an empty home folder and the node's address."""
        return {
            "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "HEADRACE_BOOTSTRAP": f"127.0.0.1:{self.ports[NODE_PORT]}",
        }

    def _here(self, code: str) -> str:
        for shown, port in self.ports.items():
            code = code.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{port}").replace(
                f"-port {shown}", f"-port {port}"
            )
        return _WITHOUT_PORT.sub(rf"\g<0> --port {self.ports[NODE_PORT]}", code)

    def _as_shown(self, printed: str) -> str:
        for shown, port in self.ports.items():
            printed = printed.replace(f"127.0.0.1:{port}", f"127.0.0.1:{shown}")
        return printed.replace(str(self.folder / "home"), "~").replace(str(self.folder / "work"), "…")

    def _errors(self) -> str:
        file = self.folder / "errors.txt"
        return file.read_text() if file.exists() else ""
