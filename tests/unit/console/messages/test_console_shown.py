# SPDX-License-Identifier: Apache-2.0
"""How bytes are shown: JSON, text, hex, Avro by a registry; cut where they are long."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.messages.avro import RegistryAvro, from_environment
from headrace.console.messages.filter_parser import parse_filter
from headrace.console.messages.readable import Readable
from headrace.console.messages.shown import document_size, part_document, record_document
from headrace.console.messages.values import FORMS, LONGEST_SHOWN, check_form
from headrace.console.views.view import ViewError
from tests.harness.console.records_in_memory import record
from tests.harness.live.schema_registry import running_registry

NO_REGISTRY = RegistryAvro(None)


@pytest.mark.parametrize(
    ("data", "form", "shown", "text"),
    [
        (None, "auto", "null", None),
        (b"", "auto", "text", ""),
        (b'{"a": 1e400}', "auto", "json", '{"a": 1e400}'),
        (b" [1, 2]", "auto", "json", " [1, 2]"),
        (b"42", "auto", "text", "42"),
        (b"42", "json", "json", "42"),
        (b'{"a"', "auto", "text", '{"a"'),
        ("Zoë\n".encode(), "auto", "text", "Zoë\n"),
        (b"\x00\x01", "auto", "hex", "0001"),
        (b"\xff", "auto", "hex", "ff"),
        (b"\xff", "text", "text", "\ufffd"),
        (b"abc", "hex", "hex", "616263"),
        ("\u202eabc".encode(), "auto", "hex", "e280ae616263"),
    ],
)
def test_forms(data: bytes | None, form: str, shown: str, text: str | None) -> None:
    document = part_document(data, check_form(form, "x"), NO_REGISTRY)
    assert (document["form"], document["text"], document["problem"]) == (shown, text, None)


def test_what_is_not_of_the_form_asked_for_says_so_and_is_shown_anyway() -> None:
    assert part_document(b"nope", "json", NO_REGISTRY)["problem"] == "this is not JSON"
    avro = part_document(b"\x00\x00\x00\x00\x01x", "avro", NO_REGISTRY)
    assert avro["form"] == "hex"
    assert "HEADRACE_SCHEMA_REGISTRY" in avro["problem"]
    with pytest.raises(ViewError, match="is not a format"):
        check_form("xml", "value_format")


@given(st.none() | st.binary(max_size=300), st.sampled_from(FORMS))
def test_any_bytes_have_a_document_with_their_size(data: bytes | None, form: str) -> None:
    document = part_document(data, form, NO_REGISTRY)
    assert document["size"] == len(data or b"")
    json.dumps(document).encode()


def test_long_values_are_cut_between_characters_with_their_size_told() -> None:
    value = b"a" + "ä".encode() * LONGEST_SHOWN
    document = record_document(
        record(key=b"\xff" * LONGEST_SHOWN * 2, value=value), "auto", "auto", NO_REGISTRY
    )
    assert document["value"]["cut"]
    assert document["value"]["size"] == len(value)
    assert len(document["value"]["text"].encode()) in (LONGEST_SHOWN, LONGEST_SHOWN - 1)
    assert document["key"]["cut"]
    assert len(document["key"]["text"]) == 2 * LONGEST_SHOWN
    assert document_size(document) > LONGEST_SHOWN


def test_many_headers_are_counted() -> None:
    many = tuple((f"h{number}", b"x") for number in range(150))
    document = record_document(record(headers=many), "auto", "auto", NO_REGISTRY)
    assert (len(document["headers"]), document["headers_more"]) == (100, 50)


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "raw", "type": "bytes"},
    ],
}
DATUM = b"\x54" + b"\x02\x04hi" + b"\x02\x02a\x06\x00" + b"\x04\x00\xff"


def test_avro_by_a_registry_is_shown_and_filtered() -> None:
    with running_registry() as registry:
        number = registry.add("orders-value", SCHEMA)
        avro = from_environment({"HEADRACE_SCHEMA_REGISTRY": registry.address})
        data = b"\x00" + struct.pack(">I", number) + DATUM
        document = part_document(data, "auto", avro)
        assert document["form"] == "avro", document
        assert json.loads(document["text"]) == {"id": 42, "note": "hi", "counts": {"a": 3}, "raw": "00ff"}
        term = parse_filter('value.id == 42 and value.counts.a == 3 and value contains "hi"')
        assert term.matches(Readable(record(value=data), "auto", "auto", avro))
        damaged = part_document(data[:-2], "auto", avro)
        assert "do not fit schema" in damaged["problem"]
        unknown = part_document(b"\x00\x00\x00\x03\xe7" + DATUM, "auto", avro)
        assert "not found" in unknown["problem"]


def test_a_registry_that_does_not_answer_is_left_alone_for_a_while() -> None:
    avro = RegistryAvro("http://127.0.0.1:9")
    first = part_document(b"\x00\x00\x00\x00\x01x", "auto", avro)
    assert "no schema registry answers" in first["problem"]
    assert part_document(b"\x00\x00\x00\x00\x02x", "auto", avro)["problem"] == first["problem"]
