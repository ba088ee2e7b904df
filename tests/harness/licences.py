# SPDX-License-Identifier: Apache-2.0
"""The licences of what Headrace installs, read from the metadata of the installed packages.

`make licences` writes docs/licences.md. Without versions, since the lock has them.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OF_DEVELOPERS = {"all", "bench", "dev", "docs", "fuzz"}
"""Extras that no user installs, and `all`, which names the others."""
_HEAD = """# Licences of dependencies

Headrace is licensed under the [Apache License 2.0](../LICENSE) and contains no code of others. `pip install`
puts these packages beside it, unchanged; their versions are in `requirements.lock`. All of the licences are
permissive, except that of crc32c: LGPL, which asks for no more than that the package can be replaced. Some
packages contain compiled libraries with licences of their own: librdkafka in confluent-kafka, RE2 in
google-re2, the jars in PySpark.

Written from the metadata of the packages: `make licences`.

| package | licence | installed by |
|---|---|---|
"""


def needed() -> dict[str, set[str]]:
    """Packages by name, with what they depend on in turn, and the extras that install them; "" for none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, set[str]] = {}
    for extra, wanted in groups.items():
        if extra not in OF_DEVELOPERS:
            for name in _closure(wanted):
                found.setdefault(name, set()).add(extra)
    return {name: extras for name, extras in sorted(found.items()) if name != "headrace"}


def _closure(wanted: Iterable[str]) -> set[str]:
    waiting, found = [Requirement(each) for each in wanted], set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in found or not _applies(requirement, ()):
            continue
        found.add(key)
        try:
            requires = distribution(key[0]).requires or []
        except PackageNotFoundError:
            continue
        inner = map(Requirement, requires)
        waiting += [_without_marker(each) for each in inner if _applies(each, sorted(requirement.extras))]
    return {name for name, _ in found}


def _applies(requirement: Requirement, extras: Sequence[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _without_marker(requirement: Requirement) -> Requirement:
    requirement.marker = None
    return requirement


def licence(name: str) -> str:
    """As the package states it: an expression, a short text, or classifiers."""
    found: PackageMetadata = metadata(name)
    stated: str = (found.get_all("License-Expression") or found.get_all("License") or [""])[0]
    if stated and len(stated) < 60 and "\n" not in stated:
        return stated
    prefix = "License :: OSI Approved :: "
    classifiers = found.get_all("Classifier") or []
    return ", ".join(each.removeprefix(prefix) for each in classifiers if each.startswith(prefix))


def rows() -> list[str]:
    return [f"| {name} | {licence(name)} | {_installed_by(extras)} |" for name, extras in needed().items()]


def _installed_by(extras: set[str]) -> str:
    return "always" if "" in extras else ", ".join(f"`[{extra}]`" for extra in sorted(extras))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(_HEAD + "\n".join(rows()) + "\n")
