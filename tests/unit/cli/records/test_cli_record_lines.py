# SPDX-License-Identifier: Apache-2.0
"""Lines of input as records."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.output import Output, json_text
from headrace.cli.records.record_lines import LineParser, parse_headers
from headrace.cli.records.record_printer import RecordPrinter
from headrace.client.errors import ClientError
from headrace.client.tools.producer import OutgoingRecord
from headrace.client.tools.reader import ReadRecord


@pytest.mark.parametrize(
    ("parser", "line", "record"),
    [
        (LineParser(), b"hello\n", OutgoingRecord(value=b"hello")),
        (LineParser(), b"hello\r\n", OutgoingRecord(value=b"hello")),
        (LineParser(), b"\n", OutgoingRecord(value=b"")),
        (LineParser(), b"\xff\xfe", OutgoingRecord(value=b"\xff\xfe")),
        (LineParser(separator=b":"), b"k:v:w\n", OutgoingRecord(key=b"k", value=b"v:w")),
        (LineParser(separator=b"\t"), b"k\t\n", OutgoingRecord(key=b"k", value=b"")),
        (
            LineParser(key=b"k", headers=[("a", b"b")], partition=2),
            b"v\n",
            OutgoingRecord(key=b"k", value=b"v", headers=[("a", b"b")], partition=2),
        ),
    ],
)
def test_text_lines(parser: LineParser, line: bytes, record: OutgoingRecord) -> None:
    assert parser.parse(line) == record


@pytest.mark.row("D2")
@pytest.mark.parametrize(
    ("document", "record"),
    [
        (
            {"key": "YOLO", "value": "foo", "timestamp": 5},
            OutgoingRecord(key=b"YOLO", value=b"foo", timestamp_ms=5),
        ),
        ({"value": None, "key": "k"}, OutgoingRecord(key=b"k", value=None)),
        ({"value": {"base64": "/wA="}}, OutgoingRecord(value=b"\xff\x00")),
        ({"value": {"a": [1, "é"]}}, OutgoingRecord(value='{"a":[1,"é"]}'.encode())),
        ({"value": 7}, OutgoingRecord(value=b"7")),
        (
            {"value": "v", "headers": {"a": "b", "n": None}, "partition": 3},
            OutgoingRecord(value=b"v", headers=[("a", b"b"), ("n", None)], partition=3),
        ),
        (
            {"value": "v", "headers": [["a", "1"], ["a", "2"]]},
            OutgoingRecord(value=b"v", headers=[("a", b"1"), ("a", b"2")]),
        ),
        ({}, OutgoingRecord(value=None)),
    ],
)
def test_json_lines(document: dict[str, object], record: OutgoingRecord) -> None:
    assert LineParser(json_lines=True).parse(json.dumps(document).encode()) == record


@pytest.mark.parametrize(
    ("parser", "line", "complaint"),
    [
        (LineParser(separator=b":"), b"none here", "no key separator ':' in the line"),
        (LineParser(json_lines=True), b"nonsense", "not JSON"),
        (LineParser(json_lines=True), b"\xff", "not JSON"),
        (LineParser(json_lines=True), b"[1]", "not a JSON object"),
        (LineParser(json_lines=True), b'{"vlaue": 1}', "unknown field 'vlaue'; use headers, key"),
        (LineParser(json_lines=True), b'{"partition": -1}', "partition must be a number of at least 0"),
        (LineParser(json_lines=True), b'{"partition": "1"}', "partition must be a number of at least 0"),
        (LineParser(json_lines=True), b'{"timestamp": "noon"}', "timestamp 'noon' is neither a number nor"),
        (LineParser(json_lines=True), b'{"timestamp": true}', "timestamp must be a number of at least 0"),
        (LineParser(json_lines=True), b'{"value": {"base64": "!"}}', "value is not base64"),
        (LineParser(json_lines=True), b'{"headers": ["a"]}', "headers must be an object"),
    ],
)
def test_a_bad_line_is_an_error_with_the_reason(parser: LineParser, line: bytes, complaint: str) -> None:
    with pytest.raises(ClientError, match=complaint):
        parser.parse(line)


def test_headers_of_the_command_line() -> None:
    assert parse_headers(["a=b", "a=c=d", "e="]) == [("a", b"b"), ("a", b"c=d"), ("e", b"")]
    with pytest.raises(typer.BadParameter, match="'x' is not NAME=VALUE"):
        parse_headers(["x"])


@given(
    key=st.none() | st.binary(max_size=8),
    value=st.none() | st.binary(max_size=8),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
)
def test_what_consume_prints_as_json_produce_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = ReadRecord(
        topic="t",
        partition=1,
        offset=9,
        timestamp_ms=77,
        append_time=False,
        key=key,
        value=value,
        headers=tuple(headers),
    )
    printer = RecordPrinter(Output(), "json", verbose=False)
    line = json_text(printer.document(record)).encode()
    assert LineParser(json_lines=True).parse(line) == OutgoingRecord(
        key=key, value=value, headers=headers, partition=1, timestamp_ms=77
    )
