"""A query's sign of life, and the file that asks it to stop."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pytest

from pyspark_headrace.presence import Presence, asked_to_stop, nobody_runs


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_query_shows_that_it_runs_until_its_process_ends() -> None:
    query = str(uuid.uuid4())
    with nobody_runs(query) as free:
        assert free is None, "it was never seen here"
    first, second = Presence(), Presence()
    for shown in (first, second, first):
        shown.show(query)
    with nobody_runs(query) as free:
        assert free is False
    first.close()
    with nobody_runs(query) as free:
        assert free is False, "another process runs it too"
    second.close()
    with nobody_runs(query) as free:
        assert free is True


def test_a_query_that_starts_while_somebody_looks_shows_itself_at_its_next_trigger() -> None:
    query = str(uuid.uuid4())
    presence = Presence()
    presence.show(query)
    presence.close()
    with nobody_runs(query) as free:
        assert free
        presence.show(query)
    presence.show(query)
    with nobody_runs(query) as free:
        assert free is False
    presence.close()


def test_a_query_that_can_leave_no_sign_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    presence = Presence()
    presence.show("../../etc/passwd")
    presence.show("../../etc/passwd")
    assert [record.getMessage() for record in caplog.records] == [
        "no sign that query ../../etc/passwd runs could be left: '../../etc/passwd' is no query's id"
    ]
    assert list(tmp_path.iterdir()) == []


def test_whoever_asks_a_query_to_stop_learns_that_it_was_seen(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    assert not asked_to_stop(str(file))
    assert not file.exists()
    file.touch()
    assert asked_to_stop(str(file))
    assert asked_to_stop(str(file))
    assert file.stat().st_size == 2
