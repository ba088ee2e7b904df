# SPDX-License-Identifier: Apache-2.0
"""The history of a coordination store, over all kinds; and a store that was put back to an older copy."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.restore.remembered import POSITION_FILE, RememberedStore
from headrace.coordination.sqlite import ENTRIES_FILE, SqliteStore
from headrace.coordination.store import Create, StoreWentBack
from headrace.realworld import RealWorld
from tests.contract.store_backends import Backend, Run
from tests.harness.waiting import until

ADDRESS = "sqlite:/srv/store"


def test_nodes_that_start_together_begin_epochs_at_exact_commits(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        clusters = [await ClusterMetadata.open(await backend.open(), RealWorld()) for _ in range(4)]
        writer = await backend.open()

        async def write() -> None:
            for number in range(10):
                await writer.commit([Create(f"/other/{number}", b"")])

        starting = (cluster.begin_store_epoch() for cluster in clusters)
        await asyncio.gather(write(), *starting)
        found = []
        for cluster in clusters:
            await cluster.catch_up()
            found.append(cluster.store_history)
        assert found[0].epochs
        assert found == [found[0]] * 4
        epochs = found[0].epochs
        assert [epoch.number for epoch in epochs] == [1, 2, 3, 4]
        assert len({epoch.id for epoch in epochs}) == 4
        starts = [epoch.start for epoch in epochs]
        assert starts == sorted(set(starts))
        commits = {cluster.commits for cluster in clusters}
        assert commits == {(await writer.view()).commits}
        assert starts[-1] <= commits.pop()
        for cluster in clusters:
            await cluster.close()

    run(scenario)


class Node:
    """A node's memory of a SQLite store; a store and a data folder of its own."""

    def __init__(self, folder: Path, name: str = "node") -> None:
        self.store = folder / "store"
        self.data = folder / name
        self.data.mkdir(exist_ok=True)

    def start(self, *, writes: int = 0) -> bool:
        """Starts and stops; whether it was told that the store was restored."""

        async def main() -> bool:
            world = RealWorld()
            store = await SqliteStore.open(world, self.store)
            try:
                cluster = await ClusterMetadata.open(store, world)
                remembered = RememberedStore(world, self.data, ADDRESS)
                restored = await remembered.check(cluster)
                for number in range(writes):
                    await store.commit([Create(f"/{cluster.commits}/{number}", b"")])
                await cluster.catch_up()
                await remembered.save(cluster)
                await cluster.close()
                return restored
            finally:
                await store.close()
                await world.tasks.close()

        return asyncio.run(main())


def copy(folder: Path, name: str) -> None:
    shutil.copytree(folder / "store", folder / name)


def put_back(folder: Path, name: str) -> None:
    shutil.rmtree(folder / "store")
    shutil.copytree(folder / name, folder / "store")


def test_a_sqlite_store_that_was_put_back_is_refused_with_the_command_that_goes_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.start(writes=3)
    copy(tmp_path, "older")
    node.start(writes=3)
    copy(tmp_path, "newest")
    put_back(tmp_path, "older")
    before = (tmp_path / "store" / ENTRIES_FILE).read_bytes()
    with pytest.raises(StoreWentBack) as caught:
        node.start()
    assert f"headrace store accept --coordination {ADDRESS}" in str(caught.value)
    assert "put back to an older copy" in str(caught.value)
    assert (tmp_path / "store" / ENTRIES_FILE).read_bytes() == before, "the refused store is left as it was"
    put_back(tmp_path, "newest")
    assert node.start() is False


def test_a_node_that_had_seen_less_does_not_hide_it_from_the_others(tmp_path: Path) -> None:
    late, other = Node(tmp_path, "late"), Node(tmp_path, "other")
    late.start(writes=1)
    copy(tmp_path, "older")
    other.start(writes=2)
    put_back(tmp_path, "older")
    late.start(writes=50)
    with pytest.raises(StoreWentBack):
        other.start()


def test_a_folder_of_an_earlier_release_takes_the_store(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.start(writes=3)
    (node.data / POSITION_FILE).unlink()
    assert node.start() is False


def test_a_store_of_an_earlier_release_is_opened(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.start(writes=3)
    connection = sqlite3.connect(tmp_path / "store" / ENTRIES_FILE)
    with connection:
        connection.execute("DELETE FROM entries WHERE key = '/store_history'")
    connection.close()
    fresh = Node(tmp_path, "fresh")
    assert fresh.start() is False


def test_a_damaged_memory_is_said_and_does_not_keep_a_node_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.start()
    (node.data / POSITION_FILE).write_bytes(b"{torn")
    assert node.start() is False
    assert POSITION_FILE in caplog.text


class StoppedClock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_a_node_is_told_when_the_store_stays_older_than_what_it_has_read(tmp_path: Path) -> None:
    """For less than half a minute a server that was cut off may have answered."""

    async def main() -> None:
        world, clock = RealWorld(), StoppedClock()
        store = await SqliteStore.open(world, tmp_path / "store")
        cluster = await ClusterMetadata.open(store, world)
        world.clock = clock
        told: list[StoreWentBack] = []
        cluster.on_store_went_back(told.append)
        error = StoreWentBack("older")
        cluster.store_went_back(error)
        clock.now += 29
        cluster.store_went_back(error)
        assert told == []
        await store.commit([Create("/a", b"")])  # the store answers again
        await cluster.catch_up()
        await until(lambda: cluster._went_back_at is None)
        clock.now += 5
        cluster.store_went_back(error)
        assert told == []
        clock.now += 30
        cluster.store_went_back(error)
        assert told == [error]
        await cluster.close()
        await world.tasks.close()

    asyncio.run(main())
