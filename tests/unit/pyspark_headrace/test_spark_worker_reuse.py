# SPDX-License-Identifier: Apache-2.0
"""Between two tasks of a worker Spark tidies up: what was freezing_after is not gone through again."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pytest

from pyspark_headrace import worker_reuse


class CountingImporter(zipimporter):
    rereads = 0

    def invalidate_caches(self) -> None:
        self.rereads += 1


@pytest.fixture(autouse=True)
def no_frozen_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_reuse, "_frozen_modules", 0)
    yield
    gc.unfreeze()


@pytest.fixture
def importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingImporter:
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("some_module.py", "")
    found = CountingImporter(str(archive))
    monkeypatch.setitem(sys.path_importer_cache, str(archive), found)
    return found


def test_modules_loaded_when_a_task_ends_are_frozen() -> None:
    assert list(worker_reuse.freezing_after(iter([1, 2]))) == [1, 2]
    assert gc.get_freeze_count() > 1000


def test_nothing_is_frozen_again_until_more_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    worker_reuse.freeze_imports()
    frozen = gc.get_freeze_count()
    kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    worker_reuse.freeze_imports()
    assert gc.get_freeze_count() <= frozen  # what others let go of meanwhile leaves it
    monkeypatch.setitem(sys.modules, "imported_since", sys)
    worker_reuse.freeze_imports()
    assert gc.get_freeze_count() > frozen + len(kept) / 2


def test_an_archive_is_read_again_only_when_it_has_changed(importer: CountingImporter) -> None:
    importlib.invalidate_caches()
    assert importer.rereads == 1
    worker_reuse.freeze_imports()
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert importer.rereads == 1
    os.utime(importer.archive, ns=(1, 1))
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert importer.rereads == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_modules_are_imported_without_garbage_collection(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with worker_reuse.collecting_later():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with pytest.raises(ImportError), worker_reuse.collecting_later():
            importlib.import_module("there_is_no_such_module")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
