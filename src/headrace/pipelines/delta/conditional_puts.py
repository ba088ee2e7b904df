# SPDX-License-Identifier: Apache-2.0
"""Checks that an object store enforces conditional puts, on which exactly-once commits depend.

A commit puts the next entry of the log if it is absent (If-None-Match). A store that ignores the condition
accepts the entries of two drivers and keeps the last one. Independent of Spark. Read next: table.py;
docs/decisions/0036-conditional-puts-are-tried-out.md.
"""

from __future__ import annotations

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import ObjectStorePath, TablePlace, unreachable

_ROUNDS = 12
_BODY = 200_000
"""A put that takes longer than a listing, so that both writers list before either has put."""
_PUT, _REFUSED, _TOO_LATE = "put", "refused", "too late"
_INCONCLUSIVE = ("already exists", "Invalid table version")
"""Seen by the listing before the put; or refused by the put while listings do not have the other one yet."""
_checked: set[str] = set()


def check_conditional_puts(place: TablePlace) -> None:
    """Once in a process for each table: ClientError when the store accepts a second put of one name.

    Two writers create the same table at once, below this one, until one of them has been refused by the put.
    """
    if isinstance(place, Path) or place.uri in _checked:
        return
    for _ in range(_ROUNDS):
        results = _race(replace(place, uri=f"{place.uri}/_headrace_check_{uuid.uuid4()}"))
        if results.count(_PUT) > 1:
            raise ClientError(
                f"the object store of {place} ignores If-None-Match: of two puts of one name both succeeded, "
                "so that two drivers could overwrite each other's commits",
                next_step="use a store, or a version of it, that enforces conditional writes "
                "(docs/how-to/tables-on-s3.md)",
            )
        if _PUT in results and _REFUSED in results:
            _checked.add(place.uri)
            return
    raise ClientError(
        f"whether the object store of {place} enforces If-None-Match could not be found out: "
        f"{_ROUNDS} tries of two puts at once were never at once",
        next_step="run it again",
    )


def _race(place: ObjectStorePath) -> list[str]:
    barrier = Barrier(2)
    try:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda _: _create(place, barrier), range(2)))
    finally:
        _remove(place)


def _create(place: ObjectStorePath, barrier: Barrier) -> str:
    from deltalake import CommitProperties, DeltaTable, Field, Schema
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.schema import PrimitiveType

    barrier.wait()
    try:
        DeltaTable.create(
            place.uri,
            Schema([Field("n", PrimitiveType("long"))]),
            storage_options=dict(place.options),
            description="x" * _BODY,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except CommitFailedError:
        return _REFUSED
    except (DeltaError, OSError) as error:
        if any(each in str(error) for each in _INCONCLUSIVE):
            return _TOO_LATE
        raise unreachable(error, place, "written to") from None
    return _PUT


def _remove(place: ObjectStorePath) -> None:
    """A login that may not delete leaves an object of this size at each check."""
    from headrace.pipelines.delta.folders import table_folder

    with contextlib.suppress(ClientError):
        table_folder(place).remove(f"_delta_log/{0:020}.json")
