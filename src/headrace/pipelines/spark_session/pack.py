# SPDX-License-Identifier: Apache-2.0
"""Packs our packages for Spark's executors into one zip file, distributed with `spark.archives`.

Taken from the running environment, so that driver and executors have the same; without interpreter and Spark,
which the cluster has. Reasons: docs/decisions/0015-a-pack-holds-packages-only.md. Read next: session.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from headrace.client.errors import ClientError

OUR_PACKAGES = ("headrace", "pyspark_headrace", "pyspark_headrace_delta")
DESCRIPTION = "headrace-pack.json"
_ROOT = "headrace[spark]"
_OF_THE_CLUSTER = frozenset({"pyspark", "py4j"})
_NOT_NEEDED = frozenset({"__pycache__", "tests", "include"})
_NOT_RUN = frozenset({".pyx", ".pxd", ".pxi", ".h", ".hpp", ".c", ".cpp", ".pyc", ".a"})
_QUICK = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A written pack. `distributions`: version by name."""

    path: Path
    python: str
    platform: str
    distributions: Mapping[str, str]
    size: int


def default_pack_path() -> Path:
    return Path(f"headrace-pack-py{this_python().replace('.', '')}-{this_platform()}.zip")


def this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def this_platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def write_pack(path: Path, *, add: Sequence[str] = (), level: int = _QUICK) -> Pack:
    """Write our packages and the distributions in `add`, each with its dependencies.

    ClientError names a distribution that is not installed or cannot be copied.
    """
    if path.suffix != ".zip":
        raise ClientError(f"{str(path)!r} is not a zip file", next_step="use a name that ends in .zip")
    found = _closure([_ROOT, *add])
    described = {dist.name: dist.version for dist in found}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as pack:
            for name, file in sorted(_files(found)):
                pack.write(file, name)
            pack.writestr(DESCRIPTION, json.dumps(_description(described), indent=1))
        draft.replace(path)
    except OSError as error:
        raise ClientError(
            f"the pack cannot be written to {path}: {error.strerror}", next_step="name another file"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return Pack(
        path=path,
        python=this_python(),
        platform=this_platform(),
        distributions=described,
        size=path.stat().st_size,
    )


def check_pack(path: Path) -> None:
    """Raises ClientError when it is not a pack, or for another Python version than the driver's."""
    again = "make one: headrace pipeline pack"
    try:
        with zipfile.ZipFile(path) as pack:
            description = json.loads(pack.read(DESCRIPTION))
    except OSError as error:
        raise ClientError(f"there is no pack in {path}: {error.strerror}", next_step=again) from error
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ClientError(f"{path} is not a pack of `headrace pipeline pack`", next_step=again) from error
    if description["python"] != this_python():
        raise ClientError(
            f"the pack {path} is for Python {description['python']}, and this is {this_python()}",
            next_step="make another: headrace pipeline pack",
        )


def _description(described: Mapping[str, str]) -> dict[str, object]:
    return {"python": this_python(), "platform": this_platform(), "distributions": dict(described)}


def _closure(wanted: Iterable[str]) -> list[Distribution]:
    """The distributions and their dependencies, without those that every Spark cluster has."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    asked: set[str] = set()
    waiting = list(wanted)
    while waiting:
        text = waiting.pop()
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise ClientError(f"{text!r} is not a package name", next_step="name it as pip does") from error
        name = canonicalize_name(requirement.name)
        if name in _OF_THE_CLUSTER or str(requirement) in asked:
            continue
        asked.add(str(requirement))
        dist = found[name] = _installed(requirement.name)
        for line in dist.requires or ():
            need = Requirement(line)
            extras = requirement.extras or {""}
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                need.marker = None
                waiting.append(str(need))
    return list(found.values())


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise ClientError(
            f"{name} is not installed in this environment", next_step=f"pip install {name}"
        ) from error


def _files(found: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    """(name within the pack, file)."""
    for package in OUR_PACKAGES:
        yield from _package_files(package)
    for dist in found:
        ours = dist.name == "headrace"
        for file in dist.files or ():
            if _is_needed(file) and (not ours or ".dist-info" in file.parts[0]):
                yield file.as_posix(), Path(str(dist.locate_file(file)))
        if not ours:
            _refuse_editable(dist)


def _package_files(package: str) -> Iterator[tuple[str, Path]]:
    """Files of our packages, which may be an editable install."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for file in Path(folder).rglob("*"):
            name = PurePosixPath(package, file.relative_to(folder).as_posix())
            if file.is_file() and _is_needed(name):
                yield str(name), file


def _is_needed(file: PurePosixPath) -> bool:
    parts = file.parts
    return (
        parts[0] != ".."  # scripts
        and not _NOT_NEEDED.intersection(parts[:-1])
        and file.suffix not in _NOT_RUN
    )


def _refuse_editable(dist: Distribution) -> None:
    origin = json.loads(dist.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        raise ClientError(
            f"{dist.name} is installed as editable: its files are not in this environment",
            next_step=f"install it without -e: pip install {dist.name}",
        )
