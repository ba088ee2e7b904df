# SPDX-License-Identifier: Apache-2.0
"""A local copy of the entries in ZooKeeper, and the changes between two reads.

Pure: no connection, no thread. Read next: zookeeper_tree.py, which fills it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile

from headrace.coordination.store import Changes, Entry, View


class Mirror:
    """`commits` counts the commits included; `version` also increases when a session ends."""

    def __init__(self, *, remembered_removals: int) -> None:
        self.version = -1
        self.commits = -1
        self.owned: set[str] = set()
        """Keys of ephemeral entries."""
        self._entries: dict[str, Entry] = {}
        self._modified: dict[str, int] = {}  # both in the order of their versions
        self._removed: dict[str, int] = {}
        self._remembered_removals = remembered_removals
        self._horizon = 0

    @property
    def loaded(self) -> bool:
        return self.commits >= 0

    def keys(self) -> set[str]:
        return set(self._entries)

    def fold(self, version: int, commits: int, found: Mapping[str, Entry | None]) -> None:
        """Update the copy; `found` has every key that may differ, None: it does not exist."""
        if not self.loaded:
            self._horizon = version  # earlier removals are unknown
        for key, entry in found.items():
            if entry == self._entries.get(key):
                continue
            self._modified.pop(key, None)
            self._removed.pop(key, None)
            self.owned.discard(key)
            if entry is None:
                del self._entries[key]
                self._removed[key] = version
            else:
                self._entries[key] = entry
                self._modified[key] = version
                if entry.owner is not None:
                    self.owned.add(key)
        self.version, self.commits = version, commits
        while len(self._removed) > self._remembered_removals:
            self._horizon = self._removed.pop(next(iter(self._removed)))

    def view(self) -> View:
        entries = dict(sorted(self._entries.items()))
        return View(version=self.version, entries=entries, commits=self.commits)

    def changes_since(self, version: int) -> Changes:
        if version < self._horizon:
            entries = self.view().entries
            return Changes(version=self.version, changed=entries, complete=True, commits=self.commits)
        changed: dict[str, Entry | None] = dict.fromkeys(_after(self._removed, version))
        changed.update((key, self._entries[key]) for key in _after(self._modified, version))
        found = dict(sorted(changed.items()))
        return Changes(version=self.version, changed=found, commits=self.commits)


def _after(versions: dict[str, int], version: int) -> Iterator[str]:
    return takewhile(lambda key: versions[key] > version, reversed(versions))
