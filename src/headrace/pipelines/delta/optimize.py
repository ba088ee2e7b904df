"""Care of a table that a stream writes to: small files made into large ones, files of no version removed.

Both are safe beside running queries: merging changes no row, and only files older than any attempt that could
still commit them are removed. Knows no Spark. Read next: table.py, protocol.py.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headrace.client.errors import ClientError
from headrace.pipelines.delta.protocol import check_features
from headrace.pipelines.delta.table import first_line, open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

DEFAULT_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What was done to a table, or would be."""

    files_before: int
    small_files: int
    """That have another small file in their partition to be merged with."""
    files_after: int
    orphans: int
    orphan_bytes: int


def optimize_table(
    path: Path,
    *,
    target_size: int = DEFAULT_FILE_SIZE,
    retain_hours: int | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> Care:
    """Merges files towards `target_size`, then removes what no version since `retain_hours` needs.

    retain_hours: None is the table's own setting, a week if it has none. force: accept less than that.
    ClientError where there is no table, it is not for us to write to, or somebody rewrote it meanwhile.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    table = open_table(path)
    if table is None:
        raise ClientError(f"there is no Delta table in {path}", next_step="check the path")
    check_features(table, overwrite=True)
    try:
        return _optimize(table, path, target_size, retain_hours, force=force, dry_run=dry_run)
    except CommitFailedError as error:
        raise ClientError(
            f"the table {path} was rewritten meanwhile: {first_line(error)}", next_step="run it again"
        ) from error
    except DeltaError as error:
        if "retention" in str(error).lower():
            raise ClientError(
                f"the table {path} keeps removed files longer than {retain_hours} h: {first_line(error)}",
                next_step="retain more, or add --force when no query writes to it or reads old versions",
            ) from error
        raise ClientError(f"the table {path} could not be optimized: {first_line(error)}") from error


def _optimize(
    table: DeltaTable, path: Path, target_size: int, retain_hours: int | None, *, force: bool, dry_run: bool
) -> Care:
    sizes = _sizes_by_folder(table)
    before = sum(map(len, sizes.values()))
    small = sum(count for each in sizes.values() if (count := _small(each, target_size)) > 1)
    # Asked first: what the merge leaves behind is too young to be removed in any case.
    orphans = _vacuum(table, retain_hours, force=force, dry_run=True)
    orphan_bytes = sum((path / name).stat().st_size for name in orphans if (path / name).is_file())
    if not dry_run:
        if small:
            table.optimize.compact(target_size=target_size)
        if orphans:
            _vacuum(table, retain_hours, force=force, dry_run=False)
    after = sum(map(len, _sizes_by_folder(table).values()))
    return Care(
        files_before=before,
        small_files=small,
        files_after=after,
        orphans=len(orphans),
        orphan_bytes=orphan_bytes,
    )


def _vacuum(table: DeltaTable, retain_hours: int | None, *, force: bool, dry_run: bool) -> list[str]:
    names: list[str] = table.vacuum(
        retention_hours=retain_hours, dry_run=dry_run, enforce_retention_duration=not force, full=True
    )
    return names


def _sizes_by_folder(table: DeltaTable) -> dict[str, list[int]]:
    """Every partition has a folder of its own."""
    actions = table.get_add_actions()
    found: dict[str, list[int]] = defaultdict(list)
    for name, size in zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True):
        found[unquote(name).rpartition("/")[0]].append(size)
    return found


def _small(sizes: list[int], target_size: int) -> int:
    return sum(size < target_size for size in sizes)
