# SPDX-License-Identifier: Apache-2.0
"""Merging beside a pipeline: it begins by itself, survives whatever fails, and ends with the pipeline."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Store
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.jobs.background_optimizer import BackgroundOptimizer
from tests.harness.waiting import wait_until


def append(path: Path) -> None:
    write_deltalake(path, pa.table({"n": [1]}), mode="append")


def optimizer_of(path: Path) -> BackgroundOptimizer:
    return BackgroundOptimizer(path, every_ms=10, target_size=1 << 20)


def test_files_are_merged_again_and_again(tmp_path: Path) -> None:
    optimizer = optimizer_of(tmp_path)
    optimizer.start()
    try:
        for _ in range(2):
            append(tmp_path)
            append(tmp_path)
            wait_until(lambda: len(DeltaTable(tmp_path).file_uris()) == 1)
    finally:
        optimizer.close()
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 4


def test_a_table_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert optimizer_of(tmp_path).optimize() is None
    assert not caplog.records


def test_a_failure_is_logged_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path)
    append(tmp_path)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with caplog.at_level(logging.WARNING):
        assert optimizer_of(tmp_path).optimize() is None
    assert f"the table {tmp_path} was not optimized" in caplog.text


def store(**keys: Any) -> Store:
    table = {"topic": "orders", "path": "/t", **keys}
    (pipeline,) = pipelines_of({"store": {"orders": table}}, "p.toml").pipelines
    assert isinstance(pipeline, Store)
    return pipeline


def test_the_keys_of_a_pipeline() -> None:
    assert (store().optimize_ms, store().target_size) == (None, 128 << 20)
    chosen = store(optimize="10m", target_size="64m")
    assert (chosen.optimize_ms, chosen.target_size) == (600_000, 64 << 20)
    assert chosen.identity() == store().identity(), "it may change while a checkpoint is in use"
    for keys, message in (
        ({"optimize": "soon"}, "optimize: 'soon' is not a duration"),
        ({"optimize": "1m", "target_size": "much"}, "target_size: 'much' is not a size"),
        ({"target_size": "1m"}, "target_size: it is the size to merge to; set optimize"),
        ({"optimize": "1m", "format": "parquet"}, "optimize: only the files of Delta tables are merged"),
    ):
        with pytest.raises(ClientError, match=message):
            store(**keys)
