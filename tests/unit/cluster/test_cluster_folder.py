# SPDX-License-Identifier: Apache-2.0
"""A cluster's plan survives in its folder, and what is not one is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from headrace.cluster.engines.kafka_member import kafka_member_settings
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError, ClusterPlan, Member, plan_of
from headrace.cluster.processes import NodeProcess, began, find_process, state_of
from headrace.cluster.supervisor import plan_cluster

PLAN = ClusterPlan(
    engine="kafka",
    coordination="sqlite:/c",
    cluster_id="abc",
    settings={"num.partitions": "2"},
    members=(
        Member(node_id=0, port=1001, controller_port=2001),
        Member(node_id=1, host="10.0.0.7", port=1002, wanted="killed"),
    ),
    next_id=2,
)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    folder = ClusterFolder(tmp_path / "c")
    folder.create(PLAN)
    assert folder.read() == PLAN == plan_of(PLAN.document())


def test_changes_are_kept_and_ids_are_not_given_twice(tmp_path):
    folder = ClusterFolder(tmp_path)
    folder.create(PLAN)
    folder.change(lambda plan: plan.without(1))
    after = folder.change(lambda plan: plan.with_member(Member(node_id=plan.next_id, port=9)))
    assert [member.node_id for member in after.members] == [0, 2]
    assert folder.read().next_id == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no cluster in"),
        ("[]", "is not a cluster plan"),
        ("{", "is not a cluster plan"),
        ('{"format": 1}', "is not a cluster plan"),
        ('{"format": 9}', "written by a newer Headrace"),
    ],
)
def test_an_invalid_plan_is_refused_with_its_path(tmp_path, text, message):
    if text is not None:
        (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=message):
        ClusterFolder(tmp_path).read()


def test_there_is_one_cluster_in_a_folder_and_one_supervisor(tmp_path):
    folder = ClusterFolder(tmp_path)
    folder.create(PLAN)
    with pytest.raises(ClusterError, match="there is a cluster in"):
        folder.create(PLAN)
    assert not folder.is_supervised()
    with folder.supervised():
        assert folder.is_supervised()
        with pytest.raises(ClusterError, match="is running already"), folder.supervised():
            pass


def test_an_unknown_node_is_answered_with_those_there_are():
    with pytest.raises(ClusterError, match="node 7 is not in this cluster; its nodes are 0, 1"):
        PLAN.member(7)


def test_a_process_is_known_by_its_start_and_not_by_its_pid(tmp_path):
    own = NodeProcess(pid=os.getpid(), began="0")
    assert not own.alive
    (tmp_path / "node.pid").write_text(json.dumps({"pid": os.getpid(), "began": "0"}))
    assert find_process(tmp_path) is None
    assert find_process(tmp_path / "nowhere") is None


def test_a_zombie_process_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = NodeProcess(pid=child.pid, began=began(child.pid))
    assert process.alive
    child.kill()
    assert process.wait_end(5_000)
    child.communicate()


@pytest.mark.parametrize(
    ("wanted", "state"), [("up", "crashed"), ("killed", "killed"), ("stopped", "stopped")]
)
def test_a_node_without_a_process_is_called_by_what_was_wanted(wanted, state):
    assert state_of(replace(PLAN.members[0], wanted=wanted), None) == state


def test_nodes_added_to_kafka_are_no_voters(tmp_path):
    settings = kafka_member_settings(PLAN, PLAN.members[1], tmp_path)
    assert settings["process.roles"] == "broker"
    assert settings["controller.quorum.voters"] == "0@127.0.0.1:2001"
    assert settings["offsets.topic.replication.factor"] == "2"


def test_a_new_plan_has_consecutive_ports_from_the_first_and_a_store_of_its_own(tmp_path):
    plan = plan_cluster(
        engine="headrace",
        nodes=3,
        coordination=None,
        settings={},
        folder=ClusterFolder(tmp_path),
        first_port=7000,
    )
    assert [(each.node_id, each.port) for each in plan.members] == [(0, 7000), (1, 7001), (2, 7002)]
    assert plan.coordination == f"sqlite:{tmp_path / 'coordination'}"


def test_a_plan_that_was_written_before_there_were_cores_is_read() -> None:
    document = PLAN.document()
    assert document["format"] == 1
    del document["cores"]
    for member in document["members"]:
        del member["data"]
    assert plan_of(document) == PLAN


def test_a_plan_of_cores_is_refused_by_releases_that_do_not_know_them() -> None:
    assert replace(PLAN, cores=True).document()["format"] == 3
