# SPDX-License-Identifier: Apache-2.0
"""What every coordination store promises (R1); see coordination/store.py. Each test runs on all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.coordination.store import (
    MAX_COMMIT_BYTES,
    WHOLE_STORE,
    Applied,
    Changes,
    Check,
    Conflict,
    Create,
    Delete,
    SessionLost,
    Set,
    Store,
)
from headrace.errors import CoordinationError
from tests.contract.store_backends import REMEMBERED_REMOVALS, Backend, Run
from tests.harness.waiting import until

SHORT_TTL_MS = 200
LONG_TTL_MS = 30_000


async def version_of(store: Store, key: str) -> int:
    return (await store.view()).entries[key].version


async def values(store: Store) -> dict[str, bytes]:
    return {key: entry.value for key, entry in (await store.view()).entries.items()}


# Reading and writing


def test_a_new_store_is_empty(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        view = await (await backend.open()).view()
        assert dict(view.entries) == {}
        assert view.version == 0

    run(scenario)


def test_every_effective_commit_raises_and_returns_the_version(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        first = await store.commit([Create("/a", b"1")])
        second = await store.commit([Create("/b", b"2")])
        assert isinstance(first, Applied)
        assert isinstance(second, Applied)
        assert first.version < second.version == (await store.view()).version

    run(scenario)


def test_commits_are_counted(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        assert (await store.view()).commits == 0
        for number in range(3):
            await other.commit([Create(f"/{number}", b"")])
        view = await store.view()
        assert view.commits == 3
        assert (await store.changes(0, 60_000)).commits == 3
        assert (await store.changes(view.version, 0)).commits == 3

    run(scenario)


def test_a_commit_may_depend_on_the_store_as_a_whole(run: Run) -> None:
    """Of another process's commit in between nothing is overwritten, and nothing of its own applied."""

    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        commits = (await store.view()).commits
        await other.commit([Create("/a", b"other")])
        late = await store.commit([Check(WHOLE_STORE, commits), Create("/b", b"late")])
        assert late == Conflict(WHOLE_STORE)
        assert await values(store) == {"/a": b"other"}
        present = Check(WHOLE_STORE, (await store.view()).commits)
        assert isinstance(await store.commit([present, Create("/b", b"now")]), Applied)
        assert await values(other) == {"/a": b"other", "/b": b"now"}
        with pytest.raises(ValueError):
            await store.commit([Create(WHOLE_STORE, b"")])

    run(scenario)


