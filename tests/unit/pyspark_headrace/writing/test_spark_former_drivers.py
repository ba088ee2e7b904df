# SPDX-License-Identifier: Apache-2.0
"""When a sink looks for the transaction of a former driver: not without its name, nor its own start."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyspark_headrace.client_pool import PooledClient, close_client, pooled_client
from pyspark_headrace.writing import takeover
from pyspark_headrace.writing.takeover import abort_abandoned
from tests.compat.sink_driver import settings_for

NOBODY = "127.0.0.1:1"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> PooledClient:
    """To a broker that is away."""
    monkeypatch.setattr(takeover, "_TIMEOUT_MS", 50)
    monkeypatch.setattr(takeover, "_looked_at", set())
    yield pooled_client(NOBODY)
    close_client(NOBODY)


def test_a_sink_that_is_not_known_yet_is_not_looked_for(
    connections: PooledClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metadata").write_text("damaged")
    for checkpoint in (None, str(tmp_path), str(tmp_path / "none"), "s3://elsewhere/checkpoint"):
        settings = settings_for(NOBODY, "topic", checkpoint=checkpoint)
        assert not abort_abandoned(settings, connections, driver_started_ms=1)
    assert caplog.messages == []


def test_a_broker_that_does_not_answer_does_not_fail_the_batch(
    connections: PooledClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "the-query"}))
    settings = settings_for(NOBODY, "topic", checkpoint=f"file://{tmp_path}")
    for _ in range(2):
        assert not abort_abandoned(settings, connections, driver_started_ms=1)
    (said,) = caplog.messages
    assert said.startswith("sink the-query: whether a former driver left a transaction open is unknown: ")


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_the_driver_is_the_parent_of_the_daemon() -> None:
    program = "from pyspark_headrace.writing.takeover import _driver_started_ms as f; print(f())"
    daemon = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], check=True)"
    before_ms = time.time_ns() // 1_000_000
    jvm = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {daemon!r}], check=True)"
    told = subprocess.run([sys.executable, "-c", jvm], capture_output=True, text=True, check=True).stdout
    assert -100 < int(told) - before_ms < 2000, "its own start, on a busy machine"
