# SPDX-License-Identifier: Apache-2.0
"""headrace.transform on a live node; refused before a read where transactions are switched off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.write.transaction_session import TransactionsNotServed
from headrace.client.errors import ClientError
from tests.harness.live.node import NodeProcess

REASON = r"serves no transactions; .*at least once: headrace.stream\(…, commit=False\), headrace.write\(…\)"


def test_every_record_is_transformed_once(bootstrap: str, topic: str) -> None:
    target = f"{topic}-out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 2, 1) for name in (topic, target)]).values():
        created.result(20)
    for first in (0, 500):
        rows = pa.table({"value": [str(number) for number in range(first, first + 500)]})
        headrace.write(rows, topic, bootstrap=bootstrap, partitioner="round_robin")
        done = headrace.transform(
            topic, target, lambda batch: batch, group=topic, bootstrap=bootstrap, until="end"
        )
        assert (done.read, done.written) == (500, 500)
    found = headrace.read(target, bootstrap=bootstrap, columns=["value"]).read_all()["value"].to_pylist()
    assert sorted(map(int, found)) == list(range(1000))


def test_a_broker_without_transactions_is_named_with_the_alternative(
    start_node: Callable[..., NodeProcess], topic: str
) -> None:
    bootstrap = start_node({"headrace.transaction.version": "0"}).bootstrap
    with pytest.raises(TransactionsNotServed, match=REASON) as raised:
        headrace.transform(topic, f"{topic}-out", lambda batch: batch, group=topic, bootstrap=bootstrap)
    assert raised.value.code == "UNSUPPORTED_VERSION"
    with pytest.raises(ClientError, match=REASON):
        asyncio.run(
            headrace.atransform(topic, f"{topic}-out", lambda batch: batch, group=topic, bootstrap=bootstrap)
        )
