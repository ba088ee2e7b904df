# SPDX-License-Identifier: Apache-2.0
"""Sends dead letters back to the topics they came from, in two steps: a preview with a token, and the replay.

Where a record came from is written in its headers, by whoever wrote it: the preview names the topics, and
internal topics are never written to. A replayed record gets its own key, value, partition and headers,
without those of the failure. The dead letter stays; this process remembers what it has replayed.
Read next: replay_records.py (which records, and what they become).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from headrace.client.tools.producer import Delivery, OutgoingRecord, RecordProducer
from headrace.console.actions.replay_records import (
    Letter,
    ReplayRequest,
    read_letters,
    why_not,
)
from headrace.console.messages.commands import command
from headrace.console.views.view import Document, Source, ViewError

_REFUSED_SHOWN = 50
_REMEMBERED = 100_000
_TIMEOUT_MS = 20_000
_LARGEST_MESSAGE = 64 << 20  # the topic's own limit decides

Place = tuple[str, int, int]
"""Topic, partition and offset of a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReplay:
    topic: str
    places: tuple[tuple[int, int], ...]


class Replayed:
    """The dead letters that this process sent back, the newest ones."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[str, Place], None] = OrderedDict()

    def add(self, cluster: Cluster, place: Place) -> None:
        self._places[cluster.bootstrap, place] = None
        while len(self._places) > _REMEMBERED:
            self._places.popitem(last=False)

    def __call__(self, cluster: Cluster, place: Place) -> bool:
        return (cluster.bootstrap, place) in self._places


async def plan_replay(
    source: Source, request: ReplayRequest, replayed: Replayed
) -> tuple[PlannedReplay, Document]:
    """The plan and its document, without a token."""
    found = await read_letters(
        source,
        request,
        lambda *place: not request.again and replayed(source.cluster, (request.topic, *place)),
    )
    targets = sorted({letter.topic for letter in found.letters if letter.topic is not None})
    partitions = await source.run(_partition_counts, source.cluster, targets)
    chosen: list[Letter] = []
    refused: list[Document] = []
    for letter in found.letters:
        reason = why_not(letter, request.topic, partitions)
        if reason is not None:
            refused.append({"partition": letter.partition, "offset": letter.offset, "reason": reason})
        else:
            chosen.append(letter)
    counts = Counter(letter.topic for letter in chosen)
    plan = PlannedReplay(
        topic=request.topic, places=tuple((letter.partition, letter.offset) for letter in chosen)
    )
    document = {
        "topic": request.topic,
        "count": len(chosen),
        "targets": [{"topic": topic, "count": count} for topic, count in sorted(counts.items())],
        "refused": refused[:_REFUSED_SHOWN],
        "refused_count": len(refused),
        "already": found.already,
        "more": found.more,
        "commands": [
            {
                "label": "Read them with their headers",
                "command": command(source.cluster, "consume", request.topic, "--json", "--exit-at-end"),
            }
        ],
    }
    return plan, document


async def replay(source: Source, plan: PlannedReplay, replayed: Replayed) -> Document:
    """Sends the records of the plan; what failed is counted, and may be replayed again."""
    if not plan.places:
        raise ViewError("there is nothing to replay", next_step="choose other records", status=400)
    request = ReplayRequest(topic=plan.topic, places=frozenset(plan.places), error=None, again=True)
    letters = (await read_letters(source, request)).letters
    targets = sorted({letter.topic for letter in letters if letter.topic is not None})
    partitions = await source.run(_partition_counts, source.cluster, targets)
    sent: list[Letter] = []
    failures: list[ClientError] = []
    for topic in targets:
        own = [each for each in letters if each.topic == topic and not why_not(each, plan.topic, partitions)]
        if own:
            done, failed = await source.run(_send, source.cluster, topic, partitions[topic], own)
            sent += done
            failures += failed
    for letter in sent:
        replayed.add(source.cluster, (plan.topic, letter.partition, letter.offset))
    counts = Counter(letter.topic for letter in sent)
    return {
        "topic": plan.topic,
        "replayed": len(sent),
        "failed": len(plan.places) - len(sent),
        "error": str(failures[0]) if failures else None,
        "targets": [{"topic": topic, "count": count} for topic, count in sorted(counts.items())],
    }


def _partition_counts(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    """Of those topics that exist."""
    admin = Admin(cluster)
    found = {topic: admin.find_topic(topic) for topic in topics}
    return {topic: len(each.partitions) for topic, each in found.items() if each is not None}


def _send(
    cluster: Cluster, topic: str, partitions: int, letters: list[Letter]
) -> tuple[list[Letter], list[ClientError]]:
    deliveries: list[Delivery] = []
    producer = RecordProducer(
        cluster,
        topic,
        partitions=partitions,
        max_message_bytes=_LARGEST_MESSAGE,
        linger_ms=5,
        delivery_timeout_ms=_TIMEOUT_MS,
        on_delivery=deliveries.append,
    )
    try:
        for letter in letters:
            producer.send(_outgoing(letter, partitions))
    finally:
        producer.close(_TIMEOUT_MS + 2_000)
    done = [letters[each.number] for each in deliveries if each.error is None]
    return done, [each.error for each in deliveries if each.error is not None]


def _outgoing(letter: Letter, partitions: int) -> OutgoingRecord:
    fits = letter.origin_partition is not None and 0 <= letter.origin_partition < partitions
    return OutgoingRecord(
        key=letter.key,
        value=letter.value,
        headers=letter.headers,
        partition=letter.origin_partition if fits else None,
    )
