# SPDX-License-Identifier: Apache-2.0
"""The same on the command line: commands to copy, quoted for a shell. Pure."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.cluster import Cluster
from headrace.client.tools.producer import OutgoingRecord
from headrace.console.messages.query import Query
from headrace.console.views.view import Document


def command(cluster: Cluster, *words: str) -> str:
    """A command of `headrace`, with the cluster's address where it is not the default."""
    where = [] if cluster.bootstrap == DEFAULT_BOOTSTRAP else ["--bootstrap", cluster.bootstrap]
    return shlex.join(["headrace", *words, *where])


def consume_commands(query: Query, cluster: Cluster) -> list[Document]:
    words = ["consume", query.topic, "--from", _start(query), "--exit-at-end", "-v"]
    for partition in query.partitions or ():
        words += ["--partition", str(partition)]
    if query.way == "newer":
        words += ["--max", str(query.limit)]
    label = "Read from here, without the filter" if query.is_filtered else "Read the same records"
    return [{"label": label, "command": command(cluster, *words)}]


def produce_command(topic: str, record: OutgoingRecord, cluster: Cluster) -> str:
    """One JSON line, which can say everything: null, bytes, headers."""
    line: dict[str, Any] = {"key": json_bytes(record.key), "value": json_bytes(record.value)}
    if record.headers:
        line["headers"] = [[name, json_bytes(value)] for name, value in record.headers]
    if record.partition is not None:
        line["partition"] = record.partition
    text = shlex.join(["printf", "%s\\n", json.dumps(line)])
    return f"{text} | {command(cluster, 'produce', topic, '--json-lines')}"


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """As `headrace consume --json` prints them: text, or {"base64": …} for other bytes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def iso_time(milliseconds: int | None) -> str | int | None:
    """In UTC; the number itself beyond the years 1 to 9999."""
    if milliseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return milliseconds
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def partition_list(partitions: Sequence[int]) -> str:
    return ",".join(map(str, partitions))


def _start(query: Query) -> str:
    match query.place:
        case "newest":
            return f"-{query.limit}"
        case "offset":
            return str(query.value)
        case "time":
            return str(iso_time(query.value))
        case "cursor":
            offsets = set(query.cursor.values())
            return str(min(offsets)) if len(offsets) == 1 else "beginning"
        case "oldest":
            return "beginning"
