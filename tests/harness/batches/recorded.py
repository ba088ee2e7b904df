# SPDX-License-Identifier: Apache-2.0
"""Segments of Apache Kafka kept as files, each beside the rows that row-oriented clients read from it.

Plain data. Made by tests/compat/segment_scenes.py; what is decoded from the bytes must equal the rows.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_ABORTED = struct.Struct(">hqqqq")


class Aborted(NamedTuple):
    """A transaction that was aborted, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Row(NamedTuple):
    """A record as clients show it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Of one partition, from its offset 0 on. `aborted` in the order of their markers."""

    name: str
    log: bytes
    aborted: tuple[Aborted, ...]
    committed: tuple[Row, ...]
    everything: tuple[Row, ...]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.log").write_bytes(self.log)
        lines = [json.dumps({"aborted": self.aborted})]
        kept = {row.offset for row in self.committed}
        lines += [json.dumps({**_to_json(row), "committed": row.offset in kept}) for row in self.everything]
        (folder / f"{self.name}.jsonl").write_text("\n".join(lines) + "\n")

    @classmethod
    def load(cls, folder: Path, name: str) -> Recording:
        head, *lines = (folder / f"{name}.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        return cls(
            name=name,
            log=(folder / f"{name}.log").read_bytes(),
            aborted=tuple(Aborted(*each) for each in json.loads(head)["aborted"]),
            committed=tuple(_from_json(entry) for entry in entries if entry["committed"]),
            everything=tuple(_from_json(entry) for entry in entries),
        )


def read_aborted(path: Path) -> tuple[Aborted, ...]:
    """What a segment's transaction index holds."""
    data = path.read_bytes() if path.exists() else b""
    return tuple(Aborted(*entry[1:4]) for entry in _ABORTED.iter_unpack(data))


def _to_json(row: Row) -> dict[str, object]:
    return {
        **row._asdict(),
        "key": _text(row.key),
        "value": _text(row.value),
        "headers": [[name, _text(value)] for name, value in row.headers],
    }


def _from_json(entry: dict[str, object]) -> Row:
    fields = {name: entry[name] for name in Row._fields}
    fields["key"], fields["value"] = _bytes(fields["key"]), _bytes(fields["value"])
    headers = fields["headers"]
    assert isinstance(headers, list)
    fields["headers"] = tuple((name, _bytes(value)) for name, value in headers)
    return Row(**fields)  # type: ignore[arg-type]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text))
