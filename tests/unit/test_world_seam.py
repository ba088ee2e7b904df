# SPDX-License-Identifier: Apache-2.0
"""R35: nothing between the bytes and the broker reaches time, chance, disk or network but by the World.

The rule is held by a walk over the syntax tree. ALLOWED is the whole list of exceptions, each with its
reason; an entry that no longer matches anything fails too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import headrace
from tests.harness.syntax import parse

SOURCE = Path(headrace.__file__).parent
PACKAGES = ("wire", "log", "machines", "assignors", "coordination", "broker")

_PAST_THE_TRANSPORT = "file ranges go to the transport's own descriptor; without one (simulation) they do not"
_WRAPS_A_THREAD = "only wraps what a World thread returned"
_BESIDE_THE_SUPERVISOR = "an event loop in a thread of the supervisor's process, which has none"
_THE_PROCESS = "the one module that sets up the process around a node"

ALLOWED: dict[tuple[str, str], str] = {
    ("broker/network/send_queue.py", "import socket"): _PAST_THE_TRANSPORT,
    ("broker/network/send_queue.py", "os.sendfile"): _PAST_THE_TRANSPORT,
    ("wire/scratch.py", "import mmap"): "anonymous memory, without a file",
    ("wire/scratch.py", "import threading"): "memory of each thread; it starts none",
    ("log/epochs.py", "import threading"): "a lock between the threads that write one file; it starts none",
    ("coordination/hosts.py", "os.path.realpath"): "asks where a link leads, to find the mount",
    ("broker/network/send_queue.py", "asyncio.ensure_future"): _WRAPS_A_THREAD,
    ("broker/partition/log_removals.py", "asyncio.ensure_future"): _WRAPS_A_THREAD,
    ("broker/app.py", "import signal"): _THE_PROCESS,
    ("broker/app.py", "import socket"): "asks for the host's name",
    ("broker/app.py", "import resource"): _THE_PROCESS,
    ("broker/app.py", "import uvloop"): _THE_PROCESS,
    ("broker/app.py", "asyncio.run"): _THE_PROCESS,
    ("broker/cores_app.py", "import threading"): _BESIDE_THE_SUPERVISOR,
    ("broker/cores_app.py", "import concurrent"): _BESIDE_THE_SUPERVISOR,
    ("broker/cores_app.py", "asyncio.run"): _BESIDE_THE_SUPERVISOR,
}

FORBIDDEN_MODULES = {
    "concurrent", "fcntl", "glob", "multiprocessing", "mmap", "random", "resource", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "uvloop",
}  # fmt: skip
FORBIDDEN_NAMES = {
    "asyncio": {
        "create_subprocess_exec", "create_subprocess_shell", "create_task", "ensure_future", "new_event_loop",
        "open_connection", "open_unix_connection", "run", "Runner", "sleep", "start_server", "to_thread",
    },
    "datetime": {"now", "today", "utcnow"},
    "io": {"open", "FileIO"},
    "uuid": {"uuid1", "uuid4"},
}  # fmt: skip
HARMLESS_OS_NAMES = {"fspath", "fsdecode", "fsencode", "PathLike", "sep", "strerror"}
HARMLESS_RANDOM_NAMES = {"Random"}  # the type of World.random
PATH_METHODS = {
    "chmod", "expanduser", "glob", "hardlink_to", "is_dir", "is_file", "iterdir", "lstat", "mkdir",
    "read_bytes", "read_text", "resolve", "rglob", "rmdir", "samefile", "symlink_to", "touch", "write_bytes",
    "write_text",
}  # fmt: skip
METHODS_OF_FILES_TOO = {"exists", "open", "rename", "stat", "unlink"}


class Offence(NamedTuple):
    line: int
    what: str


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts))


def _import_offences(node: ast.Import | ast.ImportFrom) -> Iterator[Offence]:
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    for module in modules:
        top = module.split(".")[0]
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        if top == "random" and names and names <= HARMLESS_RANDOM_NAMES:
            continue
        if top in FORBIDDEN_MODULES:
            yield Offence(node.lineno, f"import {top}")
        for name in names & FORBIDDEN_NAMES.get(top, set()):
            yield Offence(node.lineno, f"{top}.{name}")
        if top == "os" and names:
            for name in names - HARMLESS_OS_NAMES:
                yield Offence(node.lineno, f"os.{name}")


def _is_files_or_class(receiver: ast.expr) -> bool:
    """`self._files.open(...)` is the World's; `PartitionLog.open(...)` is a constructor."""
    name = _dotted(receiver).split(".")[-1]
    return name.strip("_") == "files" or name[:1].isupper()


