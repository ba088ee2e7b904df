# SPDX-License-Identifier: Apache-2.0
"""Delta tables in a real S3 server that enforces If-None-Match: files, commits, accidents, maintenance.

Without Spark; tests/spark/test_spark_s3.py runs queries. A proxy before the server does to commits what a
network does.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from headrace.cli.main import run
from headrace.client.errors import ClientError
from headrace.pipelines.delta import conditional_puts
from headrace.pipelines.delta.files import TaskFiles
from headrace.pipelines.delta.folders import table_folder
from headrace.pipelines.delta.optimize import optimize_table
from headrace.pipelines.delta.recorded_batches import filesystem_of, recorded_batches
from headrace.pipelines.delta.storage_options import table_place
from headrace.pipelines.delta.table import ObjectStorePath, open_table
from pyspark_headrace_delta.commit import TableCommit
from pyspark_headrace_delta.options import table_settings
from pyspark_headrace_delta.reader import TableReader, table_columns
from pyspark_headrace_delta.schema import table_schema
from tests.compat import s3_driver
from tests.compat.s3_driver import ROWS, commit_batch
from tests.harness.live.s3_proxy import S3Proxy
from tests.harness.live.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, storage_of

pytestmark = pytest.mark.compat_go

_numbers = itertools.count()


class Driver:
    """s3_driver.py in a process of its own."""

    def __init__(self, document: dict[str, Any], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, s3_driver.__file__, json.dumps(document)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def output(self, *, killed: bool = False) -> list[str]:
        out, said = self._process.communicate(timeout=100)
        assert self._process.returncode == (-9 if killed else 0), said
        return out.splitlines()

    def error(self) -> str:
        _, said = self._process.communicate(timeout=100)
        assert self._process.returncode == 1, said
        return said


class Table:
    """A table of the test's own, reached directly or through the proxy."""

    def __init__(self, server: S3Server, proxy: S3Proxy) -> None:
        self.name = f"lake/t{next(_numbers)}"
        server.bucket("tables")
        self.path = f"s3://tables/{self.name}"
        self.server, self.proxy = server, proxy
        self.storage = storage_of(server.port)

    @property
    def place(self) -> ObjectStorePath:
        place = table_place(self.path, self.storage)
        assert isinstance(place, ObjectStorePath)
        return place

    def options(self) -> dict[str, str]:
        return sink_options(self.server.port)

    def driver(self, *work: int | str, environment: Mapping[str, str] | None = None) -> Driver:
        """A process that does this work through the proxy."""
        options = {**sink_options(self.proxy.port), "storage.max_retries": "3"}
        return Driver({"path": self.path, "options": options, "work": work}, environment or {})

    def cut_once(self, moment: str) -> list[str]:
        """Cut the next commit before or after it reaches the server; returns what was cut."""
        cut: list[str] = []

        def once(name: str) -> bool:
            cut.append(name.rpartition("/")[2])
            setattr(self.proxy, moment, lambda name: True)
            return False

        setattr(self.proxy, moment, once)
        return cut

    def forgive(self) -> None:
        self.proxy.before = self.proxy.after = lambda name: True

    def version(self) -> int:
        return DeltaTable(self.path, storage_options=self.storage).version()

    def batches(self) -> list[int]:
        """Batch numbers with all of their rows; fails when a batch is there in part or twice."""
        rows = DeltaTable(self.path, storage_options=self.storage).to_pyarrow_table()["batch"].to_pylist()
        found = sorted(set(rows))
        assert {number: rows.count(number) for number in found} == dict.fromkeys(found, ROWS)
        return found

    def objects(self) -> list[str]:
        return self.server.objects("tables", self.name + "/")


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    proxy = S3Proxy(s3_server.port)
    yield proxy
    proxy.stop()


@pytest.fixture
def table(s3_server: S3Server, proxy: S3Proxy) -> Iterator[Table]:
    table = Table(s3_server, proxy)
    yield table
    table.forgive()
    proxy.drops_conditions = False
    proxy.statuses.clear()


# -- files, options, reading ---------------------------------------------------------------------------------


