# SPDX-License-Identifier: Apache-2.0
"""Tables fit a terminal of 80 columns: text is wrapped, numbers and moments stay whole."""

from __future__ import annotations

import io
import re

import pytest

from headrace.cli.groups.view import document, show
from headrace.cli.output import Cell, Output
from headrace.client.tools.group_report import GroupReport, PartitionReport
from headrace.client.tools.groups import GroupDescription, GroupMember
from headrace.client.tools.lag import Forecast, TimeBehind
from headrace.types import TopicPartition

TOPIC = "orders-of-all-customers-by-region.v2"
GROUP = "billing-and-invoicing-service-production"
MEMBER_ID = "consumer-billing-and-invoicing-1-3eec725d-260b-478c-a4ec-2cdda5d75f17"
MOMENT = "2026-11-17T00:24:57.123Z"
BIG = 123_456_789

TABLES: dict[str, tuple[tuple[str, ...], tuple[Cell, ...]]] = {
    "topics list": (("TOPIC", "PARTITIONS", "REPLICAS"), (TOPIC, 1200, 3)),
    "topics describe": (
        ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "SIZE"),
        ("1199", "101", "101,102,103,104,105", "101,102,103", BIG, BIG, "118.2 GiB"),
    ),
    "topics describe --producers": (
        ("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST RECORD", "OPEN TRANSACTION"),
        ("1199", "1200345", "12", BIG, MOMENT, BIG),
    ),
    "configs get": (
        ("SETTING", "VALUE", "FROM"),
        ("group.consumer.min.heartbeat.interval.ms", "PLAINTEXT://a-long-host-name:9092,IN://b:1", "default"),
    ),
    "groups list": (
        ("GROUP", "PROTOCOL", "TYPE", "STATE", "MEMBERS", "LAG"),
        (GROUP, "consumer", "consumer", "PreparingRebalance", 120, BIG),
    ),
    "groups reset": (("TOPIC", "PARTITION", "OLD", "NEW", "CHANGE"), (TOPIC, "1199", BIG, BIG, f"{BIG:+,}")),
    "pipeline offsets": (
        ("PARTITION", "OFFSET", "FIRST", "END", "LAG", "STATE", "EPOCH", "TOPIC ID"),
        (f"{TOPIC}#11", 1_234_567, 1_234_567, 1_234_567, 12_345, "current", 12, MEMBER_ID[-36:]),
    ),
    "cluster status": (
        ("NODE", "STATE", "ADDRESS", "PID", "LEADS", "HOLDS", "BEHIND", "MEMORY"),
        ("101 *", "not responding", "node-101.example.org:9092", "1234567", 1200, 3600, 1200, "999.9 MiB"),
    ),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def lines_of(terminal: Terminal) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_80_columns(terminal: Terminal, name: str) -> None:
    columns, row = TABLES[name]
    Output(stdout=terminal).table(columns, [row])
    lines = lines_of(terminal)
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    for cell in row:
        if isinstance(cell, int) or cell == MOMENT:
            assert (f"{cell:,}" if isinstance(cell, int) else cell) in words, "not cut, not wrapped"
    body = lines[1 + next(place for place, line in enumerate(lines) if "───" in line) :]
    letters = sorted(letter for line in body for letter in line if letter != " ")
    wanted = "".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
    assert letters == sorted(wanted.replace(" ", "")), "nothing is lost"


def test_a_described_group_fits_80_columns(terminal: Terminal) -> None:
    where = TopicPartition(TOPIC, 11)
    member = GroupMember(
        member_id=MEMBER_ID,
        instance_id=None,
        client_id="consumer-billing-and-invoicing-1",
        host="2001:db8:85a3::8a2e:370:7334",
        assigned=(*(TopicPartition(TOPIC, number) for number in range(0, 12, 2)), where),
    )
    group = GroupDescription(
        group_id=GROUP,
        protocol_type="consumer",
        group_type="consumer",
        state="Stable",
        assignor="uniform",
        epoch=7,
        node_id=1,
        members=(member,),
    )
    partition = PartitionReport(
        partition=where,
        member=member,
        position=12_345_678,
        committed=12_345_678,
        start=0,
        end=12_400_000,
        lag=54_322,
        behind=TimeBehind(behind_ms=7_500_000),
        rate_in=1.0,
        rate_out=1.0,
        forecast=Forecast(trend="standing still", clear_ms=None),
    )
    report = GroupReport(group=group, partitions=(partition,), watched_ms=5000)
    show(report, Output(stdout=terminal))
    lines = lines_of(terminal)
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert words.count("12,345,678") == 2
    assert document(report)["members"][0]["member_id"] == MEMBER_ID, "JSON has it in full"
    pipe = io.StringIO()
    show(report, Output(stdout=pipe))
    assert MEMBER_ID in pipe.getvalue()
    assert f"{TOPIC}\t11\t" in pipe.getvalue()
