# SPDX-License-Identifier: Apache-2.0
"""Pipelines as people write them: what is meant, and which key is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.identity import claim
from headrace.pipelines.definitions.definition import Analyze, Copy, Store
from headrace.pipelines.definitions.definition_file import pipelines_of, read_pipelines, select_pipelines
from headrace.pipelines.definitions.definition_keys import default_checkpoints
from headrace.pipelines.definitions.keys import parse_ms

SCHEMA = "customer STRING, amount BIGINT, at TIMESTAMP"
FILE = f"""
bootstrap = "broker:9092"
checkpoints = "/state"

[spark]
master = "local[2]"
settings = {{ "spark.sql.shuffle.partitions" = 4 }}

[store.orders]
topic = "orders"
path = "/data/orders"

[analyze.revenue]
topic = ["orders", "returns"]
value = "json"
schema = "{SCHEMA}"
time = "at"
window = "1h"
slide = "15 minutes"
watermark = "5m"
by = ["customer", "upper(region) AS region"]
sum = "amount"
avg = ["amount"]
percentiles = {{ amount = [50, 99.9] }}
aggregates = {{ largest = "max(amount)" }}
to = "revenue"

[copy.large]
pattern = "orders-.*"
to = "large"
where = "offset > 3"
bootstrap = "other:9092"
group = "copier"
options = {{ "minPartitions" = 8 }}
"""


def test_a_file_with_several_pipelines(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.toml"
    path.write_text(FILE)
    found = read_pipelines(path)
    assert (found.master, found.settings) == ("local[2]", {"spark.sql.shuffle.partitions": "4"})
    store, analyze, copy = found.pipelines
    assert isinstance(store, Store)
    assert (store.format, store.time, store.partition_by) == ("delta", "timestamp", None)
    assert (store.source.value, store.source.key) == ("raw", "raw")
    assert (store.group, store.checkpoint) == ("orders", Path("/state/orders"))
    assert isinstance(analyze, Analyze)
    assert (analyze.window_ms, analyze.slide_ms, analyze.watermark_ms) == (3_600_000, 900_000, 300_000)
    assert analyze.source.key == "string", "what is typed is looked at by people"
    assert [(each.name, each.expression) for each in analyze.aggregates] == [
        ("count", "count(*)"),
        ("sum_amount", "sum(amount)"),
        ("avg_amount", "avg(amount)"),
        ("p50_amount", "percentile_approx(amount, 0.5)"),
        ("p99_9_amount", "percentile_approx(amount, 0.999)"),
        ("largest", "max(amount)"),
    ]
    assert isinstance(copy, Copy)
    assert (copy.source.bootstrap, copy.group) == ("other:9092", "copier")
    assert copy.source.options == {"minPartitions": "8"}
    assert select_pipelines(found.pipelines, ["large"], "x") == [copy]
    with pytest.raises(ClientError, match="has no pipeline 'smal'; choose from large, orders, revenue"):
        select_pipelines(found.pipelines, ["smal"], "pipelines.toml")


def table(**changes: Any) -> dict[str, Any]:
    kept = {"topic": "orders", "path": "/data/orders", **changes}
    return {key: value for key, value in kept.items() if value is not None}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "p.toml has no pipelines; write [store.orders] and its keys"),
        ({"stroe": {}}, "p.toml: stroe: there is no such key or table; did you mean store?"),
        ({"store": {"topic": "a"}}, "p.toml: [store] topic: a pipeline needs a name; write [store.orders]"),
        ({"store": {"a b": table()}}, "p.toml: 'a b' is not a valid name of a pipeline"),
        (
            {"store": {"x": table(formt="delta")}},
            "[store.x] formt: there is no such key; did you mean format?",
        ),
        ({"store": {"x": table(format="iceberg")}}, "[store.x] format: 'iceberg' is not one of delta"),
        ({"store": {"x": table(topic=None)}}, "[store.x] topic: either a topic or a pattern"),
        ({"store": {"x": table(path=None)}}, "[store.x] path: it is missing; for example /data/orders"),
        ({"store": {"x": table(path="hdfs://b/t")}}, "[store.x] path: a table cannot be at 'hdfs://b/t'"),
        ({"store": {"x": table(max_rows=0)}}, "[store.x] max_rows: 0 is not a whole number of"),
        ({"store": {"x": table(value="json")}}, "[store.x] schema: JSON needs one"),
        ({"store": {"x": table(bootstrap="here:port")}}, "[store.x] bootstrap: "),
        ({"store": {"x": table(every="soon")}}, "[store.x] every: 'soon' is not a duration; use 500ms, 30s"),
        ({"store": {"x": table(topic=3)}}, "[store.x] topic: 3 is not a list of strings"),
        ({"analyze": {"x": table()}}, "[analyze.x] window: it is missing; for example 1m"),
        (
            {"analyze": {"x": table(window="1m", slide="2m")}},
            "[analyze.x] slide: it is longer than the window",
        ),
        ({"analyze": {"x": table(window="1m", path=None)}}, "[analyze.x] path: there is no output"),
        (
            {"analyze": {"x": table(window="1m", by=["a+b"])}},
            "[analyze.x] by: 'a+b' needs a name; write \"a+b AS",
        ),
        ({"analyze": {"x": table(window="1m", sum=["a+b"])}}, "[analyze.x] sum: 'a+b' is not a column"),
        (
            {"analyze": {"x": table(window="1m", percentiles={"a": [101]})}},
            "[analyze.x] percentiles: 101 of 'a' is not a number from 0 to 100",
        ),
        (
            {"analyze": {"x": table(window="1m", aggregates={"count": "sum(a)"})}},
            "two columns of the result would be called 'count'",
        ),
        ({"copy": {"x": {"topic": "a", "to": "a"}}}, "[copy.x] to: topic 'a' would be copied into itself"),
        (
            {"copy": {"x": {"topic": "a", "to": "b", "select": ["c"], "expression": "d"}}},
            "[copy.x] select: the new value is either columns or one expression",
        ),
        (
            {"store": {"x": table(group="g"), "y": table(group="g")}},
            "p.toml: two pipelines have the group 'g'; each needs its own",
        ),
        ({"spark": {"mster": "x"}, "store": {"x": table()}}, "p.toml: [spark] mster: there is no such key"),
    ],
)
def test_errors_name_the_position_in_the_file(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError) as raised:
        pipelines_of(document, "p.toml")
    assert message in str(raised.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="there is no file"):
        read_pipelines(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[store")
    with pytest.raises(ClientError, match=r"broken\.toml is not valid TOML: .*end of document"):
        read_pipelines(broken)


def test_durations() -> None:
    texts = ["500ms", "30s", "1.5m", "10 minutes", "1 hour", "2 days", "250 milliseconds"]
    assert [parse_ms(text) for text in texts] == [500, 30_000, 90_000, 600_000, 3_600_000, 172_800_000, 250]
    assert [parse_ms(text) for text in ("", "5", "5 weeks", "-1s")] == [None] * 4


def test_checkpoints_are_in_the_users_state_directory() -> None:
    assert default_checkpoints({"HOME": "/h"}) == Path("/h/.local/state/headrace/pipelines")
    assert default_checkpoints({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/headrace/pipelines")


def test_a_checkpoint_belongs_to_one_pipeline(tmp_path: Path) -> None:
    def analyze(window: str) -> Any:
        (found,) = pipelines_of({"analyze": {"x": table(window=window)}}, "p.toml").pipelines
        return found

    claim(analyze("1m"), tmp_path / "c")
    claim(analyze("60s"), tmp_path / "c")
    with pytest.raises(
        ClientError, match="was made with window = 60000, and now it is 120000; choose another"
    ):
        claim(analyze("2m"), tmp_path / "c")
    (tmp_path / "foreign" / "offsets").mkdir(parents=True)
    with pytest.raises(ClientError, match="belongs to a query of another program; choose another"):
        claim(analyze("1m"), tmp_path / "foreign")


def test_a_table_in_an_object_store(tmp_path: Path) -> None:
    login = tmp_path / "s3.properties"
    login.write_text("aws_secret_access_key=hush\n")
    storage = {"aws_region": "eu-central-1"}
    document = {"store": {"x": table(path="s3a://lake/x/", storage=storage, storage_config=str(login))}}
    (store,) = pipelines_of(document, "p.toml").pipelines
    assert isinstance(store, Store)
    assert store.path == "s3://lake/x"
    assert store.storage.sink_options() == {"storage.aws_region": "eu-central-1", "storageConfig": str(login)}
    assert "hush" not in f"{store!r} {store.identity()}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"storage": {"aws_regoin": "x"}}, "path: there is no storage option 'aws_regoin' for S3; did you"),
        ({"storage_config": "/nowhere"}, "path: the file /nowhere with storage options cannot be read"),
        ({"format": "parquet"}, "path: a table cannot be at 's3://lake/x': only file systems are supported"),
        ({"path": "/data/x", "storage": {"aws_region": "x"}}, "storage options have no meaning"),
    ],
)
def test_storage_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError) as raised:
        pipelines_of({"store": {"x": table(**{"path": "s3://lake/x", **changes})}}, "p.toml")
    assert message in str(raised.value)
