# SPDX-License-Identifier: Apache-2.0
"""A sink's tasks against a live node: staged bytes come back the same; at least once tasks write."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.wire.batch import HEADER_SIZE
from headrace.wire.records import Record, build_batch
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.commit_messages import InStaging, Written
from pyspark_headrace.writing.internal_topics import STAGING
from pyspark_headrace.writing.staging import StagingReader, StagingWriter
from pyspark_headrace.writing.task import write_task

VALUES = SinkColumns(names=frozenset({"value"}))


def batch(tag: str, count: int, size: int = 10) -> bytearray:
    return build_batch([Record(n, 1000 + n, None, f"{tag} {n}".encode() * size) for n in range(count)])


def read_back(bootstrap: str, run: InStaging) -> bytes:
    connections = pooled_client(bootstrap)
    reader = StagingReader(connections.client, timeout_ms=10_000)
    return connections.call(reader.read(run))


def bodies(*batches: bytes | bytearray) -> bytes:
    return b"".join(bytes(each[HEADER_SIZE:]) for each in batches)


def test_staged_batches_come_back_as_they_were(bootstrap: str) -> None:
    one, other = (StagingWriter(pooled_client(bootstrap), timeout_ms=20_000) for _ in range(2))
    other._partition = one._partition  # tasks that share a partition
    first = {("a", 0): [batch("x", 3), batch("y", 5)], ("a", 7): [batch("z", 1, size=200_000)]}
    runs = one.put(first)
    between = other.put({("b", 0): [batch("between", 4)]})
    runs += one.put({("a", 0): [batch("later", 2)]})
    assert [(run.topic, run.partition, run.end - run.start) for run in runs] == [
        ("a", 0, 8),
        ("a", 7, 1),
        ("a", 0, 2),
    ]
    assert {run.staging_partition for run in runs} == {one._partition}
    found = [read_back(bootstrap, run) for run in (*runs, *between)]
    assert found[0][HEADER_SIZE : len(first["a", 0][0])] == bodies(first["a", 0][0])
    assert found[1][HEADER_SIZE:] == bodies(first["a", 7][0])
    assert found[2][HEADER_SIZE:] == bodies(batch("later", 2))
    assert found[3][HEADER_SIZE:] == bodies(batch("between", 4))
    assert [len(each) for each in found] == [run.size for run in (*runs, *between)]
    with pytest.raises(ClientError, match="holds other records"):
        read_back(bootstrap, dataclasses.replace(runs[2], start=between[0].start))
    with pytest.raises(ClientError, match=r"are no longer in .*: .*offset_out_of_range"):
        read_back(bootstrap, dataclasses.replace(runs[2], start=10**9, end=10**9 + 1))
    for writer in (one, other):
        writer.close()


def test_the_staging_topic_keeps_a_day(bootstrap: str) -> None:
    StagingWriter(pooled_client(bootstrap), timeout_ms=20_000).close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, STAGING.name)
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(20)["retention.ms"].value == str(24 * 3600 * 1000)


@pytest.fixture
def settings(bootstrap: str, topic: str) -> WriteSettings:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    return WriteSettings(bootstrap=bootstrap, topic=topic, compression="none", timeout_ms=20_000)


def rows() -> Any:
    return iter([pa.record_batch({"value": [f"row {number}" for number in range(100)]})])


def test_at_least_once_tasks_write_themselves(settings: WriteSettings) -> None:
    assert write_task(rows(), settings, VALUES, exactly_once=False, awaits_broker=False) == Written(100)
    assert settings.topic is not None
    found = headrace.read(settings.topic, bootstrap=settings.bootstrap, columns=["value"]).read_all()
    assert found.num_rows == 100
