# SPDX-License-Identifier: Apache-2.0
"""What a later release wrote is refused or left out by its version, never read as today's (docs/formats.md).

Nodes that refuse to start: tests/integration/test_newer_data_refused.py.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headrace.broker.reporting.lag_samples import _read as read_samples_of_node
from headrace.client.errors import ClientError
from headrace.client.partitioning import stored_ranges
from headrace.client.tools.disk_events import DiskEvents, _take
from headrace.client.tools.group_events import read_event
from headrace.client.tools.lag_samples import read_samples
from headrace.client.tools.pipeline_reports import read_report
from headrace.cluster.plan import FORMAT, ClusterError, plan_of
from headrace.console.state.recorded import read_recorded
from headrace.coordination.restore import backups
from headrace.coordination.sqlite_files import APPLICATION_ID, LeaseDatabase
from headrace.coordination.zookeeper_tree import check_layout
from headrace.errors import CoordinationError, HeadraceError, NewerFormatError, NewerRecordError
from headrace.log.checkpoints import META_PROPERTIES_FILE, check_format
from headrace.pipelines.checkpoints.checkpoint import ours_among
from headrace.pipelines.jobs.store_record import read_record
from headrace.realworld import RealFiles
from headrace.wire.coordinator import group_records, transaction_records
from pyspark_headrace.reading.offsets import read_document
from pyspark_headrace.reading.table_position import read_position
from pyspark_headrace.writing.ledger import read_published

REFUSAL = r"has format \d+, written by a newer Headrace \(this one reads up to \d+\); use that version"
OFFSETS = {"query": "q", "topics": {}, "version": 3}
GROUP_KEY, OFFSET_KEY, MEMBER_KEY = b"\0\2\0\1g", b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\5\0\1g\0\1m"

REFUSED: dict[str, tuple[type[HeadraceError], Callable[[], object]]] = {
    "a group's metadata": (NewerRecordError, lambda: group_records.decode(GROUP_KEY, b"\0\5")),
    "a committed offset": (
        NewerRecordError,
        lambda: group_records.decode(OFFSET_KEY, b"\0\5"),
    ),
    "a member of a KIP-848 group": (
        NewerRecordError,
        lambda: group_records.decode(MEMBER_KEY, b"\0\1"),
    ),
    "a transactional id": (
        NewerRecordError,
        lambda: transaction_records.decode(b"\0\0\0\1t", b"\0\2"),
    ),
    "the tree in ZooKeeper": (CoordinationError, lambda: check_layout("/headrace/news", b"2")),
    "the key ranges of a topic": (
        ClientError,
        lambda: stored_ranges.read_record("t", b'{"format": 2, "kind": "hash"}'),
    ),
    "the ledger of a sink": (ClientError, lambda: read_published("s", b'{"format": 2}')),
    "the offsets of a source": (ClientError, lambda: read_document(OFFSETS)),
    "the offsets of a source with a table": (
        ClientError,
        lambda: read_position({**OFFSETS, "table": {"id": "t", "version": 1, "next": 0}}),
    ),
    "a checkpoint that is to be moved": (ClientError, lambda: ours_among([json.dumps(OFFSETS)])),
    "the record of a stored table": (
        ClientError,
        lambda: read_record('{"headrace.store": {"version": 2}}'),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_its_number_and_what_to_do(what: str) -> None:
    kind, read = REFUSED[what]
    with pytest.raises(kind, match=REFUSAL):
        read()


def test_a_cluster_plan_is_refused_and_left_as_it_is() -> None:
    newer = FORMAT + 1
    with pytest.raises(
        ClusterError, match=f"format {newer} was written by a newer Headrace; use that version"
    ):
        plan_of({"format": newer})


LEFT_OUT: dict[str, Callable[[], object]] = {
    "an event, by the command": lambda: read_event(b'{"version": 3, "at": 1, "kind": "join"}'),
    "an event, by the console": lambda: read_recorded(b'{"version": 3, "at": 1, "kind": "join"}'),
    "lag samples, by a client": lambda: read_samples(
        b'{"topic":"t","partition":0}', b'{"version": 2, "samples": [[1, 10]]}'
    ),
    "lag samples, by a node": lambda: read_samples_of_node(
        b'{"topic":"t","partition":0}', b'{"version": 2, "samples": [[1, 10]]}'
    ),
    "a report of a query": lambda: read_report(b"q", b'{"version": 2, "at": 1}'),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_only_reports_is_left_out(what: str) -> None:
    assert LEFT_OUT[what]() is None


def test_an_event_of_a_full_disk_in_another_form_is_left_out() -> None:
    found = DiskEvents({}, {})
    event = {"kind": "disk_full", "details": {"node": 1, "reason": "full"}}
    _take(found, json.dumps({**event, "version": 3}).encode())
    assert found.full == {}
    _take(found, json.dumps({**event, "version": 2}).encode())
    assert found.full == {1: "full"}


def test_a_data_folder_is_refused_before_anything_of_it_is_read(tmp_path: Path) -> None:
    check_format(RealFiles(), tmp_path)  # a new one
    (tmp_path / META_PROPERTIES_FILE).write_text("headrace.format=2\nwhatever=it says\n")
    with pytest.raises(NewerFormatError, match=REFUSAL):
        check_format(RealFiles(), tmp_path)


def test_a_file_of_live_sessions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "liveness.db"
    LeaseDatabase(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(CoordinationError, match=REFUSAL):
        LeaseDatabase(path)


def test_a_backup_of_a_store_is_not_restored(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(CoordinationError, match=REFUSAL):
        backups.verify(path)
