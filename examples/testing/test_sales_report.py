# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from sales_report import Report, run

import headrace
from headrace.client.errors import ClientError
from headrace.testing import Broker


@pytest.fixture
def progress(tmp_path: Path) -> Path:
    return tmp_path / "offsets.json"


@pytest.fixture
def broker(kafka: Broker) -> Broker:
    kafka.create_topic("sales", retention_ms="3600000")
    kafka.create_topic("revenue")
    return kafka


def sell(broker: Broker, *values: str) -> None:
    headrace.write(pa.table({"value": list(values)}), "sales", bootstrap=broker.bootstrap)


def sale(customer: str, amount: float) -> str:
    return json.dumps({"customer": customer, "amount": amount})


def revenue(broker: Broker) -> list[tuple[str, float]]:
    rows = [json.loads(record.value or b"") for record in broker.records("revenue")]
    return [(row["customer"], row["amount"]) for row in rows]


def test_each_sale_is_reported_once(broker: Broker, progress: Path) -> None:
    sell(broker, sale("ann", 1.5), sale("bob", 2.0), sale("ann", 3.0))
    assert run(broker.bootstrap, progress) == Report(sales=3, rejected=0, missed=0)
    assert sorted(revenue(broker)) == [("ann", 4.5), ("bob", 2.0)]
    assert run(broker.bootstrap, progress) == Report(sales=0, rejected=0, missed=0)
    sell(broker, sale("bob", 1.0))
    assert run(broker.bootstrap, progress) == Report(sales=1, rejected=0, missed=0)
    assert revenue(broker)[2:] == [("bob", 1.0)]


def test_what_is_no_sale_is_counted_and_passed_over(broker: Broker, progress: Path) -> None:
    sell(broker, "no JSON", sale("ann", 1.5), '{"amount": "much"}')
    assert run(broker.bootstrap, progress) == Report(sales=1, rejected=2, missed=0)
    assert run(broker.bootstrap, progress) == Report(sales=0, rejected=0, missed=0)


def test_sales_that_expired_are_reported_as_missed(broker: Broker, progress: Path) -> None:
    sell(broker, sale("ann", 1.5))
    run(broker.bootstrap, progress)
    sell(broker, sale("ann", 2.0), sale("ann", 3.0))
    broker.advance("1d")
    sell(broker, sale("bob", 4.0))
    assert run(broker.bootstrap, progress) == Report(sales=1, rejected=0, missed=2)


def test_a_missing_topic_is_an_error_that_names_it(kafka: Broker, progress: Path) -> None:
    with pytest.raises(ClientError, match="topic 'sales' does not exist"):
        run(kafka.bootstrap, progress)


@pytest.mark.parametrize("api", ["Fetch", "Produce"])
def test_a_lost_connection_is_repeated(broker: Broker, progress: Path, api: str) -> None:
    sell(broker, sale("ann", 1.5))
    broker.fail(api=api, disconnect="before")
    broker.fail(api=api, disconnect="after")
    assert run(broker.bootstrap, progress).sales == 1
    assert revenue(broker) == [("ann", 1.5)]


def test_a_refused_report_is_written_by_the_next_run(broker: Broker, progress: Path) -> None:
    sell(broker, sale("ann", 1.5))
    broker.fail(api="Produce", error="INVALID_RECORD")
    with pytest.raises(ClientError, match="refused row 0"):
        run(broker.bootstrap, progress)
    assert not progress.exists()
    assert run(broker.bootstrap, progress).sales == 1
    assert revenue(broker) == [("ann", 1.5)]


def test_a_run_that_died_before_saving_is_repeated_with_its_name(broker: Broker, progress: Path) -> None:
    sell(broker, sale("ann", 1.5))
    run(broker.bootstrap, progress)
    progress.unlink()
    run(broker.bootstrap, progress)
    first, second = broker.records("revenue")
    assert first.headers == second.headers == (("run", b"{}"),)


def test_a_broker_that_is_down_ends_the_run(broker: Broker, progress: Path) -> None:
    sell(broker, sale("ann", 1.5))
    broker.crash()
    with pytest.raises(ClientError):
        run(broker.bootstrap, progress, timeout_ms=300)
    broker.restart()
    assert run(broker.bootstrap, progress).sales == 1
