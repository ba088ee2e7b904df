# SPDX-License-Identifier: Apache-2.0
"""A topic that goes away in the middle of a write: what was not delivered is said, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.write.results import WriteFailed

TIMEOUT_S = 20
SCHEMA = pa.schema({"value": pa.binary()})


def create(bootstrap: str, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    return admin


def rows_with(interruption: Any) -> Any:
    """2,000 rows; something happens after the first thousand."""

    def batches() -> Iterator[Any]:
        for number in range(20):
            if number == 10:
                interruption()
            yield pa.record_batch({"value": [b"%d" % (number * 100 + each) for each in range(100)]})

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def test_a_topic_deleted_while_it_is_written_is_an_error(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic)
    rows = rows_with(lambda: admin.delete_topics([topic])[topic].result(TIMEOUT_S))
    with pytest.raises(WriteFailed, match=f"{topic}.*(does not exist|unknown_topic)") as failed:
        headrace.write(rows, topic, bootstrap=bootstrap, batch_bytes=500, budget=2000, timeout_ms=700)
    assert failed.value.delivered.records + len(list(failed.value.rows)) <= 2000
    assert failed.value.rows


def test_a_topic_recreated_while_it_is_written_does_not_get_the_rest(bootstrap: str, topic: str) -> None:
    admin = create(bootstrap, topic)

    def make_anew() -> None:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        create(bootstrap, topic)

    with pytest.raises(WriteFailed, match=f"{topic}.*(recreated|unknown_topic)"):
        headrace.write(
            rows_with(make_anew), topic, bootstrap=bootstrap, batch_bytes=500, budget=2000, timeout_ms=700
        )
    assert headrace.read(topic, bootstrap=bootstrap).read_all().num_rows == 0
