# SPDX-License-Identifier: Apache-2.0
"""The file that takes Spark's stderr: private, new, and never somebody else's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from headrace.pipelines.spark_session.stderr_log import private_log_file, stderr_to


def test_the_log_file_is_new_private_and_not_to_be_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = private_log_file(), private_log_file()
    assert first != second
    assert str(os.getpid()) not in first.name
    assert first.stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_log_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "log").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"), stderr_to(tmp_path / "log"):
        pass
    assert precious.read_text() == "kept"
