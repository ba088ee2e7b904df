# SPDX-License-Identifier: Apache-2.0
"""Writing without an answer (acks=0), and in a transaction, against a live node."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.write.results import WriteFailed
from headrace.client.errors import ClientError
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def rows(count: int, size: int = 20) -> Any:
    return pa.table({"value": [b"%d " % n * (size // 8) for n in range(count)]})


def values(bootstrap: str, topic: str) -> list[bytes]:
    read: list[bytes] = headrace.read(topic, bootstrap=bootstrap).read_all()["value"].to_pylist()
    return read


@pytest.mark.parametrize("awaited", [False, True])
def test_acks_0_delivers_every_row_when_nothing_fails(bootstrap: str, topic: str, awaited: bool) -> None:
    create(bootstrap, topic, 3)
    data = rows(5000)
    options: Any = {"bootstrap": bootstrap, "acks": 0, "idempotent": False, "batch_bytes": 3000}
    if awaited:
        delivered = asyncio.run(headrace.awrite(data, topic, **options))
    else:
        delivered = headrace.write(data, topic, **options)
    assert delivered.records == 5000
    assert {each.last_offset for each in delivered.partitions.values()} == {-1}, "nobody said where"
    assert sorted(values(bootstrap, topic)) == sorted(data["value"].to_pylist())


def test_acks_0_is_not_sent_twice_over_a_lost_connection(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    create(node.bootstrap, "t")
    data = rows(100_000, 200)
    killer = threading.Timer(0.4, node.kill)
    killer.start()
    with pytest.raises(WriteFailed, match=r"rows .* for partition 0 of .* are not acknowledged") as caught:
        headrace.write(
            slowly(data, 40),
            "t",
            bootstrap=node.bootstrap,
            acks=0,
            idempotent=False,
            batch_bytes=50_000,
            timeout_ms=1000,
        )
    killer.join()
    node.start()
    there = values(node.bootstrap, "t")
    assert len(there) == len(set(there)), "at most once"
    assert caught.value.delivered.records + len(caught.value.rows) <= 100_000


def slowly(data: Any, parts: int) -> Any:
    size = data.num_rows // parts
    for part in range(parts):
        time.sleep(0.05)  # the slow source: the node dies while it gives rows
        yield from data.slice(part * size, size).to_batches()


def test_a_refused_batch_with_acks_0_is_an_error(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    data = pa.table({"value": [b"small", b"x" * 2_000_000]})
    with pytest.raises(WriteFailed, match=r"are not acknowledged: .* closed the connection"):
        headrace.write(data, topic, bootstrap=bootstrap, acks=0, idempotent=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"acks": 0}, "needs acks='all'; give idempotent=False with acks=0"),
        ({"acks": 2}, "acks=2 is not served"),
        ({"transactional_id": "t", "idempotent": False, "acks": 1}, "needs an idempotent write"),
        ({"transactional_id": ""}, "a transaction needs an id"),
    ],
)
def test_options_that_contradict_each_other(bootstrap: str, topic: str, options: Any, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        headrace.write(rows(1), topic, bootstrap=bootstrap, **options)


def test_a_write_with_a_transactional_id_is_all_or_nothing(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    headrace.write(rows(3), topic, bootstrap=bootstrap, transactional_id=topic)
    wait_until(lambda: len(values(bootstrap, topic)) == 3)
    with headrace.transaction(topic, bootstrap=bootstrap) as transaction:
        transaction.write(rows(5), topic)
        transaction.abort()
    assert len(values(bootstrap, topic)) == 3


def test_where_transactions_are_switched_off_they_are_refused(
    start_node: Callable[..., NodeProcess], topic: str
) -> None:
    bootstrap = start_node({"headrace.transaction.version": "0"}).bootstrap
    create(bootstrap, topic)
    with pytest.raises(ClientError, match="serves no transactions; write without transactional_id"):
        headrace.write(rows(3), topic, bootstrap=bootstrap, transactional_id="t")
    with pytest.raises(ClientError, match="serves no transactions"):
        headrace.transaction("t", bootstrap=bootstrap)
    assert values(bootstrap, topic) == []
