# SPDX-License-Identifier: Apache-2.0
"""The newest records of topics, and what their headers say of an error: that tells dead letters.

Known headers are Headrace's (`headrace.error` …, of consumers and of Spark's rejects), Kafka Connect's and
Spring's. Read next: dead_letters.py; client/parallel/dead_letters.py writes them.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.tools.reader import ReadRecord, RecordReader
from headrace.types import TopicPartition

_WAIT_S = 5.0
_TEXT = 500
_NUMBERS = re.compile(r"\d+")
_INTEGER = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    name: str
    error: str
    topic: str
    partition: str
    offset: str
    group: str | None = None
    attempts: str | None = None
    binary: bool = False
    """Numbers are Java's big-endian bytes, not text."""


_MAKERS = (
    _Maker(
        name="Headrace",
        error="headrace.error",
        topic="headrace.topic",
        partition="headrace.partition",
        offset="headrace.offset",
        group="headrace.group",
        attempts="headrace.attempts",
    ),
    _Maker(
        name="Kafka Connect",
        error="__connect.errors.exception.message",
        topic="__connect.errors.topic",
        partition="__connect.errors.partition",
        offset="__connect.errors.offset",
        group="__connect.errors.connector.name",
    ),
    _Maker(
        name="Spring",
        error="kafka_dlt-exception-message",
        topic="kafka_dlt-original-topic",
        partition="kafka_dlt-original-partition",
        offset="kafka_dlt-original-offset",
        group="kafka_dlt-original-consumer-group",
        binary=True,
    ),
)
_SPARK_ATTEMPT = "headrace.attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    record: ReadRecord
    maker: str
    error: str
    topic: str | None
    partition: int | None
    offset: int | None
    group: str | None
    attempts: int | None
    column: str | None
    """Of typed reads in Spark: what did not fit."""

    @property
    def kind(self) -> str:
        """The error without its numbers, so that the same error of many records is one."""
        return _NUMBERS.sub("#", self.error)[:200]


def read_dead_letter(record: ReadRecord) -> DeadLetter | None:
    headers = dict(record.headers)
    for maker in _MAKERS:
        if maker.error in headers:
            return DeadLetter(
                record=record,
                maker=maker.name,
                error=_text(headers, maker.error) or "",
                topic=_text(headers, maker.topic),
                partition=_number(headers, maker.partition, binary=maker.binary),
                offset=_number(headers, maker.offset, binary=maker.binary),
                group=_text(headers, maker.group),
                attempts=_number(headers, maker.attempts) or _number(headers, _SPARK_ATTEMPT),
                column=_text(headers, "headrace.column") if maker.name == "Headrace" else None,
            )
    return None


def newest_records(
    cluster: Cluster,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    for_each: int,
    most: int,
) -> dict[str, list[ReadRecord]]:
    """By topic, newest first; `ranges`: start and end offsets. Ends after some seconds with what there is."""
    starts = {where: max(start, end - for_each) for where, (start, end) in ranges.items() if end > start}
    if not starts:
        return {}
    found: dict[str, list[ReadRecord]] = defaultdict(list)
    deadline = time.monotonic() + _WAIT_S
    reader = RecordReader(
        cluster, starts, {where: ranges[where][1] for where in starts}, on_pause=lambda: _check(deadline)
    )
    count = 0
    try:
        for record in reader:
            found[record.topic].append(record)
            count += 1
            if count >= most:
                break
    except TimeoutError:
        pass  # a busy broker: what came is shown
    finally:
        reader.close()
    for records in found.values():
        records.sort(key=lambda record: (record.timestamp_ms or 0, record.offset), reverse=True)
    return found


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError


def _text(headers: Mapping[str, bytes | None], name: str | None) -> str | None:
    value = headers.get(name) if name is not None else None
    return None if value is None else value[: 4 * _TEXT].decode(errors="replace")[:_TEXT]


def _number(headers: Mapping[str, bytes | None], name: str | None, *, binary: bool = False) -> int | None:
    value = headers.get(name) if name is not None else None
    if value is None:
        return None
    if binary:
        return int.from_bytes(value, "big", signed=True) if len(value) in (4, 8) else None
    text = value.decode(errors="replace")
    return int(text) if _INTEGER.fullmatch(text) else None
