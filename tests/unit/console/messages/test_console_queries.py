# SPDX-License-Identifier: Apache-2.0
"""Parameters of the messages page, records to write, and the commands that do the same."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.cluster import Cluster
from headrace.client.tools.producer import OutgoingRecord
from headrace.console.messages.commands import consume_commands, produce_command
from headrace.console.messages.produce import parse_record
from headrace.console.messages.query import cursor_text, parse_query
from headrace.console.messages.tail import evenly
from headrace.console.views.view import ViewError
from tests.harness.console.records_in_memory import record

HERE = Cluster(bootstrap="127.0.0.1:9092")
ELSEWHERE = Cluster(bootstrap="kafka:9092")


def query(**params: str) -> Any:
    return parse_query({"topic": "orders", **params}, most=500)


def test_the_newest_records_are_the_default() -> None:
    found = query()
    assert (found.place, found.way, found.limit, found.partitions) == ("newest", "older", 50, None)


def test_everything_can_be_asked_for() -> None:
    found = query(
        **{"from": "time"}, time="2026-01-31T12:00:00Z", partitions="0,2", limit="9999", key="00ff",
        key_as="hex", key_format="hex", value_format="json", uncommitted="1", filter="offset > 3",
    )  # fmt: skip
    assert (found.place, found.value, found.way) == ("time", 1_769_860_800_000, "newer")
    assert (found.partitions, found.limit, found.key, found.uncommitted) == ((0, 2), 500, b"\x00\xff", True)
    wanted = found.wanted(None)
    assert wanted(record(offset=4, key=b"\x00\xff"))
    assert not wanted(record(offset=4, key=b"other"))
    assert not wanted(record(offset=3, key=b"\x00\xff"))


@given(st.dictionaries(st.integers(0, 10**6), st.integers(0, 10**15), min_size=1, max_size=5))
def test_cursors_come_back(cursor: dict[int, int]) -> None:
    found = query(cursor=cursor_text(cursor), direction="older")
    assert (found.place, found.cursor, found.way) == ("cursor", cursor, "older")


@pytest.mark.parametrize(
    "params",
    [
        {"topic": ""},
        {"from": "middle"},
        {"from": "offset", "offset": "-1"},
        {"from": "offset"},
        {"from": "time", "time": "noon"},
        {"partitions": "0;1"},
        {"cursor": "0:1,"},
        {"direction": "sideways"},
        {"limit": "0"},
        {"key": "xyz", "key_as": "hex"},
        {"value_format": "xml"},
        {"filter": "offset >"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(params: dict[str, str]) -> None:
    with pytest.raises(ViewError) as refused:
        query(**params)
    assert refused.value.status == 400
    assert refused.value.next_step


def test_the_command_reads_the_same() -> None:
    (shown,) = consume_commands(query(**{"from": "offset"}, offset="7", partitions="1"), HERE)
    assert shown["command"] == "headrace consume orders --from 7 --exit-at-end -v --partition 1 --max 50"
    (newest,) = consume_commands(query(limit="20", filter="offset > 1"), ELSEWHERE)
    assert newest["command"] == "headrace consume orders --from -20 --exit-at-end -v --bootstrap kafka:9092"
    assert "without the filter" in newest["label"]


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none()
    | st.binary(max_size=50)
    | st.text(max_size=20).map(lambda text: text.encode(errors="replace")),
)
def test_the_command_writes_the_same_through_a_shell(key: bytes | None, value: bytes | None) -> None:
    command = produce_command("orders", OutgoingRecord(key=key, value=value, headers=[("h", b"'$x")]), HERE)
    printf, pipe, rest = command.partition(" | ")
    words = shlex.split(command)
    assert words[:2] == ["printf", "%s\\n"]
    line = json.loads(words[2])
    assert line["headers"] == [["h", "'$x"]]
    assert command.endswith("headrace produce orders --json-lines")
    assert pipe
    assert "\n" not in command
    assert rest or printf


def test_a_shell_passes_the_line_on() -> None:
    command = produce_command("orders", OutgoingRecord(value="it's $HOME `x` \\n ä\x1b[31m".encode()), HERE)
    printf = command.rpartition(" | ")[0]
    line = subprocess.run(["sh", "-c", printf], check=True, capture_output=True, timeout=20).stdout
    assert json.loads(line)["value"] == "it's $HOME `x` \\n ä\x1b[31m"
    assert b"\x1b" not in line, "it does not control a terminal"


def test_a_record_to_write() -> None:
    found = parse_record(
        {
            "key": {"form": "null"},
            "value": {"form": "hex", "text": "00 ff"},
            "headers": [{"name": "a", "value": {"form": "text", "text": "ä"}}, {"name": "b", "value": None}],
            "partition": 3,
        }
    )
    assert (found.key, found.value, found.partition) == (None, b"\x00\xff", 3)
    assert list(found.headers) == [("a", "ä".encode()), ("b", None)]


@pytest.mark.parametrize(
    "body",
    [
        {"value": "text"},
        {"value": {"form": "xml", "text": ""}},
        {"value": {"form": "text", "text": 5}},
        {"value": {"form": "json", "text": "{"}},
        {"value": {"form": "hex", "text": "0"}},
        {"headers": {"a": "b"}},
        {"headers": [{"name": ""}]},
        {"partition": -1},
        {"partition": True},
        {"value": {"form": "text", "text": "x" * (1 << 21)}},
    ],
    ids=lambda body: str(body)[:40],
)
def test_what_is_no_record_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ViewError) as refused:
        parse_record(body)
    assert refused.value.status in (400, 413)


@given(st.integers(0, 300), st.integers(1, 30))
def test_a_sample_is_spread_over_all_records_and_ends_with_the_newest(count: int, most: int) -> None:
    records = [record(offset=number) for number in range(count)]
    offsets = [each.offset for each in evenly(records, most)]
    assert len(offsets) == min(count, most)
    assert offsets == sorted(set(offsets))
    assert not offsets or offsets[-1] == count - 1
