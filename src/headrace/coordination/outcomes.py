# SPDX-License-Identifier: Apache-2.0
"""Commits with a known outcome: an unknown one is looked up before the commit is retried (R6).

Works on any Store. Read next: cluster_metadata.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordination.store import Applied, Check, Conflict, Create, Delete, Entry, Operation, Store
from headrace.errors import OutcomeUnknown

_ATTEMPTS = 5


async def commit_resolving_unknown(store: Store, operations: Sequence[Operation]) -> Applied | Conflict:
    """Raises OutcomeUnknown only when the store stayed unavailable.

    A retry is safe because every operation is conditional: one that was applied after all conflicts.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return await store.commit(operations)
        except OutcomeUnknown:
            outcome = await _read_outcome(store, operations)
            if outcome is not None:
                return outcome
    return await store.commit(operations)


async def _read_outcome(store: Store, operations: Sequence[Operation]) -> Applied | Conflict | None:
    """The outcome; None: not applied. Ids, epochs and owners are unique, so finding our value proves it."""
    last = {operation.key: operation for operation in operations if not isinstance(operation, Check)}
    if not last:
        return None
    view = await store.view()
    missing = [key for key, operation in last.items() if not _is_applied(operation, view.entries.get(key))]
    if not missing:
        return Applied(view.version)
    return None if len(missing) == len(last) else Conflict(missing[0])


def _is_applied(operation: Operation, entry: Entry | None) -> bool:
    if isinstance(operation, Delete):
        return entry is None
    if entry is None or isinstance(operation, Check) or entry.value != operation.value:
        return False
    if isinstance(operation, Create):
        return entry.owner == operation.owner
    return entry.version != operation.version
