# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from audit_log import AuditHandler, AuditReader

from headrace.testing import Broker

QUICK: dict[str, Any] = {"reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}


@contextmanager
def audit(broker: Broker, **settings: Any) -> Iterator[tuple[logging.Logger, AuditHandler]]:
    logger = logging.Logger("audit")
    handler = AuditHandler(broker.bootstrap, **QUICK, **settings)
    logger.addHandler(handler)
    with closing(handler):
        yield logger, handler


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as opened:
        yield opened


def reader_of(broker: Broker, database: sqlite3.Connection) -> closing[AuditReader]:
    return closing(AuditReader(broker.bootstrap, database, **QUICK))


def store(reader: AuditReader, count: int) -> None:
    """Until so many records were stored."""
    for _ in range(100):
        count -= reader.store_new(0.1)
        if count <= 0:
            assert count == 0
            return
    raise AssertionError(f"{count} records did not come")


def lines(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("audit")]


def stored(database: sqlite3.Connection) -> list[str]:
    return [line for (line,) in database.execute("SELECT line FROM audit ORDER BY position")]


def test_audit_records_reach_the_database(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("audit")
    with audit(kafka) as (logger, _):
        logger.info("ann logged in")
        logger.info("ann read the payroll")
    with reader_of(kafka, database) as reader:
        store(reader, 2)
    assert stored(database) == ["ann logged in", "ann read the payroll"]


def test_an_error_that_passes_is_retried(kafka: Broker) -> None:
    kafka.create_topic("audit")
    kafka.fail(api="Produce", client="audit", times=2, error="NOT_LEADER_OR_FOLLOWER")
    with audit(kafka) as (logger, _):
        logger.info("ann logged in")
    assert lines(kafka) == [b"ann logged in"]


def test_a_lost_connection_neither_loses_nor_duplicates_a_record(kafka: Broker) -> None:
    kafka.create_topic("audit")
    kafka.fail(api="Produce", client="audit", disconnect="before")
    kafka.fail(api="Produce", client="audit", disconnect="after")
    with audit(kafka) as (logger, _):
        logger.info("ann logged in")
    assert lines(kafka) == [b"ann logged in"]


def test_a_refused_record_is_sent_again_with_the_next(kafka: Broker) -> None:
    kafka.create_topic("audit")
    kafka.fail(api="Produce", client="audit", error="INVALID_RECORD")
    with audit(kafka) as (logger, handler):
        logger.info("ann logged in")
        handler.flush()
        assert lines(kafka) == []
        logger.info("ann read the payroll")
    assert lines(kafka) == [b"ann logged in", b"ann read the payroll"]


def test_records_wait_while_the_broker_is_down(kafka: Broker) -> None:
    kafka.create_topic("audit")
    with audit(kafka, max_block_ms=50, most_waiting=2) as (logger, handler):
        kafka.crash()
        for number in range(3):
            logger.info("step %d", number)
        kafka.restart()
        for _ in range(100):
            handler.flush()
            if len(lines(kafka)) == 2:
                break
    assert lines(kafka) == [b"step 1", b"step 2"]
    assert handler.dropped == 1


def test_a_reader_that_is_started_again_stores_each_record_once(
    kafka: Broker, database: sqlite3.Connection
) -> None:
    kafka.create_topic("audit")
    with audit(kafka) as (logger, handler):
        logger.info("ann logged in")
        handler.flush()
        with reader_of(kafka, database) as reader:
            store(reader, 1)
        logger.info("ann logged out")
        handler.flush()
        kafka.fail(api="Fetch", client="audit-reader", disconnect="after")
        with reader_of(kafka, database) as reader:
            store(reader, 1)
    assert stored(database) == ["ann logged in", "ann logged out"]


def test_a_database_that_fails_keeps_the_position(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("audit")
    with audit(kafka) as (logger, _):
        logger.info("ann logged in")
    with reader_of(kafka, database) as reader:
        database.execute("DROP TABLE audit")
        with pytest.raises(sqlite3.OperationalError):
            store(reader, 1)
    with reader_of(kafka, database) as reader:
        store(reader, 1)
    assert stored(database) == ["ann logged in"]


def test_a_reader_that_was_away_too_long_goes_on_with_what_is_left(
    kafka: Broker, database: sqlite3.Connection
) -> None:
    kafka.create_topic("audit", retention_ms="3600000", segment_ms="60000")
    with audit(kafka) as (logger, handler):
        logger.info("ann logged in")
        handler.flush()
        kafka.advance("1d")
        assert lines(kafka) == []
        logger.info("ann logged out")
        handler.flush()
        with reader_of(kafka, database) as reader:
            store(reader, 1)
    assert stored(database) == ["ann logged out"]