def _attribute_offences(node: ast.Attribute) -> Iterator[Offence]:
    dotted = _dotted(node)
    module, _, name = dotted.partition(".")
    forbidden = FORBIDDEN_NAMES.get(module, set())
    harmful_os_name = module == "os" and name.split(".")[0] not in HARMLESS_OS_NAMES
    if dotted == "os.path":  # its attribute is looked at by itself
        return
    if harmful_os_name or name in forbidden or (module == "datetime" and node.attr in forbidden):
        yield Offence(node.lineno, dotted)


def _call_offences(node: ast.Call) -> Iterator[Offence]:
    if isinstance(node.func, ast.Name) and node.func.id == "open":
        yield Offence(node.lineno, "open()")
    if isinstance(node.func, ast.Attribute):
        method = node.func.attr
        if method in PATH_METHODS:
            yield Offence(node.lineno, f"Path.{method}()")
        if method in METHODS_OF_FILES_TOO and not _is_files_or_class(node.func.value):
            yield Offence(node.lineno, f"Path.{method}()")


def offences(source: str) -> list[Offence]:
    found: set[Offence] = set()
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(_import_offences(node))
        elif isinstance(node, ast.Attribute):
            found.update(_attribute_offences(node))
        elif isinstance(node, ast.Call):
            found.update(_call_offences(node))
    return sorted(found)


def _all_offences() -> Iterator[tuple[str, Offence]]:
    for path in sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py")):
        for offence in offences(path.read_text()):
            yield path.relative_to(SOURCE).as_posix(), offence


def test_nothing_reaches_around_the_world() -> None:
    found = [
        f"src/headrace/{module}:{offence.line}: {offence.what}"
        for module, offence in _all_offences()
        if (module, offence.what) not in ALLOWED
    ]
    assert not found, "use the World (R35), or explain the exception in ALLOWED:\n" + "\n".join(found)


def test_every_exception_is_still_needed() -> None:
    assert set(ALLOWED) <= {(module, offence.what) for module, offence in _all_offences()}


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from random import choice",
        "import threading",
        "import subprocess",
        "import socket",
        "from concurrent.futures import ThreadPoolExecutor",
        "import os\nos.fsync(3)",
        "import os\nos.path.exists('x')",
        "from os import pread",
        "import asyncio\nasync def f() -> None:\n    await asyncio.sleep(1)",
        "from asyncio import sleep",
        "import asyncio\nasyncio.create_task(f())",
        "open('x')",
        "path.read_text()",
        "(directory / 'x').unlink()",
        "self._directory.exists()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.now()",
        "import uuid\nuuid.uuid4()",
    ],
)
def test_the_lint_sees(code: str) -> None:
    assert offences(code)


@pytest.mark.parametrize(
    "code",
    [
        "from random import Random",
        "self._files.open(path, 'read')",
        "world.files.unlink(path)",
        "PartitionLog.open(files)",
        "import os\nos.strerror(5)",
        "import asyncio\nasyncio.Event()",
        "name.replace('a', 'b')",
        "import uuid\nuuid.UUID(int=1)",
    ],
)
def test_the_lint_passes(code: str) -> None:
    assert not offences(code)