def test_a_table_is_made_written_and_read(table: Table) -> None:
    assert commit_batch(table.path, table.options(), 0)
    assert commit_batch(table.path.replace("s3:", "s3a:"), table.options(), 1)
    assert not commit_batch(table.path, table.options(), 1)
    assert table.batches() == [0, 1]
    rows = read(table)
    assert len(rows) == 2 * ROWS
    assert not [name for name in table.objects() if "_headrace_check_" in name], "the check cleans up"


def test_partitions_of_any_name(table: Table) -> None:
    names = ["a/b", "c d%", "ü+,;:&=?#", None, "x" * 300]
    rows = pa.table({"n": list(range(len(names))), "name": pa.array(names, pa.string())})
    settings = table_settings({"path": table.path, "partitionBy": "name", **table.options()}, streaming=False)
    files = TaskFiles(settings.path, ["name"], task=0, target_size=1 << 20).write(rows.to_batches())
    write = {"settings": settings, "schema": schema_of(rows), "overwrite": False, "batch": None}
    assert TableCommit(files=files, **write).apply()
    assert sorted(read(table), key=lambda row: row["n"]) == rows.to_pylist()
    again = TaskFiles(settings.path, ["name"], task=0, target_size=1 << 20).write(rows.to_batches())
    assert TableCommit(files=again, **write).apply()
    assert optimize_table(table.place).files_after == len(names)
    assert sorted(read(table), key=str) == sorted(2 * rows.to_pylist(), key=str)


def test_large_files_are_uploaded_in_parts(table: Table) -> None:
    noise = pa.table({"n": pa.array(range(3_000_000), pa.int64())})
    noise = noise.set_column(0, "n", pc.multiply(noise["n"], 0x9E3779B97F4A7C1))
    (file,) = TaskFiles(table.place, (), task=0, target_size=1 << 30).write(noise.to_batches())
    assert file.size > 12 << 20, "three parts"
    assert table_folder(table.place).sizes([file.path]) == [file.size]


def test_a_failed_task_leaves_nothing_that_is_seen(table: Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1], "p": ["a"]})
        raise ValueError("as a task may fail")

    with pytest.raises(ValueError, match="as a task may fail"):
        TaskFiles(table.place, ["p"], task=0, target_size=1).write(batches())
    assert table.objects() == []


def test_columns_are_added_and_results_replaced(table: Table) -> None:
    rows = pa.table({"n": [1]})
    wider = pa.table({"n": [2], "more": [1.5]})
    for each, overwrite in ((rows, False), (wider, False), (wider, True)):
        settings = table_settings(
            {"path": table.path, "mergeSchema": "true", **table.options()}, streaming=False
        )
        files = TaskFiles(settings.path, (), task=0, target_size=1 << 20).write(each.to_batches())
        assert TableCommit(
            settings=settings, schema=schema_of(each), files=files, overwrite=overwrite, batch=None
        ).apply()
        assert len(read(table)) == (1 if overwrite or each is rows else 2)


def test_older_versions_are_read_by_number_and_time(table: Table) -> None:
    for number in range(3):
        commit_batch(table.path, table.options(), number)
    assert len(read(table, version=1)) == 2 * ROWS
    now = time.time()
    for number, age_s in enumerate((3600, 1800, 0)):
        table.server.set_time("tables", f"{table.name}/_delta_log/{number:020}.json", now - age_s)
    at = datetime.datetime.fromtimestamp(now - 1000, datetime.UTC)
    assert len(read(table, version=at)) == 2 * ROWS
    with pytest.raises(ClientError, match="its log begins later"):
        read(table, version=at - datetime.timedelta(days=1))
    with pytest.raises(ClientError, match=r"has no version 7: .*its latest version is 2"):
        read(table, version=7)


def test_batches_are_found_in_the_log(table: Table) -> None:
    for number in range(2):
        commit_batch(table.path, table.options(), number)
    opened = open_table(table.place)
    assert opened is not None
    assert [each.number for each in recorded_batches(opened)] == [1, 0]
    with filesystem_of(opened).open_input_stream(f"_delta_log/{0:020}.json") as entry:
        assert b"commitInfo" in entry.read()


