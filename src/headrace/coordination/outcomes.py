"""A commit whose outcome is known in the end: an unknown one is looked up before it is tried again (R6).

Works on any Store. Read next: cluster.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordination.store import Applied, Check, Conflict, Create, Delete, Entry, Operation, Store
from headrace.errors import OutcomeUnknown

_ATTEMPTS = 5


async def commit_and_know(store: Store, operations: Sequence[Operation]) -> Applied | Conflict:
    """Raises OutcomeUnknown only when the store stayed out of reach.

    Trying again is safe because every operation is conditional: what did take place after all conflicts.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return await store.commit(operations)
        except OutcomeUnknown:
            outcome = await _find_out(store, operations)
            if outcome is not None:
                return outcome
    return await store.commit(operations)


async def _find_out(store: Store, operations: Sequence[Operation]) -> Applied | Conflict | None:
    """None: nothing of it took place. Ids, epochs and owners are unique, so finding our value proves ours."""
    last = {operation.key: operation for operation in operations if not isinstance(operation, Check)}
    if not last:
        return None
    view = await store.view()
    missing = [key for key, operation in last.items() if not _took_place(operation, view.entries.get(key))]
    if not missing:
        return Applied(view.version)
    return None if len(missing) == len(last) else Conflict(missing[0])


def _took_place(operation: Operation, entry: Entry | None) -> bool:
    if isinstance(operation, Delete):
        return entry is None
    if entry is None or isinstance(operation, Check) or entry.value != operation.value:
        return False
    if isinstance(operation, Create):
        return entry.owner == operation.owner
    return entry.version != operation.version
