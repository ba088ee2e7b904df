# SPDX-License-Identifier: Apache-2.0
"""Queries into tables in a real S3 server: exactly once over kills of the driver, and no login in any plan.

tests/compat/test_s3_tables.py has the accidents of commits one by one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.client.errors import ClientError
from headrace.spark import delta, table
from tests.harness.live.s3_proxy import S3Proxy
from tests.harness.live.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, storage_of
from tests.spark.kill_processes import Program
from tests.spark.spark_lab import TIMEOUT_S, Broker, message_of
from tests.spark.test_spark_pipelines import run_once

pytestmark = [
    pytest.mark.compat_go,
    pytest.mark.timeout(900),  # a Spark of its own, twice
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
BUCKET = "spark"


@pytest.fixture
def path(s3_server: S3Server, topic: str) -> str:
    return f"{s3_server.bucket(BUCKET)}/{topic}"


@pytest.fixture
def config(s3_server: S3Server, tmp_path: Path) -> Path:
    return write_config(tmp_path / "s3.properties", s3_server.port)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    proxy = S3Proxy(s3_server.port)
    yield proxy
    proxy.stop()


def test_a_topic_is_stored_once_and_read_back(
    spark: Any, broker: Broker, new_topic: Callable[..., str], path: str, config: Path, tmp_path: Path
) -> None:
    """With a driver that died between its commit and Spark's record of it."""
    topic, checkpoint = new_topic(), tmp_path / "checkpoint"
    values = broker.fill(topic, 0, 250)

    def store() -> Any:
        source = {"bootstrap": broker.bootstrap, "subscribe": topic, "maxOffsetsPerTrigger": "100"}
        query = (
            spark.readStream.format("headrace")
            .options(startingOffsets="earliest", **source)
            .load()
            .selectExpr("CAST(value AS STRING)", "offset % 3 AS part")
            .writeStream.format("headrace_delta")
            .options(path=path, storageConfig=str(config), partitionBy="part")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)
        return query

    said = [store()._jsq.explainInternal(True)]
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    said.append(store()._jsq.explainInternal(True))
    reader = spark.read.format("headrace_delta").option("storageConfig", str(config))
    frame = reader.load(path)
    assert sorted(row["value"] for row in frame.collect()) == sorted(values)
    assert reader.option("versionAsOf", 0).load(path).count() == 100
    inline = {f"storage.{name}": value for name, value in read_config(config).items()}
    named = spark.read.format("headrace_delta").options(**inline).load(path)
    assert named.count() == 250
    said += [each._jdf.queryExecution().toString() for each in (frame, named)]
    assert not [text for text in said if SECRET_KEY in text]
    assert not [text for text in (said[0], said[1], said[2]) if ACCESS_KEY in text]
    wrong = spark.read.format("headrace_delta").options(**{**inline, "storage.aws_secret_access_key": "x"})
    refusal = message_of(lambda: wrong.load(path))
    assert "check storageConfig" in refusal
    assert ACCESS_KEY not in refusal


def test_rejects_and_complete_results_go_to_s3(
    spark: Any, broker: Broker, new_topic: Callable[..., str], path: str, config: Path, tmp_path: Path
) -> None:
    topic = new_topic()
    broker.fill(topic, 0, 5)
    typed = (
        spark.read.format("headrace")
        .options(bootstrap=broker.bootstrap, subscribe=topic, value="json", valueSchema="n LONG")
        .options(rejectsTable=f"{path}/rejects", storageConfig=str(config))
        .load()
    )
    assert typed.count() == 0
    reader = spark.read.format("headrace_delta").option("storageConfig", str(config))
    assert reader.load(f"{path}/rejects").count() == 5
    counts = typed.sparkSession.range(10).selectExpr("id % 2 AS odd", "id").groupBy("odd").count()
    for _ in range(2):
        writer = counts.write.format("headrace_delta").option("storageConfig", str(config))
        writer.mode("overwrite").save(f"{path}/counts")
    assert reader.load(f"{path}/counts").count() == 2


def test_a_topic_is_one_table_of_files_in_s3_and_new_records(
    spark: Any, broker: Broker, new_topic: Callable[..., str], path: str, config: Path, tmp_path: Path
) -> None:
    topic = new_topic(2)
    broker.fill(topic, 0, 100)
    source = {"topic": topic, "value": "string", "max_rows": 60}
    table_keys = {"path": path, "storage_config": str(config)}
    document = {"bootstrap": broker.bootstrap, "checkpoints": str(tmp_path)}
    run_once(spark, {**document, "store": {topic: {**source, **table_keys}}})
    broker.fill(topic, 100, 130)
    rows = table(spark, topic, path=path, bootstrap=broker.bootstrap, storage_config=config)
    assert sorted(row["value"] for row in rows.collect()) == sorted(f"value {each}" for each in range(130))
    assert rows.where("partition = 0").count() + rows.where("partition = 1").count() == 130
    plan = rows._jdf.queryExecution().toString()
    assert SECRET_KEY not in plan
    assert ACCESS_KEY not in plan
    assert delta(spark, path, storage_config=config).count() == 100
    first = delta(spark, path, version=0, storage_config=config, columns=["value"])
    assert first.columns == ["value"]
    assert first.count() < 100
    with pytest.raises(ClientError, match="there is no Delta table"):
        delta(spark, f"{path}-other", storage_config=config)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_pipeline_killed_at_its_put_goes_on_exactly_once(
    java_home: Path,
    broker: Broker,
    new_topic: Callable[..., str],
    path: str,
    proxy: S3Proxy,
    tmp_path: Path,
    moment: str,
) -> None:
    """`headrace pipeline run store`, killed before the put of its second batch arrives, or its answer."""
    topic = new_topic()
    broker.fill(topic, 0, 300)
    config = write_config(tmp_path / "s3.properties", proxy.port)
    command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", "store", "--once"]
    command += ["--topic", topic, "--path", path, "--storage-config", str(config), "--max-rows", "100"]
    command += ["--bootstrap", broker.bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    command += ["--master", "local[1]", "--json"]
    killed: list[str] = []

    def kill(name: str) -> bool:
        if not name.endswith(f"{1:020}.json"):
            return True
        killed.append(name)
        program.signal(signal.SIGKILL)
        return False

    setattr(proxy, moment, kill)
    with Program(command, {}, tmp_path / "first.log") as program:
        program.ended()
    assert killed, program.output()
    proxy.before = proxy.after = lambda name: True
    with Program(command, {}, tmp_path / "second.log") as program:
        assert program.ended() == 0, program.output()
    for log in ("first.log", "second.log"):
        assert SECRET_KEY not in (tmp_path / log).read_text()
    rows = DeltaTable(path, storage_options=storage_of(proxy.port)).to_pyarrow_table()
    assert sorted(rows["offset"].to_pylist()) == list(range(300))


def write_config(file: Path, port: int) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in storage_of(port).items()))
    return file


def read_config(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())
