# SPDX-License-Identifier: Apache-2.0
"""`headrace log kept` and `headrace log clean`: what was kept aside of damage, and its removal on request.

Read next: log/kept_aside.py (which names those are).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.durations import human_ms, parse_duration_ms
from headrace.cli.options import DryRun, Json, Yes, confirm
from headrace.cli.output import Output, human_bytes

if TYPE_CHECKING:
    from headrace.log.kept_aside import KeptAside

_Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The data directory of a node, or of one partition in it.")
]
_OlderThan = Annotated[
    str,
    typer.Option("--older-than", metavar="DURATION", help="Only what was kept aside before: 12h, 7d, PT1H."),
]


def kept(directory: _Directory, older_than: _OlderThan = "0s", as_json: Json = False) -> None:
    """List damaged files and logs that were kept aside: no node reads or removes them.

    Read-only, also while the node runs.

    \b
    Examples:
      headrace log kept ~/.local/share/headrace
      headrace log kept ~/.local/share/headrace --older-than 7d --json
    """
    output = Output(as_json=as_json)
    _show(_find(directory, older_than), directory, output)


def clean(
    directory: _Directory,
    older_than: _OlderThan = "0s",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove damaged files and logs that were kept aside, after showing them. Their records are gone then.

    Also while the node runs, which uses none of them. Look first whether the partitions are whole again:
    without another replica the damaged file may have records that nothing else has.

    \b
    Examples:
      headrace log clean ~/.local/share/headrace --dry-run
      headrace log clean ~/.local/share/headrace --older-than 7d --yes
    """
    output = Output(as_json=as_json)
    found = _find(directory, older_than)
    _show(found, directory, output)
    if dry_run or not found:
        return
    size = human_bytes(sum(each.size_bytes for each in found))
    confirm(f"Remove {_count(len(found))} ({size}) for good", yes=yes)
    for each in found:
        _remove(each)
        if as_json:
            output.json_line({"event": "removed", "path": str(each.path)})
    output.note(f"Removed {_count(len(found))}, {size}")


def _find(directory: Path, older_than: str) -> list[KeptAside]:
    from headrace.client.errors import ClientError
    from headrace.log.checkpoints import META_PROPERTIES_FILE
    from headrace.log.directory_names import partition_in
    from headrace.log.kept_aside import kept_in, places
    from headrace.realworld import RealFiles

    files, least_ms = RealFiles(), parse_duration_ms(older_than, "--older-than")
    is_log = directory.is_dir() and partition_in(directory.resolve().name) is not None
    if not is_log and not (directory / META_PROPERTIES_FILE).exists():
        raise ClientError(
            f"{directory} is not the data directory of a node, or of a partition",
            next_step="name the directory that the node was started with (--data)",
        )
    return [each for each in kept_in(files, places(files, directory)) if _age_ms(each.path) >= least_ms]


def _show(found: list[KeptAside], directory: Path, output: Output) -> None:
    total = sum(each.size_bytes for each in found)
    if output.as_json:
        for each in found:
            output.json_line(_document(each))
        output.json_line({"event": "summary", "kept": len(found), "bytes": total})
        return
    if found:
        output.table(("PATH", "SIZE", "AGE"), [_row(each, directory) for each in found])
    output.line(f"{_count(len(found))}, {human_bytes(total)}")


def _row(each: KeptAside, directory: Path) -> tuple[str, str, str]:
    path = str(each.path.relative_to(directory))
    return path, human_bytes(each.size_bytes), human_ms(_age_ms(each.path))


def _document(each: KeptAside) -> dict[str, Any]:
    kind = "log" if each.is_log else "file"
    return {
        "event": "kept",
        "path": str(each.path),
        "kind": kind,
        "bytes": each.size_bytes,
        "age_ms": _age_ms(each.path),
    }


def _age_ms(path: Path) -> int:
    """Since it got its name; 0 for what was removed meanwhile."""
    try:
        return max(int((time.time() - path.stat().st_ctime) * 1000), 0)
    except FileNotFoundError:
        return 0


def _remove(each: KeptAside) -> None:
    import shutil

    if each.is_log:
        shutil.rmtree(each.path)
    else:
        each.path.unlink(missing_ok=True)


def _count(number: int) -> str:
    return f"{number} file{'s'[: number != 1]} or log{'s'[: number != 1]} kept aside"
