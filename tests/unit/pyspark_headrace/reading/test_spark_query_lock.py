# SPDX-License-Identifier: Apache-2.0
"""A query's sign of life, and the file that asks it to stop."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

import pytest

from pyspark_headrace.reading.query_lock import QueryLock, stop_requested, try_exclusive


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_query_shows_that_it_runs_until_its_process_ends() -> None:
    query = str(uuid.uuid4())
    with try_exclusive(query) as free:
        assert free is None, "it was never seen here"
    first, second = QueryLock(), QueryLock()
    for shown in (first, second, first):
        shown.hold(query)
    with try_exclusive(query) as free:
        assert free is False
    first.close()
    with try_exclusive(query) as free:
        assert free is False, "another process runs it too"
    second.close()
    with try_exclusive(query) as free:
        assert free is True


def test_a_query_that_starts_during_a_check_is_seen_at_its_next_trigger() -> None:
    query = str(uuid.uuid4())
    query_lock = QueryLock()
    query_lock.hold(query)
    query_lock.close()
    with try_exclusive(query) as free:
        assert free
        query_lock.hold(query)
    query_lock.hold(query)
    with try_exclusive(query) as free:
        assert free is False
    query_lock.close()


def test_a_query_that_can_leave_no_sign_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query_lock = QueryLock()
    query_lock.hold("../../etc/passwd")
    query_lock.hold("../../etc/passwd")
    assert [record.getMessage() for record in caplog.records] == [
        "query ../../etc/passwd runs without its lock file: '../../etc/passwd' is not a query id"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_stop_request_is_acknowledged_by_the_query(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    assert not stop_requested(str(file))
    assert not file.exists()
    file.touch()
    assert stop_requested(str(file))
    assert stop_requested(str(file))
    assert file.stat().st_size == 2


@pytest.mark.parametrize("trap", ["symlink", "open to all", "of another user"])
def test_a_folder_that_others_prepared_is_not_used(
    tmp_path: Path, trap: str, caplog: pytest.LogCaptureFixture
) -> None:
    query, folder = str(uuid.uuid4()), tmp_path / f"headrace-queries-{os.getuid()}"
    if trap == "symlink":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif trap == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder = tmp_path / "headrace-queries-12345"
        folder.mkdir(mode=0o700)
        (folder / query).touch()
        with try_exclusive(query) as free:
            assert free is None
        return
    QueryLock().hold(query)
    assert "runs without its lock file" in caplog.text
    assert list(folder.iterdir()) == []
