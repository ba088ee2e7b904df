# SPDX-License-Identifier: Apache-2.0
"""Writes one record, and says where it went. The topic must exist: nothing is created.

Without a partition the topic's key ranges decide, or the key's hash as in Kafka's own producers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from headrace.client.tools.partitioner_store import PartitionerStore
from headrace.client.tools.producer import Delivery, OutgoingRecord, RecordProducer
from headrace.console.messages.commands import produce_command
from headrace.console.messages.values import parse_json
from headrace.console.views.view import Document, Source, ViewError

_TIMEOUT_MS = 10_000
_MOST_BYTES = 1 << 20
_MOST_HEADERS = 100
_FORMS = ("text", "json", "hex", "null")


async def produce(source: Source, body: Mapping[str, Any]) -> Document:
    """ViewError (400) for what is no record; ClientError when the cluster does not take it."""
    topic = _text(body, "topic")
    record = parse_record(body)
    delivery = await source.run(_send, source.cluster, topic, record)
    return {
        "topic": topic,
        "partition": delivery.partition,
        "offset": delivery.offset,
        "commands": [
            {"label": "Write the same record", "command": produce_command(topic, record, source.cluster)}
        ],
    }


def parse_record(body: Mapping[str, Any]) -> OutgoingRecord:
    """`key`, `value` and each header's value are `{"form": "text"|"json"|"hex"|"null", "text": …}`."""
    headers = body.get("headers") or []
    if not isinstance(headers, list) or len(headers) > _MOST_HEADERS:
        raise _wrong("headers", f"give a list of at most {_MOST_HEADERS}")
    record = OutgoingRecord(
        key=_bytes(body.get("key"), "key"),
        value=_bytes(body.get("value"), "value"),
        headers=[_header(each) for each in headers],
        partition=_partition(body.get("partition")),
    )
    size = record.size + sum(len(name) + len(value or b"") for name, value in record.headers)
    if size > _MOST_BYTES:
        raise ViewError(
            f"the record has {size:,} bytes; the console writes at most {_MOST_BYTES:,}",
            next_step="write larger records with headrace produce",
            status=413,
        )
    return record


def _send(cluster: Cluster, topic: str, record: OutgoingRecord) -> Delivery:
    admin = Admin(cluster)
    description = admin.describe_topic(topic)
    stored = PartitionerStore(cluster, admin).load(topic, description.topic_id)
    deliveries: list[Delivery] = []
    producer = RecordProducer(
        cluster,
        topic,
        partitions=len(description.partitions),
        partitioner=None if stored is None else stored.partitioner(),
        max_message_bytes=2 * _MOST_BYTES,  # the topic's own limit decides
        linger_ms=0,
        delivery_timeout_ms=_TIMEOUT_MS,
        on_delivery=deliveries.append,
    )
    try:
        producer.send(record)
    finally:
        unknown = producer.close(_TIMEOUT_MS + 2_000)
    if unknown or not deliveries:
        raise ClientError(
            "no broker said in time whether it took the record",
            next_step="look at the newest messages before you send it again",
            code="_MSG_TIMED_OUT",
        )
    if deliveries[0].error is not None:
        raise deliveries[0].error
    return deliveries[0]


def _header(each: Any) -> tuple[str, bytes | None]:
    if not isinstance(each, Mapping) or not isinstance(each.get("name"), str) or not each["name"]:
        raise _wrong("headers", 'each is {"name": "trace", "value": {"form": "text", "text": "…"}}')
    return each["name"], _bytes(each.get("value"), f"header {each['name'][:100]!r}")


def _bytes(part: Any, name: str) -> bytes | None:
    if part is None:
        return None
    if not isinstance(part, Mapping) or part.get("form") not in _FORMS:
        raise _wrong(name, f'write {{"form": …, "text": …}} with one of the forms {", ".join(_FORMS)}')
    form, text = part["form"], part.get("text", "")
    if form == "null":
        return None
    if not isinstance(text, str):
        raise _wrong(name, "its text is a string")
    if form == "hex":
        return _from_hex(text, name)
    data = text.encode(errors="replace")
    if form == "json" and parse_json(data) is None:
        raise ViewError(
            f"the {name} is not JSON", next_step="correct it, or choose text as its form", status=400
        )
    return data


def _from_hex(text: str, name: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _wrong(name, "write bytes as hex digits, such as 00 ff 12") from None


def _partition(value: Any) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise _wrong("partition", "give a number from 0, or null to let the key decide")
    return value


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise _wrong(name, "give its name")
    return value


def _wrong(name: str, next_step: str) -> ViewError:
    return ViewError(f"the {name} of the record is not as it should be", next_step=next_step, status=400)
