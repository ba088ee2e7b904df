# SPDX-License-Identifier: Apache-2.0
"""What the transaction measures compute for themselves: rates and latencies of several producers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.transactional_clients import Commits, Gate, commit_ms, rate_of
from tests.harness.waiting import wait_until


def test_a_rate_counts_while_all_producers_are_at_work() -> None:
    early = Commits(started=0.0, calls=[(0.5, 1.0), (1.5, 2.0), (2.5, 3.0), (3.5, 4.0)])
    late = Commits(started=1.5, calls=[(2.4, 2.5), (3.4, 3.5), (4.4, 4.5), (5.4, 5.5)])
    assert rate_of([early, late]) == 5 / 2.5


def test_producers_that_never_worked_together_have_no_rate() -> None:
    first = Commits(started=0.0, calls=[(0.5, 1.0)])
    with pytest.raises(TimeoutError, match="never all at work"):
        rate_of([first, Commits(started=2.0, calls=[(2.5, 3.0)])])


def test_latency_is_that_of_the_commit_calls_of_all() -> None:
    quick = Commits(started=0.0, calls=[(1.0, 1.25), (2.0, 2.25), (3.0, 3.25)])
    slow = Commits(started=0.0, calls=[(1.0, 3.0)])
    assert commit_ms([quick, slow], 50) == 250
    assert commit_ms([quick, slow], 99) == 2000


def test_a_gate_opens_when_all_processes_are_there(tmp_path: Path) -> None:
    gate = Gate(folder=tmp_path, processes=2)
    waiting = threading.Thread(target=gate.wait)
    waiting.start()
    wait_until(lambda: bool(list(tmp_path.iterdir())), "the first process to come", timeout_s=10)
    assert waiting.is_alive()
    (tmp_path / "other").touch()
    waiting.join(10)
    assert not waiting.is_alive()