def test_rejects_are_added_by_tasks(table: Table) -> None:
    from pyspark_headrace.reading.rejects import RejectsTable

    rejects = RejectsTable(table.place)
    rejects.add(
        pa.record_batch(
            {
                "topic": ["t"],
                "partition": pa.array([0], pa.int32()),
                "offset": [7],
                "column": ["value"],
                "error": ["bad"],
                "bytes": [b"x"],
            }
        )
    )
    rejects.finish()
    assert [(row["offset"], row["bytes"]) for row in read(table)] == [(7, b"x")]


def test_other_readers_read_it(table: Table) -> None:
    import polars

    commit_batch(table.path, table.options(), 0)
    aws = {name: value for name, value in table.storage.items() if name.startswith("aws_")}
    assert polars.scan_delta(table.path, storage_options=aws).collect().height == ROWS


# -- logins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"aws_secret_access_key": "another-secret"}, {"aws_access_key_id": "nobody"}]
)
def test_a_wrong_login_is_named_and_not_shown(table: Table, wrong: dict[str, str]) -> None:
    place = table_place(table.path, {**table.storage, **wrong})
    with pytest.raises(ClientError) as raised:
        open_table(place)
    said = str(raised.value)
    assert "SignatureDoesNotMatch" in said or "No user exists with the provided access key ID" in said
    assert "check storageConfig" in said
    for value in (ACCESS_KEY, SECRET_KEY, *wrong.values()):
        assert value not in said
        assert value not in repr(place)


def test_a_server_that_is_not_there_is_an_error(table: Table) -> None:
    place = table_place(
        table.path, {**table.storage, "aws_endpoint": "http://127.0.0.1:1", "max_retries": "0"}
    )
    with pytest.raises(ClientError, match=r"cannot be opened: .*Connection refused.*endpoint"):
        open_table(place)


def test_a_bucket_that_is_not_there_is_an_error(table: Table) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        commit_batch("s3://nowhere/orders", table.options(), 0)


# -- conditional puts ----------------------------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_refused(table: Table) -> None:
    table.proxy.drops_conditions = True
    assert "ignores If-None-Match: of two puts of one name both succeeded" in table.driver(0).error()
    assert not [name for name in table.objects() if "_delta_log" in name]


def test_a_query_checks_its_store_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    races: list[str] = []
    really = conditional_puts._race

    def race(place: ObjectStorePath) -> list[str]:
        races.append(place.uri)
        return really(place)

    monkeypatch.setattr(conditional_puts, "_race", race)
    commit_batch(table.path, table.options(), 0)
    at_first = len(races)
    monkeypatch.setattr(conditional_puts, "_checked", set())  # as in the process of another batch
    commit_batch(table.path, table.options(), 1)
    assert 1 <= at_first == len(races)


