# SPDX-License-Identifier: Apache-2.0
"""What earlier commits wrote in a format that has changed since is read as it was meant (docs/formats.md).

Whole data folders of earlier commits: tests/integration/test_upgrade.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from headrace.broker.reporting.lag_samples import _read as read_samples_of_node
from headrace.client.tools.group_events import read_event
from headrace.client.tools.lag_samples import read_samples
from headrace.cluster.plan import Member, plan_of
from headrace.console.state.recorded import read_recorded
from headrace.coordination import documents
from headrace.coordination.recovery.history import decode_position
from headrace.log.checkpoints import CLEAN_MARKER_FILE, read_clean_marker
from headrace.realworld import RealFiles
from headrace.types import Endpoint, Node, TopicPartition
from pyspark_headrace.reading.offsets import Position, read_document
from pyspark_headrace.writing.ledger import read_published
from tests.harness.live.earlier_release import LAST_WITHOUT_REPAIRS, extract_sources

FOLDER = Path(__file__).resolve().parents[1] / "data" / "formats"


def written(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def test_a_clean_stop_without_checksums_counts_as_clean(tmp_path: Path) -> None:
    (tmp_path / CLEAN_MARKER_FILE).write_bytes(written("clean-marker-without-checksums.json"))
    marker = read_clean_marker(RealFiles(), tmp_path)
    assert marker == {"version": 0, "brokerEpoch": 7, "bootId": "boot"}


def test_a_store_position_without_a_checksum_is_compared_with_the_store() -> None:
    position = decode_position("position", written("store-position-without-checksum.json"))
    assert (position.epoch, position.epoch_id, position.commits) == (3, "abc", 17)
    assert position.declarations == ("d",)


def test_a_node_of_the_first_store_is_live_and_serves_no_transactions() -> None:
    found = documents.decode_node("/nodes/1", written("store-node-first.json"), 1, 5)
    assert not found.waits
    assert (found.node.hostname, found.node.transaction_versions) == ("n", (0, 0))
    assert found.node.lossless
    assert not found.node.logs_in
    assert not found.node.new_disk
    assert not found.node.offline_epochs


EARLIER_NODE = """
import sys
from headrace.coordination.documents import decode_node, encode_node
sys.stdout.buffer.write(encode_node(decode_node("/nodes/1", sys.stdin.buffer.read(), 1, 5).node))
"""


def test_an_earlier_release_reads_the_entry_of_a_node_of_this_one_and_writes_what_this_one_reads(
    tmp_path: Path,
) -> None:
    key = UUID(int=9), 0
    node = Node(
        node_id=1,
        epoch=5,
        host_id="h",
        hostname="n",
        endpoints=(Endpoint(listener="main", host="n", port=9092),),
        new_disk=True,
        full=True,
        logs_in=True,
        offline=frozenset({key}),
        offline_epochs=frozenset({(*key, 3)}),
    )
    earlier = subprocess.run(
        [sys.executable, "-c", EARLIER_NODE],
        input=documents.encode_node(node),
        env={**os.environ, "PYTHONPATH": str(extract_sources(LAST_WITHOUT_REPAIRS, tmp_path))},
        capture_output=True,
        check=True,
    )
    found = documents.decode_node("/nodes/1", earlier.stdout, 1, 5).node
    assert found == replace(node, new_disk=False, offline_epochs=frozenset())


def test_a_topic_of_the_first_store_has_its_partitions_and_no_moves() -> None:
    topic = documents.decode_topic("/topics/t", written("store-topic-first.json"), "t")
    assert topic.topic_id == UUID(int=9)
    assert topic.partitions[0].isr == (1, 2)
    assert topic.partitions[0].elr == ()
    assert topic.moves == {}


def test_group_events_of_version_1_are_shown_by_the_command_and_by_the_console() -> None:
    value = written("group-event-1.json")
    event, shown = read_event(value), read_recorded(value)
    assert event is not None
    assert shown is not None
    assert (event.at_ms, event.kind, event.details) == (17, "join", {"member_id": "m"})
    assert (shown.group, shown.kind) == ("g", "join")


def test_lag_samples_without_a_version_are_read_by_nodes_and_clients() -> None:
    key, value = b'{"topic":"t","partition":0}', written("lag-samples-without-version.json")
    of_node, of_client = read_samples_of_node(key, value), read_samples(key, value)
    assert of_node is not None
    assert of_client is not None
    assert of_node[0] == of_client[0] == TopicPartition("t", 0)
    assert (
        [tuple(each) for each in of_node[1]] == [tuple(each) for each in of_client[1]] == [(1, 10), (5, 20)]
    )


def test_a_cluster_plan_before_security_has_its_members() -> None:
    plan = plan_of(json.loads(written("cluster-plan-before-security.json")))
    assert plan.members == (Member(node_id=0, port=1),)
    assert plan.security is None


def test_a_sinks_first_record_has_no_fingerprint_of_its_offsets() -> None:
    published = read_published("sink", written("sink-ledger-first.json"))
    assert (published.query, published.batch.number, published.batch.offsets) == ("q", 7, None)


def test_offsets_of_the_first_checkpoints_are_where_the_query_goes_on() -> None:
    offsets = read_document(json.loads(written("checkpoint-offsets-first.json")))
    assert offsets.query == "q"
    assert dict(offsets) == {TopicPartition("orders", 0): Position(offset=5, epoch=2)}
