# SPDX-License-Identifier: Apache-2.0
"""Files of the real world: what a node writes is private to its user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from headrace.realworld import RealFiles


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_and_files_are_private(tmp_path: Path) -> None:
    files = RealFiles()
    directory = tmp_path / "data"
    files.make_directory(directory)
    files.open(directory / "log", "create").close()
    files.lock(directory / ".lock").release()
    assert mode_of(directory) == 0o700
    assert [mode_of(each) for each in sorted(directory.iterdir())] == [0o600, 0o600]


def test_a_directory_of_an_earlier_version_becomes_private(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    os.chmod(directory, 0o755)
    RealFiles().make_directory(directory)
    assert mode_of(directory) == 0o700


def test_a_shared_directory_stays_shared(tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    os.chmod(directory, 0o1777)
    RealFiles().make_directory(directory)
    assert mode_of(directory) == 0o1777
