# SPDX-License-Identifier: Apache-2.0
"""Maintenance of a table: merges small files and removes unreferenced ones.

Both are safe while queries run: merging changes no row, and only files older than any attempt that could
still commit them are removed. Independent of Spark. Read next: merge.py, protocol.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.pipelines.delta.conditional_puts import check_conditional_puts
from headrace.pipelines.delta.folders import table_folder
from headrace.pipelines.delta.protocol import check_features
from headrace.pipelines.delta.table import TablePlace, open_table, reason_of, unreachable

if TYPE_CHECKING:
    from deltalake import DeltaTable

DEFAULT_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """What was done to a table, or would be in a dry run."""

    files_before: int
    small_files: int
    """Files with another small file in their partition."""
    files_after: int
    orphans: int
    orphan_bytes: int


def optimize_table(
    path: TablePlace,
    *,
    target_size: int = DEFAULT_FILE_SIZE,
    retain_hours: int | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> OptimizeResult:
    """Merge files towards `target_size`, then remove files that no version since `retain_hours` needs.

    retain_hours: None is the table's own setting, a week if it has none. force: accept less than that.
    ClientError where there is no table, it is not for us to write to, or others merge its files too.
    """
    table = _opened(path)  # raises first if there is no table
    from deltalake.exceptions import DeltaError

    from headrace.pipelines.delta.merge import merge, small_groups
    from headrace.pipelines.delta.scan import files_of

    before, groups = len(files_of(table)), small_groups(table, target_size)
    try:
        if groups and not dry_run:
            check_conditional_puts(path)
            merge(path, lambda: _opened(path), groups)
        orphans = _vacuum(path, retain_hours, force=force, dry_run=dry_run)
    except DeltaError as error:
        reason = reason_of(error, path)
        if "retention" in reason.lower():
            raise ClientError(
                f"the table {path} keeps removed files longer than {retain_hours} h: {reason}",
                next_step="retain more, or add --force when no query uses the table",
            ) from None
        raise ClientError(f"the table {path} could not be optimized: {reason}") from None
    except OSError as error:
        if isinstance(path, Path):
            raise
        raise unreachable(error, path, "optimized") from None
    return OptimizeResult(
        files_before=before,
        small_files=sum(map(len, groups)),
        files_after=len(files_of(_opened(path))),
        orphans=len(orphans),
        orphan_bytes=sum(orphans),
    )


def _opened(path: TablePlace) -> DeltaTable:
    table = open_table(path)
    if table is None:
        raise ClientError(f"there is no Delta table in {path}", next_step="check the path")
    check_features(table, overwrite=True)
    return table


def _vacuum(path: TablePlace, retain_hours: int | None, *, force: bool, dry_run: bool) -> list[int]:
    """Sizes of the removed files, also in a dry run."""
    table = _opened(path)

    def call(*, dry_run: bool) -> list[str]:
        return table.vacuum(
            retention_hours=retain_hours, dry_run=dry_run, enforce_retention_duration=not force, full=True
        )

    names = call(dry_run=True)
    sizes = [size for size in table_folder(path).sizes(names) if size is not None]
    if names and not dry_run:
        call(dry_run=False)
    return sizes
