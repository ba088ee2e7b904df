# SPDX-License-Identifier: Apache-2.0
"""What a returning node removes: logs of topics deleted or made anew, and of partitions moved elsewhere."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from headrace.broker.partition.log_removals import rename_strays
from headrace.log import partition_metadata
from headrace.testing.memory_files import MemoryFiles
from headrace.types import ClusterView, PartitionState, Topic

DATA = Path("/data")
OLD, NEW = UUID(int=1), UUID(int=2)


def state(*replicas: int) -> PartitionState:
    return PartitionState(replicas=replicas, leader=replicas[0], leader_epoch=0, isr=replicas)


def view(*topics: Topic) -> ClusterView:
    return ClusterView(version=1, cluster_id="c", topics={topic.name: topic for topic in topics})


def log_on(files: MemoryFiles, name: str, topic_id: UUID | None) -> None:
    files.make_directory(DATA / name)
    partition_metadata.write(files, DATA / name, topic_id)


def test_only_logs_that_the_cluster_assigned_elsewhere_are_removed() -> None:
    files = MemoryFiles()
    for name, topic_id in {
        "kept-0": NEW,
        "kept-1": NEW,  # moved to other nodes
        "again-0": OLD,  # made anew
        "again-1.17-stray": OLD,  # set aside at an earlier start
        "gone.topic-3": OLD,  # deleted
        "nameless-0": None,
        "notes": None,
    }.items():
        log_on(files, name, topic_id)
    topics = (
        Topic(name="kept", topic_id=NEW, partitions=(state(1, 2), state(2, 3))),
        Topic(name="again", topic_id=UUID(int=3), partitions=(state(1), state(1))),
    )
    doomed = rename_strays(files, DATA, 1, view(*topics))
    names = sorted(path.name.split(".0")[0] for path in doomed)
    assert names == ["again-0", "again-1", "gone.topic-3", "kept-1"]
    assert all(files.exists(path) and path.name.endswith("-delete") for path in doomed)
    left = {name for name in files.listdir(DATA) if not name.endswith("-delete")}
    assert left == {"kept-0", "nameless-0", "notes"}
    assert rename_strays(files, DATA, 1, view(*topics)) == []


def test_logs_of_the_longest_topic_names_are_removed_too() -> None:
    files = MemoryFiles()
    name = "t" * 249
    for index in range(3):
        log_on(files, f"{name}-{index}", OLD)
    doomed = rename_strays(files, DATA, 1, view())
    assert len(set(doomed)) == 3
    assert all(path.name.endswith("-delete") for path in doomed)
    assert sorted(files.listdir(DATA)) == sorted(path.name for path in doomed)
