# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a Dockerfile in clean roots of Debian, as root, without a container engine.

Each stage is a root of its own (debootstrap, chroot). Debian 12's Python 3.11 stands in for Python's images:
with a C compiler for the full one, without for the slim one. Network and processes are those of this machine.
Read next: clean_root.py, which needs no rights.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.live.clean_root import Instruction, StepFailed, copy_context

RELEASE = "bookworm"
_PYTHON = "python3,python3-venv,ca-certificates"
_COMPILER = ("gcc", "libc6-dev")
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_THE_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "ssl_cert_file", "requests_ca_bundle")
_STEP_TIMEOUT_S = 600
_ENTER = """
root=$1 user=$2 work=$3 shared=$4; shift 4
mount -t proc proc "$root/proc"
for path in $shared; do mount --bind "$path" "$root$path"; done
exec chroot --userspec="$user" --groups="${user#*:}" "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$work" "$@"
"""
"""In a mount namespace of its own, so that nothing stays mounted. Everything is replaced by exec: the process
that was started is the command itself and receives its signals."""


def why_no_roots() -> str | None:
    """What is missing on this machine, None when nothing is."""
    if os.geteuid() != 0:
        return "only root can make a root (chroot)"
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program) is None:
            return f"no {program}: install Debian's package debootstrap (make compat does as root)"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "mount namespaces are not permitted here (unshare --mount)"
    return None


class NoRoot(Exception):
    """Debian's packages could not be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRoots:
    """What stands in for images: made once and kept in a folder."""

    folder: Path

    def without_compiler(self) -> Path:
        return self._kept("slim", self._bootstrap)

    def with_compiler(self) -> Path:
        return self._kept("full", self._add_compiler)

    def _kept(self, name: str, make: Callable[[Path], None]) -> Path:
        kept = self.folder / name
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{name}-draft-"))
            try:
                make(draft / "root")
                (draft / "root").rename(kept)
            finally:
                shutil.rmtree(draft)
        return kept

    def _bootstrap(self, root: Path) -> None:
        command = ["debootstrap", "--variant=minbase", f"--include={_PYTHON}", RELEASE, str(root)]
        _fetch([*command, *_mirror()])
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")

    def _add_compiler(self, root: Path) -> None:
        copy_tree(self.without_compiler(), root)
        _fetch(["chroot", str(root), "apt-get", "install", "--yes", "--no-install-recommends", *_COMPILER])


@dataclass(slots=True, kw_only=True)
class Stage:
    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _SEARCH_PATH, "HOME": "/"})
    work: str = "/"
    user: str = "root"

    def place(self, path: str) -> Path:
        """Where a path of the stage is on this machine; a relative one is below the working directory."""
        return self.root / os.path.join(self.work, path).lstrip("/")

    def user_ids(self) -> str:
        for line in (self.root / "etc/passwd").read_text().splitlines():
            name, _, user, group, *_ = line.split(":")
            if name == self.user:
                return f"{user}:{group}"
        raise StepFailed(f"USER {self.user}: the image has no such user")

    def entered(self, command: Sequence[str], shared: Iterable[str] = ()) -> list[str]:
        """The command line that runs a command in the stage, as its user."""
        enter = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", _ENTER, "enter"]
        return [*enter, str(self.root), self.user_ids(), self.work, " ".join(shared), *command]


@dataclass(slots=True, kw_only=True)
class DebianImage:
    """The last stage of a Dockerfile, once `build` has run."""

    folder: Path
    context: Path
    """Where COPY takes files from."""
    full: Path
    """The root for an image with a compiler."""
    slim: Path
    stages: dict[str, Stage] = field(default_factory=dict)

    def build(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            self._step(instruction.name, instruction.text)

    @property
    def stage(self) -> Stage:
        """The one that is being built, in the end the last one."""
        return list(self.stages.values())[-1]

    def run(
        self, command: Sequence[str], variables: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """As `docker exec`: a command of the image, as its user and in its environment."""
        return subprocess.run(
            self.stage.entered(command),
            env={**self.stage.environment, **(variables or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(
        self, command: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """As the container's first process."""
        with log.open("wb") as file:
            return subprocess.Popen(
                self.stage.entered(command),
                env={**self.stage.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def remove(self) -> None:
        for stage in self.stages.values():
            shutil.rmtree(stage.root)

    def _step(self, name: str, text: str) -> None:
        match name:
            case "FROM":
                self._start_stage(text.split())
            case "WORKDIR":
                self.stage.work = text
                self.stage.place(text).mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(text.split())
            case "ENV":
                for pair in shlex.split(text):
                    key, _, value = pair.partition("=")
                    known = self.stage.environment
                    known[key] = string.Template(value).safe_substitute(known)
            case "USER":
                self.stage.user = text
                self.stage.user_ids()
            case "RUN":
                self._run_step(text)

    def _start_stage(self, words: Sequence[str]) -> None:
        name = words[2] if len(words) > 2 else "final"
        root = self.folder / name
        copy_tree(self.slim if "-slim" in words[0] else self.full, root)
        for file in ("hosts", "resolv.conf"):  # as container engines do
            shutil.copy(f"/etc/{file}", root / "etc" / file)
        self.stages[name] = Stage(root=root)

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            other = self.stages[words.pop(0).removeprefix("--from=")]
            source, target = words
            self.stage.place(target).parent.mkdir(parents=True, exist_ok=True)
            copy_tree(other.place(source), self.stage.place(target))
            return
        *sources, target = words
        copy_context(self.context, sources, self.stage.place(target))

    def _run_step(self, text: str) -> None:
        """With this machine's settings of pip and its certificates: they are no part of the image."""
        settings = _pip_settings()
        paths = {value for value in settings.values() if value.startswith("/")}
        shared = sorted(path for path in paths if Path(path).exists())
        for path in shared:
            _make_place(Path(path), self.stage.place(path))
        done = subprocess.run(
            self.stage.entered(["/bin/sh", "-ec", text], shared),
            env={**settings, **self.stage.environment},
            capture_output=True,
            text=True,
            timeout=_STEP_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise StepFailed(f"RUN {text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def copy_tree(source: Path, target: Path) -> None:
    """With owners, links and devices."""
    subprocess.run(["cp", "--archive", "--reflink=auto", str(source), str(target)], check=True)


def _fetch(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise NoRoot(f"{command[0]} failed: {(done.stdout + done.stderr)[-500:]}")


def _mirror() -> list[str]:
    """Where this machine has its packages of the release from; elsewhere debootstrap's default."""
    if shutil.which("apt-get") is None:
        return []
    wanted = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {RELEASE}", "Component: main"]
    done = subprocess.run(wanted, capture_output=True, text=True, check=False)
    return done.stdout.split()[:1]


def _pip_settings() -> dict[str, str]:
    """Of this machine, as variables: what pip reads from its files, PIP_… and those of the network."""
    settings = {}
    command = [sys.executable, "-m", "pip", "config", "list"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            settings[f"PIP_{option.upper().replace('-', '_')}"] = str(ast.literal_eval(value))
    network = {name: value for name, value in os.environ.items() if name.lower() in _OF_THE_NETWORK}
    return {**settings, **network}


def _make_place(original: Path, place: Path) -> None:
    """Something to mount the original over."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if original.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()
