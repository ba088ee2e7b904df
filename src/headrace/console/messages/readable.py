# SPDX-License-Identifier: Apache-2.0
"""A record as filters see it: its fields are looked up, and its JSON or Avro is parsed, when a term asks."""

from __future__ import annotations

from typing import Any

from headrace.client.errors import ClientError
from headrace.console.messages.filter_terms import MISSING, Path, PlainText
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.values import AvroDecoder, Form, parse_json


class Readable:
    __slots__ = ("_avro", "_forms", "_parsed", "_record")

    def __init__(self, record: StoredRecord, key_form: Form, value_form: Form, avro: AvroDecoder) -> None:
        self._record = record
        self._forms = {"key": key_form, "value": value_form}
        self._avro = avro
        self._parsed: dict[str, Any] = {}

    def find(self, path: Path) -> Any:
        record = self._record
        match path.root:
            case "partition":
                return record.partition
            case "offset":
                return record.offset
            case "timestamp":
                return MISSING if record.timestamp_ms is None else record.timestamp_ms
            case "size":
                return record.size
            case "header":
                return self._header(str(path.steps[0]))
        data = record.key if path.root == "key" else record.value
        if data is None:
            return MISSING if path.steps else None
        if not path.steps:
            return self._whole(path.root, data)
        return _follow(self._fields(path.root, data), path.steps)

    def _header(self, name: str) -> Any:
        """The last of that name counts, as in Kafka's `lastHeader`."""
        for each, value in reversed(self._record.headers):
            if each == name:
                return None if value is None else PlainText(value.decode(errors="replace"))
        return MISSING

    def _whole(self, part: str, data: bytes) -> Any:
        """The text of it; of Avro, its JSON text."""
        if self._is_avro(part, data) and self._fields(part, data) is not MISSING:
            return PlainText(self._parsed[part].text)
        return PlainText(data.decode(errors="replace"))

    def _fields(self, part: str, data: bytes) -> Any:
        if part not in self._parsed:
            self._parsed[part] = self._parse(part, data)
        parsed = self._parsed[part]
        return MISSING if parsed is None else parsed.value

    def _parse(self, part: str, data: bytes) -> Any:
        if not self._is_avro(part, data):
            return None if self._forms[part] in ("text", "hex") else parse_json(data)
        try:
            return self._avro.decode(data)
        except ClientError:
            return None

    def _is_avro(self, part: str, data: bytes) -> bool:
        form = self._forms[part]
        return form == "avro" or (form == "auto" and self._avro.recognises(data))


def _follow(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(str(step), MISSING)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else MISSING
        elif isinstance(value, list) and isinstance(step, str) and step.isdecimal() and len(step) < 10:
            value = value[int(step)] if int(step) < len(value) else MISSING
        else:
            return MISSING
    return value
