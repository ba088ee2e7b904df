# SPDX-License-Identifier: Apache-2.0
"""The files of a table's folder: in a file system, or in an object store through deltalake's own client.

Both have one login and one set of options with the table's log. Knows neither Parquet nor the log.
Read next: files.py, scan.py.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from headrace.pipelines.delta.table import ObjectStorePath, TablePlace, unreachable

_REQUESTS_AT_ONCE = 16


class NewFile(Protocol):
    """A file that is being written."""

    @property
    def stream(self) -> Any:
        """What a Parquet writer writes to."""

    def tell(self) -> int: ...

    def finish(self) -> int:
        """Complete the file, durably but for its name; returns its size."""

    def abandon(self) -> None:
        """Give it up; it is removed afterwards."""


class TableFolder(Protocol):
    """Names are relative to the folder, with slashes."""

    def begin(self, name: str) -> NewFile: ...

    def source(self, name: str) -> Any:
        """What a Parquet reader reads from."""

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        """In bytes; None: there is no such file."""

    def remove(self, name: str) -> None:
        """Nothing happens if there is no such file."""

    def keep(self, names: Collection[str]) -> None:
        """Make the names of finished files durable."""


def table_folder(place: TablePlace, *, sizes: Mapping[str, int] | None = None) -> TableFolder:
    """`sizes` of files that will be read save a request for each."""
    return LocalFolder(place) if isinstance(place, Path) else ObjectFolder(place, sizes or {})


class LocalFolder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, name: str) -> NewFile:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return _LocalFile(path)

    def source(self, name: str) -> Path:
        return self._root / name

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        paths = [self._root / name for name in names]
        return [path.stat().st_size if path.is_file() else None for path in paths]

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def keep(self, names: Collection[str]) -> None:
        """Fsync the directories up to the table's, so that the names are durable, too."""
        parents = {(self._root / name).parent for name in names}
        above = {
            each for path in parents for each in (path, *path.parents) if each.is_relative_to(self._root)
        }
        for path in above:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class _LocalFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")

    @property
    def stream(self) -> Any:
        return self._file

    def tell(self) -> int:
        return self._file.tell()

    def finish(self) -> int:
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return size

    def abandon(self) -> None:
        self._file.close()


class ObjectFolder:
    """Requests fail with a ClientError."""

    def __init__(self, place: ObjectStorePath, sizes: Mapping[str, int]) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self._place = place
        try:
            self._handler = DeltaStorageHandler(place.uri, dict(place.options), dict(sizes))
        except (OSError, ValueError) as error:
            raise unreachable(error, place, "reached") from None
        self._files = PyFileSystem(self._handler)

    def begin(self, name: str) -> NewFile:
        try:
            return _ObjectFile(self._handler._handler.open_output_stream(name, None), self._place)
        except OSError as error:
            raise unreachable(error, self._place, "written to") from None

    def source(self, name: str) -> Any:
        try:
            return self._files.open_input_file(name)
        except OSError as error:
            raise unreachable(error, self._place, "read") from None

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        def size(name: str) -> int | None:
            found = self._files.get_file_info(name)
            return found.size if found.is_file else None

        try:
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
                return list(pool.map(size, names))
        except OSError as error:
            raise unreachable(error, self._place, "read") from None

    def remove(self, name: str) -> None:
        try:
            self._files.delete_file(name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreachable(error, self._place, "cleaned up") from None

    def keep(self, names: Collection[str]) -> None:
        """An uploaded object is durable."""


class _ObjectFile:
    """An upload in parts. The object appears when it is finished, whole or not at all."""

    def __init__(self, upload: Any, place: ObjectStorePath) -> None:
        self._upload = upload
        self._place = place
        self._size = 0
        self.closed = False

    @property
    def stream(self) -> Any:
        return self

    def write(self, data: Any) -> int:
        if not self.closed:
            try:
                self._upload.write(bytes(data))
            except OSError as error:
                raise unreachable(error, self._place, "written to") from None
        self._size += len(data)
        return len(data)

    def flush(self) -> None:
        """A part has to be large: the upload sends it when it is."""

    def tell(self) -> int:
        return self._size

    def finish(self) -> int:
        try:
            self._upload.close()
        except OSError as error:
            raise unreachable(error, self._place, "written to") from None
        self.closed = True
        return self._size

    def abandon(self) -> None:
        """Its parts stay in the store, unseen, until the store removes incomplete uploads."""
        self.closed = True
