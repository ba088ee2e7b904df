# SPDX-License-Identifier: Apache-2.0
"""The views `topics` and `topic` of planted snapshots."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.console.state.model import PartitionDetails, ProducerState, SegmentState, Snapshot
from headrace.console.views.view import ViewError
from tests.unit.console.views.planted import NOW, partition, planted, show, topic

SEGMENTS = (SegmentState(base=0, bytes=600, newest_ms=NOW), SegmentState(base=60, bytes=400, newest_ms=None))


def many() -> Snapshot:
    topics = {name: topic(name, partition(0, end=end)) for name, end in (("b", 5), ("a", 50), ("c", None))}
    topics["__internal"] = topic("__internal", partition(0), internal=True)
    return replace(planted(), topics=topics, groups={})


def names(document: dict[str, object]) -> list[str]:
    return [each["name"] for each in document["topics"]]  # type: ignore[index, attr-defined]


def test_topics_have_sizes_rates_readers_and_the_largest_lag() -> None:
    (orders,) = show("topics", planted())["topics"]
    assert orders == {
        "name": "orders", "internal": False, "partitions": 2, "replication": 3, "records": 200,
        "size_bytes": 2_000, "rate_in": 20.0, "under_replicated": 0, "without_leader": 0, "groups": 1,
        "lag": 60, "range_partitioned": None,
    }  # fmt: skip


def test_topics_are_sorted_filtered_and_limited_with_internal_ones_last() -> None:
    assert names(show("topics", many())) == ["a", "b", "c", "__internal"]
    assert names(show("topics", many(), sort="-records")) == ["a", "b", "c", "__internal"]
    assert names(show("topics", many(), sort="records")) == ["b", "a", "c", "__internal"]
    limited = show("topics", many(), limit="1")
    assert (limited["total"], names(limited)) == (4, ["a"])
    assert names(show("topics", many(), q="INTER")) == ["__internal"]


@pytest.mark.parametrize("params", [{"sort": "colour"}, {"limit": "many"}])
def test_a_wrong_parameter_is_refused(params: dict[str, str]) -> None:
    with pytest.raises(ViewError) as caught:
        show("topics", many(), **params)
    assert caught.value.status == 400


def test_a_topic_has_its_logs_and_who_reads_them() -> None:
    document = show("topic", planted(), topic="orders")
    json.dumps(document)
    first, second = document["partitions"]
    assert (first["leader"], first["start"], first["end"], first["segments"], first["producers"]) == (
        1, 0, 100, None, None,
    )  # fmt: skip
    (reader,) = second["readers"]
    assert reader == {
        "group": "billing", "member_id": "b", "client_id": "client-b", "host": "10.0.0.1", "position": 45,
        "committed": 40, "lag": 60, "behind": 9_000, "behind_at_least": False,
    }  # fmt: skip
    assert document["groups"] == [
        {"id": "billing", "state": "Stable", "lag": 60, "behind": 9_000, "trend": "growing"}
    ]


def test_segments_open_transactions_and_the_retention_edge() -> None:
    configs = {"retention.ms": "1000", "cleanup.policy": "delete"}
    producers = (
        ProducerState(producer_id=7, last_seen_ms=NOW - 600_000, transaction_start=90),
        ProducerState(producer_id=8, last_seen_ms=None),
    )
    details = {0: PartitionDetails(segments=SEGMENTS, producers=producers)}
    orders = topic("orders", partition(0, last_stable=90), configs=configs, details=details)
    document = show("topic", replace(planted(), topics={"orders": orders}), topic="orders")
    log = document["partitions"][0]
    assert log["segments"] == [
        {"base": 0, "bytes": 600, "newest": NOW},
        {"base": 60, "bytes": 400, "newest": None},
    ]
    assert log["retention_edge"]["offset"] == 60
    assert "1970-01-01T00:16:41+00:00" in log["retention_edge"]["text"]
    (transaction,) = log["open_transactions"]
    assert (transaction["producer_id"], transaction["start"], transaction["since"]) == (7, 90, NOW - 600_000)
    assert len(log["producers"]) == 2
    (alarm,) = document["alarms"]
    assert "stand still at offset 90" in alarm["text"]
    assert alarm["command"] == "headrace transactions explain orders"


@pytest.mark.parametrize(
    ("configs", "there"),
    [
        ({"retention.ms": "-1", "retention.bytes": "300"}, True),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, False),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, False),
        ({}, False),
        ({"retention.ms": "9" * 30}, False),
    ],
)
def test_where_a_log_is_cut(configs: dict[str, str], there: bool) -> None:
    details = {0: PartitionDetails(segments=SEGMENTS)}
    orders = topic("orders", partition(0), configs=configs, details=details)
    document = show("topic", replace(planted(), topics={"orders": orders}), topic="orders")
    assert (document["partitions"][0]["retention_edge"] is not None) is there


def test_key_ranges_of_a_range_partitioned_topic() -> None:
    configs = {
        "headrace.partitioner.ranges": "AAAA..MZZZ,NAAA..ZZZZ",
        "headrace.partitioner.outside": "error",
    }
    orders = topic("orders", partition(0), partition(1), partition(2), configs=configs)
    document = show("topic", replace(planted(), topics={"orders": orders}), topic="orders")
    assert [each["key_range"] for each in document["partitions"]] == [
        {"min": "AAAA", "max": "MZZZ"}, {"min": "NAAA", "max": "ZZZZ"}, None,
    ]  # fmt: skip
    assert show("topics", replace(planted(), topics={"orders": orders}))["topics"][0]["range_partitioned"]


def test_a_topic_that_does_not_exist_is_404_and_an_unreachable_cluster_503() -> None:
    for problem, status in ((None, 404), ("no broker answers", 503)):
        with pytest.raises(ViewError) as caught:
            show("topic", replace(planted(), problem=problem), topic="nothing")
        assert caught.value.status == status
