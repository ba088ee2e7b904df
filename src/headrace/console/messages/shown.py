# SPDX-License-Identifier: Apache-2.0
"""Records as documents for the page. What is long is cut, with its size told.

A part (key, value, header) is `{form, text, size, cut, problem}`: form is null, json, avro, text or hex.
"""

from __future__ import annotations

from typing import Any

from headrace.client.errors import ClientError
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.values import (
    AvroDecoder,
    Form,
    cut,
    looks_like_json,
    parse_json,
    readable_text,
)
from headrace.console.views.view import Document

_MOST_HEADERS = 100
_OVERHEAD = 200
"""Of a record's document, in bytes of JSON: about."""


def record_document(record: StoredRecord, key_form: Form, value_form: Form, avro: AvroDecoder) -> Document:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "append_time": record.append_time,
        "size": record.size,
        "key": part_document(record.key, key_form, avro),
        "value": part_document(record.value, value_form, avro),
        "headers": [
            {"name": name[:1000], **part_document(value, "auto", avro)}
            for name, value in record.headers[:_MOST_HEADERS]
        ],
        "headers_more": max(0, len(record.headers) - _MOST_HEADERS),
        "producer_id": record.producer_id,
        "transaction": record.transaction,
    }


def document_size(document: Document) -> int:
    """About how many bytes of JSON it takes."""
    parts = [document["key"], document["value"], *document["headers"]]
    return _OVERHEAD + sum(100 + len(part["text"] or "") * 2 for part in parts)


def part_document(data: bytes | None, form: Form, avro: AvroDecoder) -> Document:
    if data is None:
        return _part("null", None, 0)
    if form == "hex":
        return _hex(data)
    if form == "avro" or (form == "auto" and avro.recognises(data)):
        return _avro(data, avro)
    if form == "json" or (form == "auto" and looks_like_json(data)):
        parsed = parse_json(data)
        if parsed is not None:
            return _text("json", data)
        if form == "json":
            return {**_plain(data), "problem": "this is not JSON"}
    if form == "text":
        shown = cut(data)
        return _part("text", shown.decode(errors="replace"), len(data), is_cut=len(shown) < len(data))
    return _plain(data)


def _avro(data: bytes, avro: AvroDecoder) -> Document:
    try:
        text = avro.decode(data).text
    except ClientError as error:
        return {**_plain(data), "problem": str(error)}
    shown = cut(text.encode(errors="replace"))
    return _part("avro", shown.decode(), len(data), is_cut=len(shown) < len(text))


def _plain(data: bytes) -> Document:
    """Text where it is, else hex."""
    return _hex(data) if readable_text(cut(data)) is None else _text("text", data)


def _text(form: str, data: bytes) -> Document:
    shown = cut(data)
    return _part(form, shown.decode(), len(data), is_cut=len(shown) < len(data))


def _hex(data: bytes) -> Document:
    shown = cut(data)
    return _part("hex", shown.hex(), len(data), is_cut=len(shown) < len(data))


def _part(form: str, text: str | None, size: int, *, is_cut: bool = False) -> dict[str, Any]:
    return {"form": form, "text": text, "size": size, "cut": is_cut, "problem": None}
