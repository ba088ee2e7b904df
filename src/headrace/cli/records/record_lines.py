# SPDX-License-Identifier: Apache-2.0
"""Parses input lines of `headrace produce` into records: text or JSON. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import typer

from headrace.client.errors import ClientError
from headrace.client.tools.producer import OutgoingRecord

Header = tuple[str, bytes | None]

_KNOWN_FIELDS = {"key", "value", "headers", "partition", "timestamp"}
_READ_ONLY_FIELDS = {"topic", "offset", "timestamp_type"}
"""Fields printed by `consume --json` that are ignored, so that its output can be produced again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineParser:
    """Parses lines according to the options."""

    separator: bytes | None = None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    json_lines: bool = False

    def parse(self, line: bytes) -> OutgoingRecord:
        """Parse one line; ClientError without the line number, which the caller adds."""
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if self.json_lines:
            return self._parse_json(line)
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise ClientError(f"no key separator {self.separator.decode(errors='replace')!r} in the line")
        return OutgoingRecord(key=key, value=value, headers=self.headers, partition=self.partition)

    def _parse_json(self, line: bytes) -> OutgoingRecord:
        try:
            document = json.loads(line)
        except ValueError as error:
            raise ClientError(f"not JSON: {error}") from error
        if not isinstance(document, dict):
            raise ClientError("not a JSON object", next_step='write {"key": …, "value": …}')
        unknown = sorted(document.keys() - _KNOWN_FIELDS - _READ_ONLY_FIELDS)
        if unknown:
            raise ClientError(
                f"unknown field {unknown[0]!r}", next_step=f"use {', '.join(sorted(_KNOWN_FIELDS))}"
            )
        return OutgoingRecord(
            key=_bytes(document.get("key"), "key"),
            value=_bytes(document.get("value"), "value"),
            headers=_headers(document["headers"]) if "headers" in document else self.headers,
            partition=_integer(document.get("partition", self.partition), "partition"),
            timestamp_ms=_timestamp(document.get("timestamp")),
        )


def parse_headers(texts: Sequence[str]) -> list[Header]:
    """Parse `name=value` texts; names may repeat, as in Kafka."""
    headers: list[Header] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
        headers.append((name, value.encode(errors="surrogateescape")))
    return headers


def _bytes(value: Any, field: str) -> bytes | None:
    """A string as UTF-8, {"base64": …} decoded, any other JSON value as its text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ClientError(f"{field} is not base64: {error}") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _headers(value: Any) -> list[Header]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if pairs is None:
        return []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise ClientError("headers must be an object, or a list of [name, value] pairs")
    return [(name, _bytes(content, f"header {name!r}")) for name, content in pairs]


def _timestamp(value: Any) -> int | None:
    """Milliseconds, or a date and time in ISO 8601 as `headrace consume` prints it."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ClientError(f"timestamp {value!r} is neither a number nor ISO 8601") from None
        return round(moment.timestamp() * 1000)
    return _integer(value, "timestamp")


def _integer(value: Any, field: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ClientError(f"{field} must be a number of at least 0, not {value!r}")
