# SPDX-License-Identifier: Apache-2.0
"""Builds pipelines from keys and values of a file or a command line. Errors name the key.

Pure. Read next: definition.py, definition_file.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.client.bootstrap import chosen_bootstrap, parse_bootstrap
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import (
    DEFAULT_TARGET_SIZE,
    Aggregate,
    Analyze,
    Copy,
    Emit,
    Pipeline,
    Source,
    Storage,
    Store,
    TableFormat,
)
from headrace.pipelines.definitions.keys import Keys
from headrace.pipelines.delta.table import local_path

COMMON = (
    *("topic", "pattern", "bootstrap", "config", "from", "value", "key", "schema", "registry", "rejects"),
    *("max_rows", "on_data_loss", "every", "group", "checkpoint", "options"),
)
_TABLE = ("path", "storage", "storage_config")
KNOWN = {
    "store": (*COMMON, *_TABLE, "format", "time", "partition_by", "optimize", "target_size"),
    "analyze": (
        *(*COMMON, *_TABLE, "to", "time", "window", "slide", "watermark", "by", "emit"),
        *("sum", "avg", "percentiles", "aggregates"),
    ),
    "copy": (*COMMON, "to", "where", "select", "expression", "new_key"),
}
FORMS = ("raw", "string", "int16", "int32", "int64", "float32", "float64", "json", "avro")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLAIN = re.compile(r"\w+(\.\w+)*")
_ALIASED = re.compile(r".+\s+as\s+\w+", flags=re.IGNORECASE | re.DOTALL)
_DEFAULT_WATERMARK_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of pipelines. `checkpoints`: a directory with one for each."""

    bootstrap: str = field(default_factory=lambda: chosen_bootstrap(None))
    config: str | None = None
    """A client's properties file."""
    checkpoints: Path | None = None


