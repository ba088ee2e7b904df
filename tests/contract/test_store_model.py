# SPDX-License-Identifier: Apache-2.0
"""Every store against a model of thirty lines: the same commits, the same outcomes, the same state."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordination.store import Applied, Check, Conflict, Create, Delete, Entry, Operation, Set, Store
from headrace.realworld import RealWorld
from tests.contract.store_backends import BACKENDS, opener

KEYS = ("/a", "/b", "/c/d")
NEVER_A_VERSION = 1_000_000

Step = tuple[str, str, bool, bytes]
"""(kind, key, whether the version named is the right one, value)"""

steps = st.tuples(
    st.sampled_from(["check", "create", "set", "delete"]),
    st.sampled_from(KEYS),
    st.sampled_from([True, True, True, False]),
    st.binary(max_size=3),
)
histories = st.lists(st.lists(steps, min_size=1, max_size=4), max_size=12)


def operation(step: Step, entries: dict[str, Entry]) -> Operation:
    kind, key, right, value = step
    version = entries[key].version if key in entries and right else NEVER_A_VERSION
    if kind == "create":
        return Create(key, value)
    if kind == "set":
        return Set(key, value, version)
    return Check(key, version) if kind == "check" else Delete(key, version)


def expected(
    operations: Sequence[Operation], entries: dict[str, Entry]
) -> tuple[str | None, dict[str, bytes]]:
    """(the key in conflict, the values afterwards)."""
    values = {key: entry.value for key, entry in entries.items()}
    versions: dict[str, Any] = {key: entry.version for key, entry in entries.items()}
    for each in operations:
        wanted = None if isinstance(each, Create) else each.version
        if versions.get(each.key) != wanted:
            return each.key, {key: entry.value for key, entry in entries.items()}
        if isinstance(each, Delete):
            del values[each.key], versions[each.key]
        elif isinstance(each, Create | Set):
            values[each.key] = each.value
            versions[each.key] = object()  # the version it gets is the store's affair
    return None, values


def guesses_a_version(operations: Sequence[Operation]) -> bool:
    """Whether one names the version of an entry that another one before it deletes and creates anew.

    A store may count the versions of a new entry from the start, as ZooKeeper does, and give one again.
    """
    deleted: set[str] = set()
    anew: set[str] = set()
    for each in operations:
        if each.key in anew:
            return True
        if isinstance(each, Delete):
            deleted.add(each.key)
        elif isinstance(each, Create) and each.key in deleted:
            anew.add(each.key)
    return False


async def follow(store: Store, state: dict[str, Entry], version: int) -> int:
    changes = await store.changes(version, 0)
    if changes.complete:
        state.clear()
    for key, entry in changes.changed.items():
        if entry is None:
            state.pop(key, None)
        else:
            state[key] = entry
    return changes.version


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(history=histories)
def test_any_history_of_commits_ends_as_the_model_says(backend: str, history: list[list[Step]]) -> None:
    async def main(directory: Path) -> None:
        world = RealWorld()
        open_store = opener(backend, world, directory)
        writer, reader = await open_store(), await open_store()
        followed: dict[str, Entry] = {}
        version = 0
        for commit in history:
            entries = dict((await writer.view()).entries)
            operations = [operation(step, entries) for step in commit]
            if guesses_a_version(operations):
                continue
            conflict, values = expected(operations, entries)
            outcome = await writer.commit(operations)
            assert outcome == Conflict(conflict) if conflict else isinstance(outcome, Applied)
            view = await reader.view()
            assert {key: entry.value for key, entry in view.entries.items()} == values
            version = await follow(reader, followed, version)
            assert (followed, version) == (view.entries, view.version)
        await writer.close()
        await reader.close()
        await world.tasks.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
