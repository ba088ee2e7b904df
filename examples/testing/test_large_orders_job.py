# SPDX-License-Identifier: Apache-2.0
"""Left out where Spark or Java is missing: pip install headrace[spark], and Java 17 or newer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is missing: pip install headrace[spark]")

import pyarrow as pa
from large_orders_job import run

import headrace
from headrace.client.errors import ClientError
from headrace.pipelines.spark_session.session import spark_session
from headrace.testing import Broker

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for all tests: a JVM takes seconds to start."""
    try:
        session = spark_session("local[2]", name="large-orders")
    except ClientError as error:
        pytest.skip(f"Spark cannot run here: {error}")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def broker(kafka: Broker) -> Broker:
    kafka.create_topic("orders", retention_ms="3600000")
    kafka.create_topic("large-orders")
    return kafka


def place(broker: Broker, **amounts: float) -> None:
    values = [json.dumps({"id": name, "amount": amount}) for name, amount in amounts.items()]
    headrace.write(pa.table({"value": values}), "orders", bootstrap=broker.bootstrap)


def copied(broker: Broker) -> list[str]:
    """What a reader of committed records sees."""
    table = headrace.read("large-orders", bootstrap=broker.bootstrap, key="string").read_all()
    return sorted(table["key"].to_pylist())


def test_each_run_copies_what_is_new(spark: Any, broker: Broker, tmp_path: Path) -> None:
    place(broker, a=99, b=100, c=250)
    headrace.write(pa.table({"value": ["no order"]}), "orders", bootstrap=broker.bootstrap)
    run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
    assert copied(broker) == ["b", "c"]
    place(broker, d=500)
    run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
    assert copied(broker) == ["b", "c", "d"]


def test_lost_connections_are_repeated(spark: Any, broker: Broker, tmp_path: Path) -> None:
    place(broker, b=100, c=250)
    for api in ("Fetch", "Produce"):
        broker.fail(api=api, disconnect="before")
        broker.fail(api=api, disconnect="after")
    run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
    assert copied(broker) == ["b", "c"]


def test_a_run_whose_output_is_refused_is_done_again_by_the_next(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    place(broker, b=100, c=250)
    broker.fail(api="Produce", error="INVALID_RECORD")
    with pytest.raises(Exception, match="invalid_record"):  # whatever Spark makes of it
        run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
    assert copied(broker) == []
    run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
    assert copied(broker) == ["b", "c"]


def test_orders_that_expired_unread_end_the_run(spark: Any, broker: Broker, tmp_path: Path) -> None:
    place(broker, b=100)
    run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
    place(broker, c=250)
    broker.advance("1d")
    with pytest.raises(Exception, match="no longer holds offset 1"):  # whatever Spark makes of it
        run(spark, broker.bootstrap, str(tmp_path), timeout_s=TIMEOUT_S)
