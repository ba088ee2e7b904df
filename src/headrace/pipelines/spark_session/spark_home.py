# SPDX-License-Identifier: Apache-2.0
"""A SPARK_HOME whose Python workers import the installed PySpark, with its bytecode, not `pyspark.zip`.

Spark puts SPARK_HOME/python/lib/pyspark.zip first on the path of each Python process that it starts. The zip
has no bytecode, so each of them compiles some hundred modules anew. Here a folder of that name has a link to
the package, and all else is a link to Spark's own files. Knows nothing of sessions. Read next: session.py,
docs/decisions/0039-workers-start-with-bytecode.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from headrace.cluster.engines.maven import cache_root

_VARIABLE = "SPARK_HOME"
_ZIPS = Path("python/lib")


@contextmanager
def spark_home_with_bytecode(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """For a JVM that starts meanwhile. A SPARK_HOME that is set stays, and Spark's own where none is made."""
    home = None if _VARIABLE in environment else make_spark_home()
    if home is None:
        yield
        return
    environment[_VARIABLE] = str(home)
    try:
        yield
    finally:
        environment.pop(_VARIABLE, None)  # other programs that this one starts find Spark's own


def make_spark_home() -> Path | None:
    """The folder in the user's cache; None when it cannot be made there. Nothing else is written."""
    try:
        cache, links = cache_root(), _links()
        if links is None:
            return None
        name = hashlib.sha256(json.dumps(links, sort_keys=True).encode()).hexdigest()[:16]
        home = cache / f"spark-home-{name}"
        if not _is_whole(home, links):
            shutil.rmtree(home, ignore_errors=True)
            _make(home, links)
        return home if _is_whole(home, links) else None
    except (OSError, RuntimeError, ValueError):  # also: no home folder, packages without a file
        return None


def _links() -> Mapping[str, str] | None:
    """Path below the new folder to its target. None: PySpark's packages are not where pip puts them."""
    package = _package("pyspark")
    if package is None or not (package / _ZIPS / "pyspark.zip").is_file():
        return None
    links = _all_in(package, package, but="python")
    links |= _all_in(package, package / "python", but="lib")
    links |= _all_in(package, package / _ZIPS, but="pyspark.zip")
    links[f"{_ZIPS}/pyspark.zip/pyspark"] = str(package)
    py4j, archive = _package("py4j"), _archive_of_py4j()
    if py4j is not None and links.pop(archive, None) is not None:
        links[f"{archive}/py4j"] = str(py4j)
    return links


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    origin = None if spec is None or spec.origin is None else Path(spec.origin)
    return origin.parent if origin is not None and origin.is_file() else None


def _archive_of_py4j() -> str:
    """The zip of the installed version; of another version the zip is left as it is."""
    try:
        return f"{_ZIPS}/py4j-{version('py4j')}-src.zip"
    except PackageNotFoundError:
        return ""


def _all_in(root: Path, folder: Path, *, but: str) -> dict[str, str]:
    return {
        str(each.relative_to(root)): str(each)
        for each in folder.iterdir()
        if each.name not in (but, "__pycache__")
    }


def _is_whole(home: Path, links: Mapping[str, str]) -> bool:
    return all(
        os.path.islink(home / path) and os.readlink(home / path) == target for path, target in links.items()
    )


def _make(home: Path, links: Mapping[str, str]) -> None:
    """Complete from the moment that it is there; another process may make the same one meanwhile."""
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".spark-home-", dir=home.parent))
    try:
        for path, target in links.items():
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, draft / path)
        with suppress(OSError):  # it is there now
            draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
