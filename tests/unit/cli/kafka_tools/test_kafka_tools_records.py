# SPDX-License-Identifier: Apache-2.0
"""Lines that become records, and records that become lines, as Apache Kafka's console tools do it."""

from __future__ import annotations

import struct

import pytest

from headrace.cli.errors import UsageError
from headrace.cli.kafka_tools.console_producer import LineReader
from headrace.cli.kafka_tools.record_formatter import FORMATTER, RecordFormatter
from headrace.client.errors import ClientError
from headrace.client.tools.reader import ReadRecord


def reader(**options):
    return LineReader(
        **{
            "key_separator": None,
            "headers_delimiter": None,
            "headers_separator": b",",
            "header_key_separator": b":",
            "null_marker": None,
            "ignore_error": False,
            **options,
        }
    )


def parsed(line, **options):
    record = reader(**options).parse(line)
    return record.key, record.value, list(record.headers)


def test_a_line_is_a_value():
    assert parsed(b"a:b\tc\r\n") == (None, b"a:b\tc", [])


def test_a_key_stands_before_the_first_separator():
    assert parsed(b"k:v:w\n", key_separator=b":") == (b"k", b"v:w", [])


def test_headers_stand_before_the_key():
    line = b"h1:v1,h2:v2\tkey\tvalue\n"
    assert parsed(line, headers_delimiter=b"\t", key_separator=b"\t") == (
        b"key",
        b"value",
        [("h1", b"v1"), ("h2", b"v2")],
    )


def test_the_marker_is_null():
    assert parsed(b"NULL:NULL\n", key_separator=b":", null_marker=b"NULL") == (None, None, [])


@pytest.mark.parametrize("options", [{"key_separator": b":"}, {"headers_delimiter": b":"}])
def test_a_missing_separator_is_named_unless_errors_are_ignored(options):
    with pytest.raises(ClientError, match="':' in 'plain'"):
        parsed(b"plain\n", **options)
    assert parsed(b"plain\n", **options, ignore_error=True) == (None, b"plain", [])


RECORD = ReadRecord(
    topic="t",
    partition=1,
    offset=7,
    timestamp_ms=1_700_000_000_000,
    append_time=False,
    key=b"k",
    value=None,
    headers=(("h", b"1"), ("n", None)),
)


def formatted(record=RECORD, **properties):
    values = FORMATTER | {name.replace("_", "."): value for name, value in properties.items()}
    return RecordFormatter.from_properties(values).format(record)


def everything(**others):
    fields = ("timestamp", "partition", "offset", "headers", "key")
    return {f"print_{name}": "true" for name in fields} | others


def test_only_the_value_is_printed():
    assert formatted() == b"null\n"


def test_all_fields_in_kafkas_order():
    assert (
        formatted(**everything()) == b"CreateTime:1700000000000\tPartition:1\tOffset:7\th:1,n:null\tk\tnull\n"
    )


def test_separators_and_the_word_for_null():
    assert formatted(
        **everything(key_separator=" | ", line_separator=";", headers_separator="&", null_literal="NIL")
    ) == (b"CreateTime:1700000000000 | Partition:1 | Offset:7 | h:1&n:NIL | k | NIL;")


def test_what_is_not_there_is_named():
    bare = ReadRecord(
        topic="t",
        partition=0,
        offset=0,
        timestamp_ms=None,
        append_time=True,
        key=None,
        value=b"\xff\x00",
        headers=(),
    )
    printed = formatted(bare, print_timestamp="true", print_headers="true")
    assert printed == b"NO_TIMESTAMP\tNO_HEADERS\t\xff\x00\n"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.common.serialization.LongDeserializer", struct.pack(">q", -5), b"-5"),
        ("IntegerDeserializer", struct.pack(">i", 70_000), b"70000"),
        ("DoubleDeserializer", struct.pack(">d", 1.5), b"1.5"),
        ("StringDeserializer", b"text", b"text"),
        ("LongDeserializer", b"text", b"text"),
    ],
)
def test_numbers_are_read_by_their_deserializer(name, data, text):
    record = ReadRecord(
        topic="t", partition=0, offset=0, timestamp_ms=1, append_time=True, key=None, value=data, headers=()
    )
    assert formatted(record, value_deserializer=name) == text + b"\n"


def test_an_unknown_deserializer_is_refused():
    with pytest.raises(UsageError, match="KafkaAvroDeserializer"):
        formatted(value_deserializer="io.confluent.kafka.serializers.KafkaAvroDeserializer")
