# SPDX-License-Identifier: Apache-2.0
"""A Java program that goes on while a test talks to it: lines in, lines out."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.cluster.engines.engine import command_environment
from tests.harness.waiting import wait_until


class JavaProcess:
    """Use as a context manager: it is ended, by force if need be."""

    def __init__(
        self,
        java: str,
        class_path: str,
        main_class: str,
        *arguments: str,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [java, "-Xmx256M", "-Djava.awt.headless=true", main_class, *arguments],
            env=command_environment({"CLASSPATH": class_path, **environment}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self) -> JavaProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self, *, within_s: float = 30) -> int:
        """Ask it to stop as a service manager does; its exit code."""
        self._process.terminate()
        return self._process.wait(within_s)

    def kill(self) -> None:
        """SIGKILL; it stays away."""
        self._process.kill()
        self._process.wait()

    def wait_for(self, condition: Callable[[], bool], what: str, *, within_s: float = 40) -> None:
        def shown() -> str:
            return "\n".join((what, *self.lines[-30:]))

        def holds() -> bool:
            if condition():
                return True
            assert self._process.poll() is None, f"it ended while waiting for {shown()}"
            return False

        wait_until(holds, shown, timeout_s=within_s)


def compile_java(source: Path, class_path: str, folder: Path) -> None:
    """A JVM that runs a source file compiles it at every start; these are started often."""
    command = ["javac", "-cp", class_path, "-d", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
