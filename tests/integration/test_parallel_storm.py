# SPDX-License-Identifier: Apache-2.0
"""Members of a group of parallel consumers that are killed, stopped, frozen and started again at random."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.harness.live.node import NodeProcess
from tests.integration.test_parallel_consumer import (
    QUICK_GROUPS,
    Program,
    check_order_and_loss,
    committed,
    ends,
    fill,
)

RECORDS = 60_000
MEMBERS = 3
LIMIT_S = 280


class Storm:
    def __init__(self, node: NodeProcess, topic: str, notes: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._node, self._topic, self._notes = node, topic, notes
        self.members = [self._start() for _ in range(MEMBERS)]

    def _start(self) -> Program:
        pause_ms = self._random.choice([2, 5, 10])
        executor = self._random.choice(["threads", "threads", "processes"])
        return Program(self._node.bootstrap, self._topic, self._notes, pause_ms, executor)

    def blow(self) -> None:
        """One member dies, leaves in good order, or is frozen for longer or shorter than its session."""
        index = self._random.randrange(MEMBERS)
        member, number = (
            self.members[index],
            self._random.choice(["SIGKILL", "SIGTERM", "SIGTERM", "SIGSTOP"]),
        )
        if number == "SIGSTOP":
            member.process.send_signal(signal.SIGSTOP)
            time.sleep(self._random.uniform(1, 4))  # how long the member stands still
            member.process.send_signal(signal.SIGCONT)
            return
        assert member.end(signal.Signals[number]) == ""
        self.members[index] = self._start()

    def calm(self) -> None:
        time.sleep(self._random.uniform(0.3, 2.5))  # the next blow comes at any moment

    def end(self) -> list[tuple[int, int, str]]:
        for member in self.members:
            assert member.end(signal.SIGTERM) == ""
        return self.members[0].handled()


@pytest.mark.soak
@pytest.mark.row("D15")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_members_loses_and_reorders_nothing(start_node, topic, tmp_path, seed):
    node = start_node(QUICK_GROUPS)
    fill(node.bootstrap, topic, RECORDS)
    end_offsets = ends(node.bootstrap, topic)
    storm = Storm(node, topic, tmp_path / "notes", seed)
    deadline = time.monotonic() + LIMIT_S
    before: dict[int, int] = {}
    while before != end_offsets:
        assert time.monotonic() < deadline, f"committed only {before} of {end_offsets}"
        storm.blow()
        storm.calm()
        now = committed(node.bootstrap, topic, topic)
        assert all(now[index] >= offset for index, offset in before.items()), "a commit went back"
        before = now
    check_order_and_loss(storm.end(), end_offsets)
