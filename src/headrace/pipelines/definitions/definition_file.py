# SPDX-License-Identifier: Apache-2.0
"""Several pipelines in one TOML file: `[store.NAME]`, `[analyze.NAME]`, `[copy.NAME]`, and `[spark]`.

Read next: definition_keys.py.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Pipeline
from headrace.pipelines.definitions.definition_keys import KNOWN, Defaults, pipeline_of
from headrace.pipelines.definitions.keys import Keys

_TOP = ("bootstrap", "config", "checkpoints", "spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    pipelines: tuple[Pipeline, ...]
    master: str | None = None
    pack: str | None = None
    python: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def read_pipelines(path: Path, *, bootstrap: str | None = None, config: str | None = None) -> PipelineFile:
    """Read pipelines; `bootstrap` and `config` are defaults. ClientError names the file, table and key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClientError(f"there is no file {path}", next_step="see: headrace pipeline run --help") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClientError(f"{path} is not valid TOML: {error}") from None
    return pipelines_of(document, str(path), bootstrap=bootstrap, config=config)


def pipelines_of(
    document: Mapping[str, Any], name: str, *, bootstrap: str | None = None, config: str | None = None
) -> PipelineFile:
    for key in document:
        if key not in _TOP and key not in KNOWN:
            close = difflib.get_close_matches(key, (*_TOP, *KNOWN), n=1)
            hint = (
                f"did you mean {close[0]}?"
                if close
                else "tables are [store.NAME], [analyze.NAME], [copy.NAME]"
            )
            raise ClientError(f"{name}: {key}: there is no such key or table", next_step=hint)
    top = _keys({key: document[key] for key in document if key in _TOP}, name, "", known=_TOP)
    folder = top.text("checkpoints")
    defaults = Defaults(
        bootstrap=top.text("bootstrap") or chosen_bootstrap(bootstrap),
        config=top.text("config") or config,
        checkpoints=Path(folder).expanduser() if folder else None,
    )
    spark = _keys(top.table("spark"), name, "[spark] ", known=("master", "pack", "python", "settings"))
    return PipelineFile(
        pipelines=_pipelines(document, name, defaults),
        master=spark.text("master"),
        pack=spark.text("pack"),
        python=spark.text("python"),
        settings={str(key): str(value) for key, value in spark.table("settings").items()},
    )


def select_pipelines(pipelines: Sequence[Pipeline], names: Sequence[str], file: str) -> list[Pipeline]:
    """All pipelines, or the named ones."""
    there = {each.name: each for each in pipelines}
    for name in names:
        if name not in there:
            raise ClientError(
                f"{file} has no pipeline {name!r}", next_step=f"choose from {', '.join(sorted(there))}"
            )
    return [each for each in pipelines if not names or each.name in names]


def _pipelines(document: Mapping[str, Any], file: str, defaults: Defaults) -> tuple[Pipeline, ...]:
    found = []
    for kind, known in KNOWN.items():
        tables = document.get(kind, {})
        for name, table in tables.items() if isinstance(tables, Mapping) else ():
            if not isinstance(table, Mapping):
                raise ClientError(
                    f"{file}: [{kind}] {name}: a pipeline needs a name", next_step=f"write [{kind}.orders]"
                )
            keys = _keys(table, file, f"[{kind}.{name}] ", known=known)
            found.append(pipeline_of(kind, name, keys, defaults))
    if not found:
        raise ClientError(f"{file} has no pipelines", next_step="write [store.orders] and its keys")
    _check_distinct(found, file)
    return tuple(found)


def _check_distinct(pipelines: list[Pipeline], file: str) -> None:
    for what in ("name", "group", "checkpoint"):
        values = [getattr(each, what) for each in pipelines]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise ClientError(
                f"{file}: two pipelines have the {what} {str(twice)!r}", next_step="each needs its own"
            )


def _keys(values: Mapping[str, Any], file: str, table: str, *, known: tuple[str, ...]) -> Keys:
    return Keys(values, known=known, where=f"{file}: ", display_name=lambda key: f"{table}{key}")
