# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a Dockerfile without a container engine: in a folder that stands for the image's root.

Paths of the image become paths below the folder, and `python` is the one that runs the tests, without its
packages. What needs the rights to add a user is left out; `left_out` names it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

_FOLDERS = ("source", "opt", "usr/local", "var/lib")
"""Below the image's root: everything that the Dockerfile names."""
_PATH = re.compile(rf"(?<![\w./:])/(?=(?:{'|'.join(_FOLDERS)})\b)")
_NEEDS_ROOT = ("useradd",)
_FOREIGN = ("PYTHON", "VIRTUAL_ENV", "KAFKA_", "HEADRACE_", "CC")
_UNREACHABLE = ("NewConnectionError", "Could not find a version", "Temporary failure in name resolution")
_STEP_TIMEOUT_S = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    name: str
    text: str


def read_dockerfile(text: str) -> list[Instruction]:
    """Instructions with their continued lines joined; comments are left out, base images filled in."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.partition(" ") for line in joined.splitlines())
    read = [Instruction(name=name, text=rest.strip()) for name, _, rest in pairs]
    defaults = dict(each.text.split("=", 1) for each in read if each.name == "ARG")
    return [_filled(each, defaults) if each.name == "FROM" else each for each in read]


def _filled(instruction: Instruction, defaults: Mapping[str, str]) -> Instruction:
    return Instruction(name=instruction.name, text=Template(instruction.text).substitute(defaults))


class StepFailed(Exception):
    """A RUN instruction ended with an error."""


@dataclass(slots=True, kw_only=True)
class CleanRoot:
    """The last stage of the image, once `build` has run."""

    folder: Path
    context: Path
    """Where COPY takes files from."""
    variables: dict[str, str] = field(default_factory=dict)
    """Given to every step besides the Dockerfile's own, such as CC."""
    environment: dict[str, str] = field(default_factory=dict)
    """What ENV sets in the last stage."""
    left_out: list[str] = field(default_factory=list)
    _stage: str = ""
    _work: str = "/"

    def build(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction.name:
                case "FROM":
                    self._start_stage(instruction.text)
                case "WORKDIR":
                    self._work = instruction.text
                    self.place(self._work).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(instruction.text.split())
                case "ENV":
                    pairs = (pair.split("=", 1) for pair in shlex.split(instruction.text))
                    self.environment |= dict(pairs)
                case "RUN":
                    self._run_step(instruction.text)

    def place(self, path: str) -> Path:
        """Where a path of the image is."""
        return self.folder / self._stage / path.lstrip("/")

    def run(
        self, command: Sequence[str], variables: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """As `docker exec`: a command of the image, in its environment."""
        return subprocess.run(
            [self.program(command[0]), *command[1:]],
            env=self.process_environment(variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def program(self, name: str) -> str:
        """The file that the image's PATH finds, or the path itself."""
        if name.startswith("/"):
            return str(self.place(name))
        found = shutil.which(name, path=self._search_path())
        assert found is not None, f"the image has no command {name}"
        return found

    def process_environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        own = {**self.environment, **self.variables, **(variables or {})}
        return {**inherited, **own, "PATH": self._search_path(), "HOME": str(self.folder)}

    def _search_path(self) -> str:
        listed = self.environment.get("PATH", "/usr/local/bin:$PATH").replace("$PATH", "/usr/local/bin")
        return ":".join([*(str(self.place(each)) for each in listed.split(":")), "/usr/bin", "/bin"])

    def _start_stage(self, text: str) -> None:
        words = text.split()
        self._stage = words[2] if len(words) > 2 else "final"
        self._work = "/"
        self.environment = {}
        programs = self.place("/usr/local/bin")
        programs.mkdir(parents=True)
        python = programs / "python"
        base = getattr(sys, "_base_executable", sys.executable)
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(base)} "$@"\n')
        python.chmod(0o755)

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            stage = words.pop(0).removeprefix("--from=")
            source, target = self.folder / stage / words[0].lstrip("/"), self.place(words[1])
            # Scripts of a virtual environment name the place where it was made.
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
            return
        *sources, target_name = words
        copy_context(self.context, sources, self.place(f"{self._work}/{target_name}"))

    def _run_step(self, text: str) -> None:
        if text.startswith(_NEEDS_ROOT):
            self.left_out.append(text)
            return
        root = self.folder / self._stage
        done = subprocess.run(
            ["sh", "-ec", _PATH.sub(f"{root}/", text)],
            cwd=self.place(self._work),
            env=self.process_environment(),
            capture_output=True,
            text=True,
            timeout=_STEP_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise StepFailed(f"RUN {text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def copy_context(context: Path, sources: Sequence[str], target: Path) -> None:
    """Files go into the target, the content of a folder too; without what .dockerignore keeps out."""
    target.mkdir(parents=True, exist_ok=True)
    for source in (context / name for name in sources):
        if source.is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(source, target, ignore=skipped, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)


def is_unreachable(failure: StepFailed) -> bool:
    """Whether the step failed because no package index answers."""
    return any(sign in str(failure) for sign in _UNREACHABLE)


def json_form(text: str) -> list[str]:
    """The exec form of ENTRYPOINT and of HEALTHCHECK … CMD."""
    command: list[str] = json.loads(text[text.index("[") :])
    return command
