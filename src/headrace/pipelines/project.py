# SPDX-License-Identifier: Apache-2.0
"""Creates a project with a pipeline and its tests from the files of `project_template`.

Must not know the command line. A file of the template ends in `.template`; `$package` and the like stand for
names, in its text, and the folder `package` for that of the new package. Read next: cli/pipeline/new.py.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from string import Template

from headrace.client.errors import ClientError
from headrace.version import __version__

_TEMPLATES = Path(__file__).with_name("project_template")
_SUFFIX = ".template"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_name(name: str) -> None:
    """ClientError suggests a name that is one of a Python package and is free."""
    reason = _why_not(name)
    if reason is not None:
        raise ClientError(f"{name!r} {reason}", next_step=f"for example {_suggested(name)}")


def create_project(name: str, folder: Path) -> tuple[Path, ...]:
    """Writes the files and returns their paths within the folder, which must be new or empty."""
    check_name(name)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ClientError(
                f"{folder} exists and is not an empty directory", next_step="name another: --dir"
            )
        return tuple(sorted(_written(name, folder)))
    except OSError as error:
        raise ClientError(
            f"cannot write the project to {folder} ({error.strerror})", next_step="name another place: --dir"
        ) from error


def _written(name: str, folder: Path) -> Iterator[Path]:
    names = {"package": name, "distribution": name.replace("_", "-"), "version": __version__}
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        place = template.relative_to(_TEMPLATES)
        parts = [name if part == "package" else part for part in place.parent.parts]
        path = Path(*parts, place.name.removesuffix(_SUFFIX))
        (folder / path.parent).mkdir(parents=True, exist_ok=True)
        text = Template(template.read_text(encoding="utf-8")).substitute(names)
        (folder / path).write_text(text, encoding="utf-8")
        yield path


def _why_not(name: str) -> str | None:
    if _NAME.fullmatch(name) is None:
        return "is not a name of a Python package: lower-case letters, digits and '_'"
    if keyword.iskeyword(name):
        return "is a word of Python itself"
    found = find_spec(name)
    if found is not None and found.origin is not None:  # a folder of this name is none
        return "is the name of another package in this environment"
    return None


def _suggested(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if plain[:1].isdigit():
        plain = f"pipeline_{plain}"
    if not plain:
        return "orders_pipeline"
    return plain if _why_not(plain) is None else f"{plain}_pipeline"
