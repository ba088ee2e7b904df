# SPDX-License-Identifier: Apache-2.0
"""Interleaved transactions of every producer and codec, produced on Apache Kafka now: all readers agree."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import headrace
from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.segment_scenes import KEPT, SCENES, play
from tests.harness.batches.recorded import Recording, Row

pytestmark = pytest.mark.compat_jvm


@pytest.fixture(scope="module")
def node(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with kafka_engine.start(tmp_path_factory.mktemp("segments"), {}) as running:
        yield running


@pytest.mark.parametrize("name", SCENES)
def test_our_reader_sees_what_the_others_see(kafka_engine: KafkaEngine, node: RunningNode, name: str) -> None:
    recording = play(kafka_engine, node, name)
    for committed_only, expected in ((True, recording.committed), (False, recording.everything)):
        table = headrace.read(name, bootstrap=node.bootstrap, committed_only=committed_only).read_all()
        table = table.set_column(
            table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
        )
        assert [as_row(row) for row in table.to_pylist()] == list(expected)
    kept = Recording.load(KEPT, name)
    assert [row[3:] for row in kept.committed] == [row[3:] for row in recording.committed], "as was recorded"


def as_row(row: dict[str, object]) -> Row:
    headers = tuple((each["key"], each["value"]) for each in row["headers"])  # type: ignore[attr-defined]
    return Row(**{name: row[name] for name in Row._fields if name != "headers"}, headers=headers)  # type: ignore[arg-type]
