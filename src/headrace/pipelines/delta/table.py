# SPDX-License-Identifier: Apache-2.0
"""Locates and opens tables in file systems and object stores, without Spark.

An opened table is one version of its log: decisions based on it are committed on it, so that concurrent
commits are detected. Read next: folders.py, protocol.py, optimize.py.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_S3 = ("s3", "s3a")
_OBJECT_STORES = (*_S3, "gs", "az", "azure", "abfs", "abfss")
_COLOUR = re.compile(r"\x1b\[\d*m")
_XML = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStorePath:
    """A table in an object store, like `s3://bucket/orders`. Printed without its options."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By deltalake's names; they may hold a login (S8). Others are in the environment of each process."""

    def __str__(self) -> str:
        return self.uri

    @property
    def is_s3(self) -> bool:
        return urlsplit(self.uri).scheme == "s3"


TablePlace = Path | ObjectStorePath


def place_of(written: str, options: Mapping[str, str]) -> TablePlace:
    """The place of `/data/orders`, `file:///data/orders` or `s3://bucket/orders`."""
    scheme = _scheme(written)
    if scheme in _OBJECT_STORES:
        return ObjectStorePath(uri=_object_uri(written), options=dict(options))
    if scheme not in ("", "file"):
        raise ClientError(
            f"a table cannot be at {_without_login(written)!r}: only file systems and object stores are "
            f"supported, not {scheme}:",
            next_step="write a path that the driver and all workers share, or s3://bucket/orders",
        )
    if options:
        raise ClientError(
            f"the table {local_path(written)} is in a file system, where storage options have no meaning",
            next_step="leave them out, or write its path like s3://bucket/orders",
        )
    return local_path(written)


def local_path(written: str) -> Path:
    """The path of `/data/orders`, `orders` or `file:///data/orders`; ClientError for other schemes."""
    if not _scheme(written):
        return Path(os.path.abspath(written))
    parts = urlsplit(written)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ClientError(
            f"a table cannot be at {_without_login(written)!r}: only file systems are supported, not "
            f"{parts.scheme}:",
            next_step="use a path that the driver and all workers share, like /data/orders",
        )
    return Path(os.path.abspath(unquote(parts.path)))


def open_table(place: TablePlace) -> DeltaTable | None:
    """Open the latest version; None when there is no table."""
    delta = _deltalake()
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        if isinstance(place, ObjectStorePath):
            return delta(place.uri, storage_options=dict(place.options))
        return delta(place) if (place / "_delta_log").is_dir() else None
    except TableNotFoundError:
        return None
    except DeltaError as error:
        log = f"{place}/_delta_log"
        raise ClientError(
            f"the table {place} cannot be opened: {reason_of(error, place)}",
            next_step=f"see whether the files in {log} are whole",
        ) from (error if isinstance(place, Path) else None)
    except OSError as error:
        if isinstance(place, Path):
            raise
        raise unreachable(error, place, "opened") from None


def open_version(place: TablePlace, version: int | datetime.datetime | None) -> DeltaTable | None:
    """Open a version, or the last one before a time; None: the latest. ClientError when there is none."""
    table = open_table(place)
    if table is None or version is None:
        return table
    from deltalake.exceptions import DeltaError

    latest = table.version()
    asked = f"version {version}" if isinstance(version, int) else f"version at {version.isoformat()}"
    try:
        table.load_as_version(version)
        reason = "" if isinstance(version, int) or _begun(table) <= version else "its log begins later"
    except (DeltaError, OSError, ValueError) as error:
        reason = reason_of(error, place)
    if reason:
        raise ClientError(
            f"the table {place} has no {asked}: {reason}",
            next_step=f"its latest version is {latest}; older ones are kept as long as its log",
        )
    return table


def _begun(table: DeltaTable) -> datetime.datetime:
    """When the opened version was committed, by its file in the log: for earlier times the library opens the
    first version."""
    from headrace.pipelines.delta.recorded_batches import filesystem_of

    entry = filesystem_of(table).get_file_info(f"_delta_log/{table.version():020}.json")
    return entry.mtime or datetime.datetime.min.replace(tzinfo=datetime.UTC)


def unreachable(error: Exception, place: TablePlace, done: str) -> ClientError:
    """The error of an object store that refused a request or was not reached. It never shows a login."""
    return ClientError(
        f"the table {place} cannot be {done}: {reason_of(error, place)}",
        next_step="check storageConfig or the options storage.…: endpoint, region, login; and what the login "
        "may do with objects below the table's prefix",
    )


def reason_of(error: Exception, place: TablePlace) -> str:
    """What the library says in one line, without anything of the login."""
    if isinstance(place, Path):
        return first_line(error)
    text = _COLOUR.sub("", str(error))
    answer = _XML.search(text)
    said = [line.strip(" ↳\t") for line in text.partition("<?xml")[0].splitlines()]
    reason = ": ".join(line for line in said if line)
    if answer is not None:
        reason += f": {answer[1]}, {answer[2]}"
    hidden = [each for name, each in place.options.items() if re.search("key|secret|token|pass", name)]
    for value in sorted(filter(None, hidden), key=len, reverse=True):
        reason = reason.replace(value, "…")
    return reason or type(error).__name__


def first_line(error: Exception) -> str:
    """Errors of the library carry a trace of its own frames after their first line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _scheme(written: str) -> str:
    return urlsplit(written).scheme.lower() if _SCHEME.match(written) else ""


def _object_uri(written: str) -> str:
    parts = urlsplit(written)
    scheme = "s3" if parts.scheme.lower() in _S3 else parts.scheme.lower()
    has_login = "@" in parts.netloc and scheme == "s3"
    if has_login or not parts.netloc or parts.query or parts.fragment:
        raise ClientError(
            f"a table cannot be at {_without_login(written)!r}",
            next_step="write it like s3://bucket/orders, and the login into the file of 'storageConfig'",
        )
    names = [name for name in parts.path.split("/") if name]
    if "." in names or ".." in names:
        raise ClientError(f"a table cannot be at {written!r}", next_step="write the prefix without . and ..")
    return "/".join([f"{scheme}://{parts.netloc}", *names])


def _without_login(written: str) -> str:
    return re.sub(r"//[^/]*@", "//…@", written).partition("?")[0]


def _deltalake() -> type[DeltaTable]:
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed", next_step="pip install headrace[spark]"
        ) from error
    return DeltaTable