def test_the_environment_cannot_turn_conditions_off(table: Table) -> None:
    unsafe = {"AWS_CONDITIONAL_PUT": "disabled", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    assert table.driver(0, 1, environment=unsafe).output() == ["0 True", "1 True"]
    assert [status for _, status in table.proxy.statuses] == [200, 200]


# -- exactly once --------------------------------------------------------------------------------------------


def test_two_drivers_put_one_version_and_one_wins(table: Table) -> None:
    """Both have seen the same version; the put of the second is refused by the server."""
    commit_batch(table.path, table.options(), 0)
    both = threading.Barrier(2)

    def together(name: str) -> bool:
        both.wait(30)
        return True

    table.proxy.before = together
    drivers = [table.driver(1) for _ in range(2)]
    assert sorted(each.output() for each in drivers) == [["1 False"], ["1 True"]]
    assert sorted(status for _, status in table.proxy.statuses) == [200, 412]
    assert table.batches() == [0, 1]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_answer_is_lost_counts_once(table: Table, moment: str) -> None:
    """The connection breaks before the put reaches the server, or between the put and its answer."""
    commit_batch(table.path, table.options(), 0)
    cuts = table.cut_once(moment)
    assert table.driver(1).output() == ["1 True" if moment == "before" else "1 False"]
    assert cuts == [f"{1:020}.json"]
    assert table.batches() == [0, 1]
    assert table.version() == 1
    assert not commit_batch(table.path, table.options(), 1), "a restart is a replay"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_unnumbered_write_whose_answer_is_lost_counts_once(table: Table, moment: str) -> None:
    for version in range(2):
        cuts = table.cut_once(moment)
        table.driver("write").output()
        assert cuts == [f"{version:020}.json"]
    assert len(read(table)) == 2 * ROWS
    assert table.version() == 1


def test_a_store_that_never_answers_ends_in_an_error_and_a_replay(table: Table) -> None:
    commit_batch(table.path, table.options(), 0)
    table.proxy.before = lambda name: False
    said = table.driver(1).error()
    assert "rejected the commit" in said
    assert "a batch that is already in the table is skipped" in said
    assert ACCESS_KEY not in said
    table.proxy.before = lambda name: True
    assert table.driver(1).output() == ["1 True"]
    assert table.batches() == [0, 1]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_killed_at_its_put_goes_on_exactly_once(table: Table, moment: str) -> None:
    """Before the put reaches the server the batch is not there; after it, it is, and the restart skips it."""
    driver = table.driver(0, 1, 2)

    def kill(name: str) -> bool:
        if name.endswith(f"{1:020}.json"):
            driver.kill()
            return False
        return True

    setattr(table.proxy, moment, kill)
    assert driver.output(killed=True) == ["0 True"]
    assert table.batches() == ([0] if moment == "before" else [0, 1])
    table.forgive()
    assert table.driver(1, 2).output() == [f"1 {moment == 'before'}", "2 True"]
    assert table.batches() == [0, 1, 2]


def test_a_frozen_drivers_late_put_is_refused(table: Table) -> None:
    """Its request is on the way for as long as its successor needs to commit the batch and the next one."""
    commit_batch(table.path, table.options(), 0)

    def overtaken(name: str) -> bool:
        if name.endswith(f"{1:020}.json"):
            for number in (1, 2):
                commit_batch(table.path, table.options(), number)
        return True

    table.proxy.before = overtaken
    assert "has batch 2 of this query, but the checkpoint goes on with batch 1" in table.driver(1).error()
    assert [status for _, status in table.proxy.statuses] == [412]
    assert table.batches() == [0, 1, 2]


# -- maintenance ---------------------------------------------------------------------------------------------


def test_small_files_are_merged_and_orphans_removed(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        commit_batch(table.path, table.options(), number)
    TaskFiles(table.place, (), task=0, target_size=1).write(pa.table({"batch": [9]}).to_batches())
    config = tmp_path / "s3.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in table.storage.items()))
    command = ["pipeline", "optimize", table.path, "--storage-config", str(config)]
    assert run([*command, "--dry-run", "--json", "--retain", "0h", "--force"]) == 0
    would = json.loads(capsys.readouterr().out)
    assert (would["small_files"], would["orphans"]) == (5, 1)
    assert would["orphan_bytes"] > 0
    assert run(command) == 0
    assert "Merged small files: 5 files before, 1 now." in capsys.readouterr().out
    assert run([*command, "--retain", "0h", "--force"]) == 0
    assert "Removed 6 unreferenced files" in capsys.readouterr().out
    assert table.batches() == [0, 1, 2, 3, 4]
    assert len([name for name in table.objects() if name.endswith(".parquet")]) == 1


def test_a_merge_whose_answer_is_lost_is_done(table: Table) -> None:
    for number in range(3):
        commit_batch(table.path, table.options(), number)
    cuts = table.cut_once("after")
    assert table.driver("optimize").output() == ["1"]
    assert cuts == [f"{3:020}.json"]
    assert table.batches() == [0, 1, 2]


# -- helpers -------------------------------------------------------------------------------------------------


def read(table: Table, version: Any = None) -> list[dict[str, Any]]:
    reader = TableReader(table.place, table_columns(table.place).fieldNames(), version)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def schema_of(rows: pa.Table) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return table_schema(from_arrow_schema(rows.schema), ())


def sink_options(port: int) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in storage_of(port).items()}
