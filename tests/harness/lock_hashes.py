# SPDX-License-Identifier: Apache-2.0
"""Adds to every requirement of a lock file the SHA-256 of all files of that version: `make lock`.

    python -m tests.harness.lock_hashes requirements.lock

The sums come from the package index that pip uses, so that the lock holds for every platform that has a wheel
there. Read next: sbom.py, audit.py.
"""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import NamedTuple

_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<marker>\s*;[^\\]*)?")
_LINK = re.compile(r'<a[^>]*href="[^"#]*#sha256=(?P<sum>[0-9a-f]{64})"[^>]*>(?P<file>[^<]+)</a>')
_ARCHIVES = (".tar.gz", ".zip", ".tar.bz2")


class Pin(NamedTuple):
    name: str
    version: str
    marker: str
    hashes: tuple[str, ...] = ()

    @property
    def normal_name(self) -> str:
        return normal_name(self.name)


def normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> Iterator[Pin]:
    """Raises ValueError at a line that is not NAME==VERSION, with or without sums."""
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement, *sums = line.split(" --hash=sha256:")
        match = _PIN.fullmatch(requirement.strip())
        if match is None:
            raise ValueError(f"{line!r} is not NAME==VERSION")
        marker = (match["marker"] or "").strip().removeprefix(";").strip()
        yield Pin(match["name"], match["version"], marker, tuple(each.strip() for each in sums))


def write_lock(pins: list[Pin]) -> str:
    lines = []
    for pin in sorted(pins, key=lambda each: each.normal_name):
        requirement = f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")
        lines.append(" \\\n    ".join([requirement, *(f"--hash=sha256:{each}" for each in pin.hashes)]))
    return "\n".join(lines) + "\n"


def files_of(page: str, pin: Pin) -> dict[str, str]:
    """SHA-256 by the name of each file of this version, on the index's page of a project."""
    found = {}
    for match in _LINK.finditer(page):
        file = unescape(match["file"]).strip()
        if _version_of(file) == (pin.normal_name, pin.version):
            found[file] = match["sum"]
    return found


def _version_of(file: str) -> tuple[str, str] | None:
    if file.endswith(".whl"):
        name, version, *_ = file.split("-")
        return normal_name(name), version
    ending = next((each for each in _ARCHIVES if file.endswith(each)), None)
    if ending is None:
        return None
    name, _, version = file.removesuffix(ending).rpartition("-")
    return normal_name(name), version


def _index() -> str:
    """The address that pip is configured with, else pip's own default."""
    from pip._internal.models.index import PyPI

    return os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")


def _with_hashes(pin: Pin) -> Pin:
    request = urllib.request.Request(f"{_index()}/{pin.normal_name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        files = files_of(reply.read().decode(), pin)
    if not files:
        raise SystemExit(f"the package index has no file with a SHA-256 of {pin.name} {pin.version}")
    return pin._replace(hashes=tuple(sorted(files.values())))


def main(path: Path) -> None:
    pins = list(read_lock(path.read_text()))
    with ThreadPoolExecutor(8) as threads:
        path.write_text(write_lock(list(threads.map(_with_hashes, pins))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