def default_checkpoints(environment: Mapping[str, str] = os.environ) -> Path:
    """Default directory of checkpoints, in the user's state directory."""
    state = (
        environment.get("XDG_STATE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".local/state"
    )
    return Path(state) / "headrace" / "pipelines"


def pipeline_of(kind: str, name: str, keys: Keys, defaults: Defaults) -> Pipeline:
    if _NAME.fullmatch(name) is None:
        raise ClientError(
            f"{keys.where}{name!r} is not a valid name of a pipeline",
            next_step="use letters, digits, '.', '_' and '-'",
        )
    common = _common(name, keys, defaults)
    return _MAKERS[kind](keys, common)


def _common(name: str, keys: Keys, defaults: Defaults) -> dict[str, Any]:
    checkpoint = keys.text("checkpoint")
    folder = defaults.checkpoints or default_checkpoints()
    return {
        "name": name,
        "source": _source(keys, defaults),
        "group": keys.text("group") or name,
        "checkpoint": Path(checkpoint).expanduser() if checkpoint else folder / name,
        "every_ms": keys.duration_ms("every") or 0,
    }


def _source(keys: Keys, defaults: Defaults) -> Source:
    topics, pattern = keys.names("topic"), keys.text("pattern")
    if bool(topics) == (pattern is not None):
        raise keys.wrong("topic", "either a topic or a pattern is required", "set one of them")
    bootstrap = keys.text("bootstrap") or defaults.bootstrap
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise keys.wrong("bootstrap", error.what, "write it as HOST:PORT") from None
    value = keys.choice("value", FORMS, "raw")
    schema = keys.text("schema")
    if value == "json" and schema is None:
        raise keys.wrong(
            "schema", "JSON needs one", 'for example "customer STRING, amount DOUBLE, at TIMESTAMP"'
        )
    if value == "avro" and schema is None and "registry" not in keys:
        raise keys.wrong("schema", "Avro needs one, or a registry")
    config = keys.text("config") or defaults.config
    return Source(
        bootstrap=bootstrap,
        config=None if config is None else str(Path(config).expanduser().absolute()),
        topics=topics,
        pattern=pattern,
        begin=keys.text("from") or "earliest",
        value=value,
        # Text for grouping and searching; raw records are stored unchanged.
        key=keys.choice("key", FORMS[:-2], "raw" if value == "raw" else "string"),
        schema=schema,
        registry=keys.text("registry"),
        rejects=keys.text("rejects"),
        max_rows=keys.number("max_rows"),
        on_data_loss=keys.choice("on_data_loss", ("fail", "skip", "earliest"), "fail"),
        options={str(name): str(value) for name, value in keys.table("options").items()},
    )


def _store(keys: Keys, common: dict[str, Any]) -> Store:
    chosen = keys.choice("format", ("delta", "parquet"), "delta")
    table: TableFormat = "delta" if chosen == "delta" else "parquet"
    if table != "delta":
        for name in ("optimize", "target_size"):
            if name in keys:
                raise keys.wrong(name, "only the files of Delta tables are merged", "leave it out")
    if "target_size" in keys and "optimize" not in keys:
        raise keys.wrong("target_size", "it is the size to merge to", "set optimize, for example 10m")
    return Store(
        **common,
        path=_path(keys, table) or keys.needed("path", "/data/orders"),
        storage=_storage(keys),
        format=table,
        time=keys.text("time") or "timestamp",
        partition_by=keys.names("partition_by") if "partition_by" in keys else None,
        optimize_ms=keys.duration_ms("optimize"),
        target_size=keys.size("target_size") or DEFAULT_TARGET_SIZE,
    )


def _analyze(keys: Keys, common: dict[str, Any]) -> Analyze:
    window_ms = keys.duration_ms("window")
    if window_ms is None:
        raise keys.wrong("window", "it is missing", "for example 1m")
    slide_ms = keys.duration_ms("slide")
    if slide_ms is not None and slide_ms > window_ms:
        raise keys.wrong("slide", "it is longer than the window, so records between windows would be lost")
    path, to = _path(keys, "delta"), keys.text("to")
    if path is None and to is None:
        raise keys.wrong("path", "there is no output", "set the path of a table, a topic (to), or both")
    watermark_ms = keys.duration_ms("watermark", least_ms=0)
    emit: Emit = "all" if keys.choice("emit", ("closed", "all"), "closed") == "all" else "closed"
    return Analyze(
        **common,
        path=path,
        storage=_storage(keys),
        to=to,
        time=keys.text("time") or "timestamp",
        window_ms=window_ms,
        slide_ms=slide_ms,
        watermark_ms=_DEFAULT_WATERMARK_MS if watermark_ms is None else watermark_ms,
        by=tuple(_named(keys, "by", each) for each in keys.texts("by")),
        aggregates=_aggregates(keys),
        emit=emit,
    )


def _copy(keys: Keys, common: dict[str, Any]) -> Copy:
    to = keys.needed("to", "copies")
    if to in common["source"].topics:
        raise keys.wrong("to", f"topic {to!r} would be copied into itself endlessly")
    select, expression = keys.texts("select"), keys.text("expression")
    if select and expression:
        raise keys.wrong(
            "select", "the new value is either columns or one expression", "leave out one of them"
        )
    return Copy(
        **common,
        to=to,
        where=keys.text("where"),
        select=tuple(_named(keys, "select", each) for each in select),
        expression=expression,
        new_key=keys.text("new_key"),
    )


def _path(keys: Keys, table: TableFormat) -> str | None:
    """Checked with its storage options: the first batch would be late."""
    written = keys.text("path")
    try:
        if written is None:
            return None
        if table == "parquet":
            return str(local_path(written))
        return str(_storage(keys).place(written))
    except ClientError as error:
        raise keys.wrong("path", error.what, error.next_step) from None


def _storage(keys: Keys) -> Storage:
    config = keys.text("storage_config")
    return Storage(
        options={str(name): str(value) for name, value in keys.table("storage").items()},
        config=None if config is None else str(Path(config).expanduser().absolute()),
    )


def _named(keys: Keys, key: str, expression: str) -> str:
    """The name of a result column: a plain column, or the alias after AS."""
    if _PLAIN.fullmatch(expression) or _ALIASED.fullmatch(expression):
        return expression
    raise keys.wrong(key, f"{expression!r} needs a name", f'write "{expression} AS name"')


def _aggregates(keys: Keys) -> tuple[Aggregate, ...]:
    found = [Aggregate(name="count", expression="count(*)")]
    for function in ("sum", "avg"):
        for column in keys.names(function):
            name = f"{function}_{_last(keys, function, column)}"
            found.append(Aggregate(name=name, expression=f"{function}({column})"))
    for column, wanted in keys.table("percentiles").items():
        for each in wanted if isinstance(wanted, list | tuple) else (wanted,):
            if not isinstance(each, int | float) or not 0 <= each <= 100:
                raise keys.wrong("percentiles", f"{each!r} of {column!r} is not a number from 0 to 100")
            name = f"p{each:g}_{_last(keys, 'percentiles', column)}".replace(".", "_")
            found.append(Aggregate(name=name, expression=f"percentile_approx({column}, {each / 100:g})"))
    for name, expression in keys.table("aggregates").items():
        if not isinstance(expression, str) or re.fullmatch(r"\w+", name) is None:
            raise keys.wrong("aggregates", f"{name} = {expression!r} is not a name and an SQL expression")
        found.append(Aggregate(name=name, expression=expression))
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise keys.wrong("aggregates", f"two columns of the result would be called {twice!r}")
    return tuple(found)


def _last(keys: Keys, key: str, column: str) -> str:
    if _PLAIN.fullmatch(column) is None:
        raise keys.wrong(key, f"{column!r} is not a column", "for expressions use aggregates: name = SQL")
    return column.rpartition(".")[2]


_MAKERS: dict[str, Callable[[Keys, dict[str, Any]], Pipeline]] = {
    "store": _store,
    "analyze": _analyze,
    "copy": _copy,
}
