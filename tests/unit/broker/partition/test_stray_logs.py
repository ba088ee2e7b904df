# SPDX-License-Identifier: Apache-2.0
"""What a returning node removes: logs of topics deleted or made anew, and of partitions moved elsewhere.

And what it takes back: logs that were kept aside, of topics that the store has again (R5b).
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from headrace.broker.partition.log_removals import LogRemovals, rename_strays
from headrace.log import partition_metadata
from headrace.log.directory_names import kept_name
from headrace.testing.memory_files import MemoryFiles
from headrace.testing.simworld import Simulation
from headrace.types import ClusterView, PartitionState, Topic

DATA = Path("/data")
OLD, NEW = UUID(int=1), UUID(int=2)


def state(*replicas: int) -> PartitionState:
    return PartitionState(replicas=replicas, leader=replicas[0], leader_epoch=0, isr=replicas)


def view(*topics: Topic) -> ClusterView:
    return ClusterView(
        version=1,
        cluster_id="c",
        topics={topic.name: topic for topic in topics},
        topic_names={topic.topic_id: topic.name for topic in topics},
    )


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


def taken_back(on_disk: dict[str, UUID | None], *topics: Topic) -> tuple[list[str], dict[str, UUID]]:
    """Names on the disk after it, and which logs were taken back."""
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        for name, topic_id in on_disk.items():
            log_on(world.files, name, topic_id)
        taken = LogRemovals(world, 1, DATA).take_back(view(*topics))
        return world.files.listdir(DATA), {str(name): topic_id for name, topic_id in taken.items()}


def test_a_kept_log_is_taken_back_when_the_store_has_its_topic() -> None:
    topic = Topic(name="orders", topic_id=OLD, partitions=(state(1), state(2)))
    on_disk = {
        "orders-0.17-kept": OLD,
        "orders-1.17-kept": OLD,  # of other nodes
        "orders-2.17-kept": OLD,  # there is no such partition
        "gone-0.17-kept": NEW,
    }
    names, taken = taken_back(on_disk, topic)
    assert taken == {"orders-0": OLD}
    assert set(names) == {"orders-0", "orders-1.17-kept", "orders-2.17-kept", "gone-0.17-kept"}


def test_of_several_kept_logs_the_last_one_is_taken_back_and_no_stray_before_it() -> None:
    topic = Topic(name="orders", topic_id=OLD, partitions=(state(1),))
    on_disk: dict[str, UUID | None] = dict.fromkeys(
        ("orders-0.17-kept", "orders-0.18-kept", "orders-0.15-stray.19-kept"), OLD
    )
    names, _ = taken_back(on_disk, topic)
    assert set(names) == {"orders-0", "orders-0.17-kept", "orders-0.15-stray.19-kept"}
    names, taken = taken_back({"orders-0.15-stray.19-kept": OLD}, topic)
    assert (names, taken) == (["orders-0"], {"orders-0": OLD})


def test_a_kept_log_takes_the_place_of_another_topics_and_not_of_its_own() -> None:
    topic = Topic(name="orders", topic_id=OLD, partitions=(state(1),))
    names, taken = taken_back({"orders-0": OLD, "orders-0.17-kept": OLD}, topic)
    assert (set(names), taken) == ({"orders-0", "orders-0.17-kept"}, {})
    names, taken = taken_back({"orders-0": NEW, "orders-0.17-kept": OLD}, topic)
    assert taken == {"orders-0": OLD}
    (kept,) = set(names) - {"orders-0"}
    assert kept.startswith("orders-0.")
    assert kept.endswith("-kept")


def test_a_kept_log_of_a_long_topic_name_is_known_by_its_id() -> None:
    name = "t" * 249
    topic = Topic(name=name, topic_id=OLD, partitions=(state(1),))
    shortened = kept_name(f"{name}-0", 1_700_000_000_000)
    assert name not in shortened
    assert taken_back({shortened: OLD}, topic) == ([f"{name}-0"], {f"{name}-0": OLD})
