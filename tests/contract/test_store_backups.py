# SPDX-License-Identifier: Apache-2.0
"""Backups of a SQLite store in use, and what is said of a damaged one."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.coordination.recovery.integrity import DamagedDatabase
from headrace.coordination.restore.backups import (
    FOLDER,
    INTERVAL,
    KEPT,
    StoreBackups,
    back_up,
    backup_name,
    list_backups,
    taken_at_ms,
    verify,
)
from headrace.coordination.sqlite import ENTRIES_FILE, SqliteStore
from headrace.coordination.store import Create
from headrace.errors import CoordinationError
from headrace.realworld import RealFiles, RealWorld

FILES = RealFiles()


def with_store(folder: Path, scenario: Callable[[SqliteStore], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = RealWorld()
        store = await SqliteStore.open(world, folder)
        try:
            await scenario(store)
        finally:
            await store.close()
            await world.tasks.close()

    asyncio.run(main())


def filled(folder: Path, entries: int = 400) -> None:
    async def scenario(store: SqliteStore) -> None:
        await store.commit([Create(f"/topics/t{n}", b"x" * 200) for n in range(entries)])

    with_store(folder, scenario)


def test_a_backup_has_every_commit_before_it_and_is_one_private_file(tmp_path: Path) -> None:
    target = tmp_path / "copies" / "backup.db"
    target.parent.mkdir()

    async def scenario(store: SqliteStore) -> None:
        for number in range(5):
            await store.commit([Create(f"/{number}", b"")])
        back_up(FILES, tmp_path / "store" / ENTRIES_FILE, target)
        await store.commit([Create("/later", b"")])

    with_store(tmp_path / "store", scenario)
    assert verify(target) == 5
    assert [path.name for path in target.parent.iterdir()] == ["backup.db"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    connection = sqlite3.connect(target)
    assert [key for (key,) in connection.execute("SELECT key FROM entries ORDER BY key")] == [
        f"/{number}" for number in range(5)
    ]
    connection.close()


def test_a_backup_of_a_damaged_store_fails_and_leaves_the_one_before(tmp_path: Path) -> None:
    filled(tmp_path)
    source, target = tmp_path / ENTRIES_FILE, tmp_path / "backup.db"
    back_up(FILES, source, target)
    before = target.read_bytes()
    damage(source)
    with pytest.raises(CoordinationError, match="damaged"):
        back_up(FILES, source, target)
    assert target.read_bytes() == before
    assert not (tmp_path / "backup.db.tmp").exists()


def test_names_sort_by_time_and_say_it() -> None:
    times = [0, 999, 1_000, 1_763_558_400_123]
    names = [backup_name(at) for at in times]
    assert names == sorted(names)
    assert [taken_at_ms(name) for name in names] == times
    assert taken_at_ms("coordination.db") is None


class StoppedClock:
    def __init__(self) -> None:
        self.now_ms = 1_763_558_400_000

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms


def world_at(clock: StoppedClock) -> RealWorld:
    world = RealWorld()
    world.clock = clock
    return world


def test_the_controller_takes_one_per_interval_and_keeps_so_many(tmp_path: Path) -> None:
    filled(tmp_path)
    clock, controller = StoppedClock(), [False]
    settings = {INTERVAL: 60_000, KEPT: 3}
    folder = tmp_path / FOLDER

    async def main() -> None:
        world = world_at(clock)
        database = tmp_path / ENTRIES_FILE
        backups = StoreBackups(
            world, database, setting=settings.__getitem__, is_controller=lambda: controller[0]
        )
        await backups.take_if_due()
        assert not folder.exists(), "another node takes them"
        assert backups.age_s is None
        controller[0] = True
        seen = []
        for _ in range(10):
            await backups.take_if_due()
            seen.append(len(list_backups(FILES, folder)))
            clock.now_ms += 30_000
        assert seen == [1, 1, 2, 2, 3, 3, 3, 3, 3, 3]
        assert backups.age_s == 60.0
        newest = list_backups(FILES, folder)[-1]
        assert taken_at_ms(newest) == clock.now_ms - 60_000
        (folder / "coordination-20200101T000000.000Z.db.tmp").touch()
        await backups.take_if_due()
        assert all(name.endswith(".db") for name in FILES.listdir(folder)), "what a crash left is removed"
        settings[INTERVAL] = 0
        clock.now_ms += 600_000
        before = list_backups(FILES, folder)
        await backups.take_if_due()
        assert list_backups(FILES, folder) == before
        await world.tasks.close()

    asyncio.run(main())
    assert verify(folder / list_backups(FILES, folder)[-1]) == 1


def test_a_backup_that_failed_is_tried_again_after_a_minute_only(tmp_path: Path) -> None:
    clock = StoppedClock()

    async def main() -> None:
        world = world_at(clock)
        settings = {INTERVAL: 1_000, KEPT: 3}
        backups = StoreBackups(
            world, tmp_path / ENTRIES_FILE, setting=settings.__getitem__, is_controller=lambda: True
        )
        with pytest.raises(CoordinationError, match="there is no coordination database"):
            await backups.take_if_due()
        clock.now_ms += 30_000
        await backups.take_if_due()
        clock.now_ms += 31_000
        with pytest.raises(CoordinationError):
            await backups.take_if_due()
        await world.tasks.close()

    asyncio.run(main())


# Damage


def damage(path: Path) -> None:
    """Overwrites a page in the middle, as a failing disk would."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 4096)


def opened(folder: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await store.view()

    with_store(folder, scenario)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)


@pytest.mark.parametrize("harm", [damage, cut])
def test_a_damaged_store_is_named_with_what_is_wrong_and_the_command_to_run(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    filled(tmp_path)
    path = tmp_path / ENTRIES_FILE
    (tmp_path / FOLDER).mkdir()
    backups = [tmp_path / FOLDER / backup_name(at) for at in (1_000, 2_000)]
    for backup in backups:
        back_up(FILES, path, backup)
    harm(path)
    with pytest.raises(DamagedDatabase) as caught:
        opened(tmp_path)
    message = str(caught.value)
    assert str(path) in message
    assert f"headrace store restore {backups[-1]} --coordination sqlite:{tmp_path}" in message


def test_without_a_backup_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / ENTRIES_FILE).write_bytes(b"certainly no database" * 100)
    with pytest.raises(DamagedDatabase, match=f"no backup in {tmp_path / FOLDER}"):
        opened(tmp_path)


def test_a_damaged_file_of_sessions_is_no_loss_and_said_so(tmp_path: Path) -> None:
    filled(tmp_path)
    (leases,) = tmp_path.glob("liveness-*.db")
    leases.write_bytes(b"certainly no database" * 100)
    with pytest.raises(DamagedDatabase, match="remove it") as caught:
        opened(tmp_path)
    assert str(leases) in str(caught.value)
    leases.unlink()
    opened(tmp_path)