def test_an_empty_commit_applies_and_returns_the_newest_version(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        done = await other.commit([Create("/a", b"1")])
        assert await store.commit([]) == done

    run(scenario)


def test_a_commit_of_checks_alone_changes_no_version(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        done = await store.commit([Create("/a", b"1")])
        assert await store.commit([Check("/a", await version_of(store, "/a"))]) == done

    run(scenario)


def test_values_of_any_bytes_come_back_as_they_were(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        payload = bytes(range(256)) * 300
        await store.commit([Create("/empty", b""), Create("/bytes", payload)])
        assert await values(store) == {"/empty": b"", "/bytes": payload}

    run(scenario)


def test_a_view_lists_keys_in_order_and_never_changes_afterwards(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/b", b"1"), Create("/a/x", b"1"), Create("/a", b"1")])
        before = await store.view()
        await store.commit([Create("/c", b"1")])
        assert list(before.entries) == ["/a", "/a/x", "/b"]

    run(scenario)


def test_a_view_holds_what_another_store_has_committed(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one, two = await backend.open(), await backend.open()
        await one.commit([Create("/a", b"1")])
        assert await values(two) == {"/a": b"1"}

    run(scenario)


# Conditions


def test_create_expects_absence(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        assert await store.commit([Create("/a", b"2")]) == Conflict("/a")
        assert await values(store) == {"/a": b"1"}

    run(scenario)


@pytest.mark.parametrize("operation", [Check, Delete, lambda key, version: Set(key, b"x", version)])
def test_check_set_and_delete_expect_a_version(run: Run, operation: Callable[..., Any]) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        stale = await version_of(store, "/a")
        await store.commit([Set("/a", b"2", stale)])
        assert await store.commit([operation("/a", stale)]) == Conflict("/a")
        assert await store.commit([operation("/missing", 0)]) == Conflict("/missing")
        assert isinstance(await store.commit([operation("/a", await version_of(store, "/a"))]), Applied)

    run(scenario)


def test_each_write_of_an_entry_changes_its_version(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"same")])
        seen = [await version_of(store, "/a")]
        for _ in range(3):
            await store.commit([Set("/a", b"same", seen[-1])])
            seen.append(await version_of(store, "/a"))
        assert len(set(seen)) == len(seen)

    run(scenario)


def test_a_write_elsewhere_leaves_the_version_of_an_entry(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        version = await version_of(store, "/a")
        await store.commit([Create("/b", b"1")])
        assert await version_of(store, "/a") == version

    run(scenario)


def test_one_wrong_condition_undoes_the_whole_commit(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1"), Create("/b", b"1"), Create("/c", b"1")])
        before = await store.view()
        a, b, c = (before.entries[key].version for key in ("/a", "/b", "/c"))
        outcome = await store.commit(
            [Set("/a", b"2", a), Delete("/b", b), Create("/d", b"2"), Check("/c", c + 100)]
        )
        assert outcome == Conflict("/c")
        after = await store.view()
        assert after == before

    run(scenario)


def test_the_first_wrong_condition_is_the_one_named(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        outcome = await store.commit([Create("/new", b""), Create("/a", b""), Delete("/missing", 1)])
        assert outcome == Conflict("/a")

    run(scenario)


def test_operations_of_one_commit_see_those_before_them(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"old")])
        before = (await store.view()).entries["/a"]
        done = await store.commit([Delete("/a", before.version), Create("/a", b"new")])
        assert isinstance(done, Applied)
        after = (await store.view()).entries["/a"]
        assert after.value == b"new"
        assert after.created > before.created
        assert await store.commit([Create("/b", b""), Create("/b", b"")]) == Conflict("/b")

    run(scenario)


def test_the_created_version_of_an_entry_is_constant_and_unique(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        seen: list[int] = []
        for _ in range(3):
            await store.commit([Create("/a", b"1")])
            entry = (await store.view()).entries["/a"]
            await store.commit([Set("/a", b"2", entry.version)])
            again = (await store.view()).entries["/a"]
            assert again.created == entry.created
            seen.append(entry.created)
            await store.commit([Delete("/a", again.version)])
        assert seen == sorted(set(seen))

    run(scenario)


def test_of_many_racing_writers_exactly_one_wins(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        stores = [await backend.open() for _ in range(3)]
        for turn in range(10):
            outcomes = await asyncio.gather(
                *(store.commit([Create(f"/turn-{turn}", str(n).encode())]) for n, store in enumerate(stores))
            )
            winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Applied)]
            assert len(winners) == 1
            assert (await values(stores[0]))[f"/turn-{turn}"] == str(winners[0]).encode()

    run(scenario)


def test_counting_up_by_conditional_writes_loses_no_step(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        stores = [await backend.open() for _ in range(3)]
        await stores[0].commit([Create("/n", b"0")])

        async def count(store: Store) -> None:
            for _ in range(10):
                while True:
                    entry = (await store.view()).entries["/n"]
                    following = str(int(entry.value) + 1).encode()
                    if isinstance(await store.commit([Set("/n", following, entry.version)]), Applied):
                        break

        await asyncio.gather(*map(count, stores))
        assert (await values(stores[0]))["/n"] == b"30"

    run(scenario)


@pytest.mark.parametrize("key", ["", "a", "/", "/a/", "//a", "/a b", "/a/../b", "/.", "/ü", "/" + "x" * 256])
def test_invalid_keys_are_refused(run: Run, key: str) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        with pytest.raises(ValueError, match="not a coordination key"):
            await store.commit([Create(key, b"")])

    run(scenario)


@pytest.mark.parametrize("operation", [Check("/a", -1), Set("/a", b"", -1), Delete("/a", -1)])
def test_no_version_stands_for_any_version(run: Run, operation: Any) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        with pytest.raises(ValueError, match="not a version"):
            await store.commit([operation])
        assert await values(store) == {"/a": b"1"}

    run(scenario)


def test_topic_names_make_keys(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        names = ["...", "a.b", ".hidden", "A_b-C.9", "x" * 249]
        await store.commit([Create(f"/topics/{name}", b"") for name in names])
        assert set(await values(store)) == {f"/topics/{name}" for name in names}

    run(scenario)


def test_a_commit_above_the_limit_is_refused_and_one_at_the_limit_is_not(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        with pytest.raises(ValueError, match="above the limit"):
            await store.commit([Create("/a", bytes(MAX_COMMIT_BYTES))])
        assert isinstance(await store.commit([Create("/a", bytes(MAX_COMMIT_BYTES - 2))]), Applied)

    run(scenario)


# Changes


def test_changes_list_what_was_written_and_removed_since(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/kept", b"1"), Create("/set", b"1"), Create("/gone", b"1")])
        before = await store.view()
        await store.commit([Set("/set", b"2", before.entries["/set"].version)])
        await store.commit([Delete("/gone", before.entries["/gone"].version), Create("/new", b"1")])
        changes = await store.changes(before.version, 1000)
        told = {key: entry and entry.value for key, entry in changes.changed.items()}
        assert told == {"/set": b"2", "/gone": None, "/new": b"1"}
        assert not changes.complete
        assert changes.version == (await store.view()).version

    run(scenario)


def test_changes_carry_the_same_entries_as_a_view(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        session = await store.open_session(LONG_TTL_MS)
        await store.commit([Create("/a", b"1", owner=session.id), Create("/b", b"2")])
        changes = await store.changes(0, 1000)
        assert changes.changed == (await store.view()).entries

    run(scenario)


def test_several_changes_of_a_key_are_one(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1"), Create("/b", b"1")])
        before = await store.view()
        await store.commit([Delete("/a", before.entries["/a"].version)])
        await store.commit([Create("/a", b"again")])
        await store.commit([Delete("/b", before.entries["/b"].version)])
        await store.commit([Create("/never-seen", b"1")])
        await store.commit([Delete("/never-seen", await version_of(store, "/never-seen"))])
        changed = (await store.changes(before.version, 1000)).changed
        assert {key: entry and entry.value for key, entry in changed.items() if key != "/never-seen"} == {
            "/a": b"again",
            "/b": None,
        }
        assert changed.get("/never-seen") is None

    run(scenario)


def test_past_changes_are_returned_at_once(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        changes = await asyncio.wait_for(store.changes(0, 60_000), 5)
        assert "/a" in changes.changed

    run(scenario)


def test_without_a_change_the_time_out_ends_the_wait(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        view = await store.view()
        started = time.monotonic()
        unchanged = Changes(version=view.version, changed={}, commits=view.commits)
        assert await store.changes(view.version, 50) == unchanged
        assert 0.04 < time.monotonic() - started < 3

    run(scenario)


@pytest.mark.parametrize("by_the_same_store", [True, False])
def test_a_change_wakes_those_who_wait(run: Run, by_the_same_store: bool) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        writer = store if by_the_same_store else await backend.open()
        waits = [asyncio.ensure_future(store.changes(0, 60_000)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert not any(wait.done() for wait in waits)
        await writer.commit([Create("/a", b"1")])
        told = await asyncio.wait_for(asyncio.gather(*waits), 5)
        assert all(set(changes.changed) == {"/a"} for changes in told)

    run(scenario)


def test_a_conflicting_commit_wakes_no_waiter(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/a", b"1")])
        version = (await store.view()).version
        waiting = asyncio.ensure_future(store.changes(version, 150))
        await store.commit([Create("/a", b"2")])
        assert (await waiting).changed == {}

    run(scenario)


def test_following_the_changes_ends_at_the_same_state_as_a_view(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        reader, writer = await backend.open(), await backend.open()
        state: dict[str, bytes] = {}

        async def follow() -> None:
            version = 0
            while "/end" not in state:
                changes = await reader.changes(version, 60_000)
                if changes.complete:
                    state.clear()
                for key, entry in changes.changed.items():
                    if entry is None:
                        state.pop(key, None)
                    else:
                        state[key] = entry.value
                version = changes.version

        following = asyncio.ensure_future(follow())
        for n in range(60):
            await writer.commit([Create(f"/k{n}", str(n).encode())])
            if n % 3 == 0:
                await writer.commit([Delete(f"/k{n}", await version_of(writer, f"/k{n}"))])
        await writer.commit([Create("/end", b"")])
        await asyncio.wait_for(following, 20)
        assert state == await values(writer)

    run(scenario)


def test_a_store_without_old_removals_returns_all_entries(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        await store.commit([Create("/old", b"1"), Create("/kept", b"1")])
        before = await store.view()
        await store.commit([Delete("/old", before.entries["/old"].version)])
        for n in range(2 * REMEMBERED_REMOVALS):
            await store.commit([Create(f"/k{n}", b"")])
            await store.commit([Delete(f"/k{n}", await version_of(store, f"/k{n}"))])
        changes = await store.changes(before.version, 1000)
        assert changes.complete
        assert set(changes.changed) == {"/kept"}
        recent = await store.changes(changes.version - 4, 1000)
        assert not recent.complete

    run(scenario)


# Sessions


def test_an_entry_ends_with_the_session_that_owns_it(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        session = await store.open_session(LONG_TTL_MS)
        await store.commit([Create("/lasting", b"1"), Create("/node", b"1", owner=session.id)])
        assert (await other.view()).entries["/node"].owner == session.id
        before = (await other.view()).version
        await session.close()
        assert await values(other) == {"/lasting": b"1"}
        changes = await other.changes(before, 5000)
        assert changes.changed == {"/node": None}

    run(scenario)


def test_a_session_that_is_not_renewed_ends(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        session = await store.open_session(SHORT_TTL_MS)
        started = time.monotonic()
        await store.commit([Create("/node", b"1", owner=session.id)])
        await until(lambda: _gone(other, "/node"))
        assert time.monotonic() - started >= SHORT_TTL_MS / 1000 * 0.9
        with pytest.raises(SessionLost):
            await session.renew()
        assert session.lost

    run(scenario)


def test_a_session_that_is_renewed_goes_on(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        session = await store.open_session(SHORT_TTL_MS * 2)
        await store.commit([Create("/node", b"1", owner=session.id)])
        for _ in range(20):
            await asyncio.sleep(SHORT_TTL_MS / 4000)
            await session.renew()
        assert "/node" in await values(other)

    run(scenario)


def test_an_ended_session_can_own_nothing_more(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        session = await store.open_session(LONG_TTL_MS)
        await session.close()
        with pytest.raises(SessionLost):
            await store.commit([Create("/other", b"1"), Create("/node", b"1", owner=session.id)])
        assert await values(store) == {}

    run(scenario)


def test_sessions_do_not_end_each_other(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        mine, theirs = await store.open_session(LONG_TTL_MS), await other.open_session(LONG_TTL_MS)
        assert mine.id != theirs.id
        await store.commit([Create("/mine", b"1", owner=mine.id)])
        await other.commit([Create("/theirs", b"1", owner=theirs.id)])
        await mine.close()
        assert await values(store) == {"/theirs": b"1"}

    run(scenario)


def test_an_owned_entry_can_be_set_and_deleted_by_anyone_who_knows_its_version(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        session = await store.open_session(LONG_TTL_MS)
        await store.commit([Create("/node", b"1", owner=session.id)])
        await other.commit([Set("/node", b"2", await version_of(other, "/node"))])
        entry = (await store.view()).entries["/node"]
        assert (entry.value, entry.owner) == (b"2", session.id)
        assert isinstance(await other.commit([Delete("/node", entry.version)]), Applied)
        await other.commit([Create("/node", b"3")])
        await session.close()
        assert await values(other) == {"/node": b"3"}

    run(scenario)


def test_closing_a_store_ends_its_sessions_and_nothing_else(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        session = await store.open_session(LONG_TTL_MS)
        await store.commit([Create("/node", b"1", owner=session.id), Create("/lasting", b"1")])
        await store.close()
        await store.close()
        assert await values(other) == {"/lasting": b"1"}
        with pytest.raises(CoordinationError):
            await store.view()

    run(scenario)


def test_a_closed_store_ends_the_wait_for_changes(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        waiting = asyncio.ensure_future(store.changes(0, 60_000))
        await asyncio.sleep(0.05)
        await store.close()
        with pytest.raises(CoordinationError):
            await asyncio.wait_for(waiting, 5)

    run(scenario)


def test_a_session_may_have_expired_after_two_thirds_without_renewal(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store = await backend.open()
        session = await store.open_session(600)
        assert not session.may_have_expired
        await asyncio.sleep(0.45)
        assert session.may_have_expired
        assert not session.lost

    run(scenario)


async def _gone(store: Store, key: str) -> bool:
    return key not in (await store.view()).entries
