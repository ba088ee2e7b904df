# SPDX-License-Identifier: Apache-2.0
"""The backoff of restarts, and who may start cores."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.cluster import supervisor as module
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError, ClusterPlan, Member
from headrace.cluster.supervisor import Supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that ends at once."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, timeout_ms: int) -> None:
        raise AssertionError("a restart does not wait")


class EndingEngine:
    def __init__(self) -> None:
        self.started = 0

    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> EndingEngine:
        return self

    def spawn(self) -> Ended:
        self.started += 1
        process = subprocess.Popen(["true"])
        process.wait()
        return Ended(process=process)


def plan_of_cores(folder: ClusterFolder) -> None:
    members = (Member(node_id=1, port=1),)
    folder.create(
        ClusterPlan(
            engine="headrace", coordination="", cluster_id="c", members=members, next_id=2, cores=True
        )
    )


def test_the_backoff_doubles_with_each_crash_and_begins_anew_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    folder, said, engine = ClusterFolder(tmp_path), list[str](), EndingEngine()
    plan_of_cores(folder)
    supervisor = Supervisor(folder, said.append, engine=engine)
    for backoff_s in (1, 2, 4, 8, 16, 30, 30):
        supervisor.restart_crashed()
        assert said[-1] == f"node 1 died; it is restarted in {backoff_s} s"
        now += backoff_s - 0.5
        supervisor.restart_crashed()
        started = engine.started
        now += 0.5
        supervisor.restart_crashed()
        assert engine.started == started + 1
    now += 61
    supervisor.restart_crashed()
    assert said[-1] == "node 1 died; it is restarted in 1 s"
    assert supervisor.restarts(1) == 7


def test_commands_start_no_core_themselves_and_add_none(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    plan_of_cores(folder)
    command = Supervisor(folder)
    with pytest.raises(ClusterError) as refused:
        command.start([1])
    assert f"headrace serve --cores 1 --data {tmp_path}" in str(refused.value.next_step)
    with pytest.raises(ClusterError, match="start it with --cores 2"):
        command.add()


def test_a_core_that_a_command_took_down_is_started_at_once_and_is_no_crash(tmp_path: Path) -> None:
    folder, said, engine = ClusterFolder(tmp_path), list[str](), EndingEngine()
    plan_of_cores(folder)
    supervisor = Supervisor(folder, said.append, engine=engine)
    folder.change(lambda plan: plan.with_member(replace(plan.member(1), wanted="killed")))
    supervisor.restart_crashed()
    assert engine.started == 0
    folder.change(lambda plan: plan.with_member(replace(plan.member(1), wanted="up")))
    supervisor.restart_crashed()
    assert (engine.started, said, supervisor.restarts(1)) == (1, [], 0)
    supervisor.restart_crashed()
    assert said == ["node 1 died; it is restarted in 1 s"]
