# SPDX-License-Identifier: Apache-2.0
"""The demo on Apache Kafka: the same scenes, and the move from Headrace by MirrorMaker 2."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.compat_jvm, pytest.mark.timeout(900)]
COMMAND = [sys.executable, "-m", "headrace.cli.main", "demo", "--engine", "kafka"]


def play(*scenes: str) -> str:
    chosen = [word for scene in scenes for word in ("--scene", scene)]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [*COMMAND, *chosen], capture_output=True, text=True, timeout=800, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_topic_and_the_offsets_of_a_group_are_moved_from_headrace() -> None:
    shown = play("move")
    assert "✓ it received what it had not read before the move" in shown
    assert "All as promised (1 scene" in shown


def test_a_leader_dies_and_the_order_of_replicas_is_explained() -> None:
    shown = play("failover")
    assert "node 1 is the last in the list of partition 0" in " ".join(shown.split())
    assert "All as promised (1 scene" in shown
