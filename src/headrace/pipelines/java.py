"""The Java that Spark runs on: found where it usually is, new enough, or a message that says what to install.

Knows no Spark. Read next: session.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.client.errors import ClientError

LEAST_JAVA = 17
_INSTALLED = Path("/usr/lib/jvm")
_VERSION = re.compile(r'version "(\d+)')
_TIMEOUT_S = 20


def find_java(environment: Mapping[str, str] = os.environ, *, installed: Path = _INSTALLED) -> Path:
    """The home of the first Java that is new enough: JAVA_HOME's, the path's, then those installed.

    ClientError names what was found instead and the package to install.
    """
    too_old = []
    for home in dict.fromkeys(_homes(environment, installed)):
        major = java_version(home / "bin/java")
        if major is None:
            continue
        if major >= LEAST_JAVA:
            return home
        too_old.append(f"Java {major} in {home}")
    found = f"only {', '.join(too_old)} was found" if too_old else "none was found"
    raise ClientError(
        f"Spark needs Java {LEAST_JAVA} or later, and {found}",
        next_step="install it (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME",
    )


def java_version(program: Path) -> int | None:
    """The major version, None where there is none that runs."""
    try:
        ran = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(ran.stderr + ran.stdout)
    if match is None:
        return None
    major = int(match[1])
    return 8 if major == 1 else major  # before 9 it said 1.8


def _homes(environment: Mapping[str, str], installed: Path) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program is not None:
        yield Path(program).resolve().parents[1]
    if installed.is_dir():
        yield from sorted((each for each in installed.iterdir() if not each.is_symlink()), reverse=True)
