# SPDX-License-Identifier: Apache-2.0
"""A program as users write it, for type checkers; it is never run.

mypy reads it with the sources, tests/docs/test_pyright.py with pyright. An ignored line must be an error for
both.
"""

from __future__ import annotations

from typing import assert_type

import duckdb
import polars as pl

import headrace

ROWS = [{"customer": "ann", "price": 0.5}]


def write(reader: duckdb.DuckDBPyRelation) -> None:
    delivered = headrace.write(ROWS, "orders", key="customer", create=3)
    assert_type(delivered, headrace.Delivered)
    assert_type(delivered.partitions, dict[int, headrace.PartitionDelivery])
    headrace.write(pl.DataFrame(ROWS), "orders", create=True)
    headrace.write(pl.LazyFrame(ROWS), "orders")
    headrace.write([pl.DataFrame(ROWS)], "orders")
    headrace.write(reader, "orders", timestamp=None, value=["customer", "price"])
    headrace.write(headrace.topic("orders"), "copies")
    headrace.write(headrace.read("orders"), "copies")
    headrace.write("orders", ROWS)  # type: ignore[arg-type]
    headrace.write(5, "orders")  # type: ignore[arg-type]
    headrace.write(ROWS, "orders", kye="customer")  # type: ignore[call-arg]
    headrace.write(ROWS, "orders", compression="zip")  # type: ignore[arg-type]


def read() -> None:
    recent = headrace.topic("orders").last("10m").typed(value=headrace.Json())
    assert_type(recent, headrace.Selection)
    assert_type(len(recent), int)
    assert_type(recent.to_polars(), pl.DataFrame)
    assert_type(recent.to_duckdb(), duckdb.DuckDBPyRelation)
    headrace.read("orders", last=10)  # type: ignore[arg-type]
    with headrace.stream("orders", group="billing") as batches:
        assert_type(batches, headrace.Stream)
        assert_type(batches.position(), dict[headrace.TopicPartition, int])


def exactly_once() -> None:
    with headrace.transaction("copier") as transaction:
        assert_type(transaction, headrace.Transaction)
        assert_type(transaction.write(ROWS, "orders"), headrace.Delivered)
    done = headrace.transform("orders", "copies", lambda batch: batch, group="copiers", until="end")
    assert_type(done, headrace.Transformed)
    headrace.transform("orders", "copies", lambda batch: batch)  # type: ignore[call-arg]


def administer() -> None:
    with headrace.Admin() as admin:
        assert_type(admin, headrace.Admin)
        assert_type(admin.topics(), list[headrace.TopicSummary])
        assert_type(admin.configs(topic="orders"), dict[str, headrace.ConfigValue])
        assert_type(admin.describe_group("billing"), headrace.GroupDescription)
        assert_type(admin.lag("billing").seconds, float | None)
        assert_type(admin.reset_offsets("billing", "orders", "earliest"), list[headrace.OffsetChange])
        admin.reset_offsets("billing", "orders", "begin")  # type: ignore[arg-type]


async def with_asyncio() -> None:
    assert_type(await headrace.awrite(ROWS, "orders"), headrace.Delivered)
    async with headrace.astream("orders") as batches:
        assert_type(batches, headrace.AsyncStream)
    async with headrace.atransaction("copier") as transaction:
        assert_type(await transaction.write(ROWS, "orders"), headrace.Delivered)


def catch() -> list[int]:
    try:
        headrace.write(ROWS, "orders")
    except headrace.WriteFailed as error:
        return list(error.rows)
    except headrace.ClientError as error:
        assert_type(error.next_step, str | None)
    headrace.reed("orders")  # type: ignore[attr-defined]
    return []
