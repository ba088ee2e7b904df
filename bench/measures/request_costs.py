# SPDX-License-Identifier: Apache-2.0
"""Broker CPU per request, one kind of request at a time: for comparing two versions of the broker.

Each cost runs for about a second on one node and gives microseconds of broker CPU per request. What it needs
is created on its first turn and used in all turns. Read next: compare_commits.py, which runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bench.cell import Cell
from bench.group_client import (
    ClassicGroup,
    Kip848Member,
    form_groups,
    repeat_each,
    wait_for_coordinator,
    wait_until_stable,
)
from bench.measures.groups import new_group
from bench.payloads import batch_of, plain_batch
from bench.raw_client import RawConnection, no_collection, produce_pipelined, send_each
from bench.raw_requests import (
    FetchReply,
    InitProducerIdReply,
    ProduceReply,
    fetch_partitions_request,
    fetch_request,
    frame,
    init_producer_id_request,
    metadata_request,
    produce_request,
)
from headrace.wire.api_key import ApiKey
from tests.harness.groups import wire

T = TypeVar("T")

_MEMBERS, _PARTITIONS_PER_MEMBER = 50, 10
_PARTITIONS = _MEMBERS * _PARTITIONS_PER_MEMBER
_ONE_MEGABYTE = 1 << 20
_LARGE_BATCHES = 150
"""Of 1 MB in one turn at most: the disk is not what is measured."""
_LATEST = -1
_NO_VERSION = 99
"""Of ApiVersions: answered with UNSUPPORTED_VERSION and the versions that there are."""
_VALUE = b"v" * 100
_IDEMPOTENT_PER_SECOND = 10_000
_MOST_IN_FLIGHT = 5
"""What an idempotent client allows itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    title: str
    measure: Callable[[Cell, float], float]
    """Microseconds of broker CPU per request, measured for so many seconds."""


def produce(
    cell: Cell, seconds: float, *, acks: int, flush: str, in_flight: int, partitions: int = 1
) -> float:
    """Batches of one record of 100 bytes, for each of the partitions."""
    batches = dict.fromkeys(range(partitions), plain_batch(1, 100))
    return _produce(cell, seconds, batches, acks=acks, flush=flush, in_flight=in_flight)


def produce_large(cell: Cell, seconds: float) -> float:
    """Batches of 900 KB, as a client makes them that has much to send."""
    batches = {0: plain_batch(900, 1000)}
    return _produce(cell, seconds, batches, acks=-1, flush="os", in_flight=3, count=_LARGE_BATCHES)


def produce_idempotent(cell: Cell, seconds: float) -> float:
    """The same small batches with a producer id and rising sequence numbers: clients' default."""
    with cell.topic(headrace_flush="os") as topic, cell.connect() as connection:
        cell.touch_partitions(topic, 1)
        reply = connection.call(init_producer_id_request(None))
        producer_id = InitProducerIdReply().producer_id(reply)
        requests = [
            produce_request(
                topic, {0: batch_of([_VALUE], producer_id=producer_id, base_sequence=number)}, acks=-1
            )
            for number in range(int(seconds * _IDEMPOTENT_PER_SECOND))
        ]
        with no_collection(), cell.cpu_clock() as cpu:
            send_each(connection, requests, ProduceReply(topic).check, in_flight=_MOST_IN_FLIGHT)
    return cpu.seconds / len(requests) * 1e6


def _produce(
    cell: Cell,
    seconds: float,
    batches: dict[int, bytes],
    *,
    acks: int,
    flush: str,
    in_flight: int,
    count: int | None = None,
) -> float:
    with cell.topic(len(batches), headrace_flush=flush) as topic, cell.connect() as connection:
        cell.touch_partitions(topic, len(batches))
        request = produce_request(topic, batches, acks=acks)
        check = ProduceReply(topic).check
        with no_collection(), cell.cpu_clock() as cpu:
            answered, _ = produce_pipelined(
                connection, request, check, in_flight=in_flight, seconds=seconds, count=count
            )
    return cpu.seconds / answered * 1e6


def fetch_1mb(cell: Cell, seconds: float) -> float:
    """Responses of 1 MB from the page cache."""
    topic = _once(cell, "read topic", partial(_filled_topic, cell))
    request = fetch_request(topic, 0, max_bytes=_ONE_MEGABYTE)
    return _repeat(cell, request, FetchReply(topic).check, seconds, in_flight=2)


def fetch_many_partitions(cell: Cell, seconds: float, *, partitions: int) -> float:
    """A little from each of many partitions."""
    topic = _once(cell, f"topic of {partitions} with a batch each", partial(_batch_each, cell, partitions))
    request = fetch_partitions_request(topic, dict.fromkeys(range(partitions), 0))
    return _repeat(cell, request, FetchReply(topic).check, seconds, in_flight=2)


def _batch_each(cell: Cell, partitions: int) -> str:
    topic = cell.create_topic(partitions)
    requests = [produce_request(topic, {index: plain_batch(10, 100)}, acks=1) for index in range(partitions)]
    with cell.connect() as connection:
        send_each(connection, requests, ProduceReply(topic).check)
    return topic


def _filled_topic(cell: Cell) -> str:
    topic = cell.create_topic()
    request = produce_request(topic, {0: plain_batch(100, 1000)}, acks=1)
    with cell.connect() as connection:
        produce_pipelined(connection, request, ProduceReply(topic).check, in_flight=5, count=20)
    return topic


def fetch_waiting(cell: Cell, seconds: float) -> float:
    """A Fetch that waits at the end of the log and the Produce that answers it; both count as one."""
    with cell.topic(headrace_flush="os") as topic, cell.connect() as reader, cell.connect() as writer:
        cell.touch_partitions(topic, 1)
        request = produce_request(topic, {0: plain_batch(1, 100)}, acks=-1)
        produced, fetched = ProduceReply(topic), FetchReply(topic)
        writer.send(request)
        end = produced.base_offset(writer.receive()) + 1
        fetches = [fetch_request(topic, end + turn) for turn in range(int(seconds * 3000))]
        with no_collection(), cell.cpu_clock() as cpu:
            for fetch in fetches:
                reader.send(fetch)
                produced.check(writer.call(request))
                fetched.check(reader.receive())
    return cpu.seconds / len(fetches) * 1e6


def metadata(cell: Cell, seconds: float) -> float:
    """Metadata of one topic of 50 partitions."""
    topic = _once(cell, "topic of 50", partial(cell.create_topic, 50))
    return _repeat_same(cell, metadata_request(topic), seconds)


def list_offsets(cell: Cell, seconds: float) -> float:
    """The latest offset of ten partitions."""
    topic = _once(cell, "topic of 10", partial(cell.create_topic, 10))
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST} for index in range(10)
    ]
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    return _repeat_same(cell, wire.request("list_offsets", fields), seconds)


def offset_commit(cell: Cell, seconds: float, *, partitions: int) -> float:
    """50 members that commit one after the other, each waiting for its answer."""
    group = _group(cell)
    requests = [
        wire.request(
            "offset_commit",
            wire.commit_fields(
                group.name, member.member_id, group.generation, group.topic, _offsets(place, partitions)
            ),
        )
        for place, member in enumerate(group.members)
    ]
    return _by_members(cell, [member.connection for member in group.members], requests, seconds)


def offset_fetch(cell: Cell, seconds: float) -> float:
    """The committed offsets of ten partitions."""
    group = _group(cell)
    requests = [
        wire.request(
            "offset_fetch",
            wire.fetch_fields(
                group.name,
                group.topic,
                _offsets(place, _PARTITIONS_PER_MEMBER),
                member_id=member.member_id,
                epoch=group.generation,
            ),
        )
        for place, member in enumerate(group.members)
    ]
    return _by_members(cell, [member.connection for member in group.members], requests, seconds)


def heartbeat(cell: Cell, seconds: float) -> float:
    """Heartbeats of the 50 members of a classic group."""
    group = _group(cell)
    requests = [member.heartbeat(group.name, group.generation) for member in group.members]
    return _by_members(cell, [member.connection for member in group.members], requests, seconds)


def unanswerable(cell: Cell, seconds: float) -> float:
    """The floor of all other requests: one that the dispatcher answers itself, with a reply made beforehand.

    ApiVersions in a version that does not exist: no body is read, and no handler called.
    """
    connections = [member.connection for member in _group(cell).members]
    request = frame(ApiKey.API_VERSIONS, _NO_VERSION, b"")
    return _by_members(cell, connections, [request] * len(connections), seconds)


def rebalance(cell: Cell, seconds: float) -> float:
    """A rebalance of 50 members and 500 partitions: 100 requests, counted as one."""
    group, count = _group(cell), max(1, int(seconds * 5))
    with no_collection(), cell.cpu_clock() as cpu:
        for _ in range(count):
            group.rebalance()
    return cpu.seconds / count * 1e6


def consumer_group_heartbeat(cell: Cell, seconds: float) -> float:
    """Heartbeats of the 50 members of a KIP-848 group that have nothing to report."""
    members = _once(cell, "KIP-848 members", partial(_kip848_members, cell))
    requests = [member.heartbeat_request() for member in members]
    return _by_members(cell, [member.connection for member in members], requests, seconds)


def _once(cell: Cell, name: str, create: Callable[[], T]) -> T:
    """What one turn creates and later turns use."""
    if name not in cell.state:
        cell.state[name] = create()
    found: T = cell.state[name]
    return found


def _offsets(place: int, count: int) -> dict[int, int]:
    first = place * _PARTITIONS_PER_MEMBER
    return dict.fromkeys(range(first, first + count), 1000)


def _group(cell: Cell) -> ClassicGroup:
    return _once(cell, "classic group", partial(_classic_group, cell))


def _classic_group(cell: Cell) -> ClassicGroup:
    (group,) = form_groups(
        [_new_group(cell)],
        _group_topic(cell),
        partitions=_PARTITIONS,
        members=_MEMBERS,
        connect=partial(cell.connect, buffer_bytes=1 << 14),
    )
    return group


def _kip848_members(cell: Cell) -> list[Kip848Member]:
    group, topic = _new_group(cell), _group_topic(cell)
    members = [
        Kip848Member(connection=cell.connect(buffer_bytes=1 << 14), group=group, topic=topic)
        for _ in range(_MEMBERS)
    ]
    for member in members:
        member.join()
    wait_until_stable(members, _PARTITIONS)
    return members


def _group_topic(cell: Cell) -> str:
    return _once(cell, "group topic", partial(cell.create_topic, _PARTITIONS))


def _new_group(cell: Cell) -> str:
    group = new_group()
    with cell.connect() as connection:
        wait_for_coordinator(connection, group)
    return group


def _by_members(
    cell: Cell, connections: Sequence[RawConnection], requests: Sequence[bytes], seconds: float
) -> float:
    pairs = zip(connections, requests, strict=True)
    expected = [bytes(connection.call(request)) for connection, request in pairs]
    with no_collection(), cell.cpu_clock() as cpu:
        answered, _ = repeat_each(connections, requests, expected, seconds)
    return cpu.seconds / answered * 1e6


def _repeat_same(cell: Cell, request: bytes, seconds: float) -> float:
    """Every reply must equal the first one."""
    with cell.connect() as connection:
        expected = bytes(connection.call(request))

    def check(reply: memoryview) -> None:
        if reply != expected:
            raise RuntimeError("the same request was answered by another reply")

    return _repeat(cell, request, check, seconds, in_flight=1)


def _repeat(
    cell: Cell, request: bytes, check: Callable[[memoryview], None], seconds: float, *, in_flight: int
) -> float:
    with cell.connect(buffer_bytes=4 * _ONE_MEGABYTE) as connection, no_collection(), cell.cpu_clock() as cpu:
        answered, _ = produce_pipelined(connection, request, check, in_flight=in_flight, seconds=seconds)
    return cpu.seconds / answered * 1e6


def _small(title: str, *, acks: int, flush: str, in_flight: int) -> RequestCost:
    return RequestCost(title=title, measure=partial(produce, acks=acks, flush=flush, in_flight=in_flight))


COSTS: tuple[RequestCost, ...] = (
    _small("Produce 100 B, acks=all, flush=ack, one in flight", acks=-1, flush="ack", in_flight=1),
    _small("Produce 100 B, acks=all, flush=ack, 32 in flight", acks=-1, flush="ack", in_flight=32),
    _small("Produce 100 B, acks=all, flush=os, 32 in flight", acks=-1, flush="os", in_flight=32),
    _small("Produce 100 B, acks=1, flush=ack, 32 in flight", acks=1, flush="ack", in_flight=32),
    _small("Produce 100 B, acks=1, flush=os, 32 in flight", acks=1, flush="os", in_flight=32),
    RequestCost(
        title="Produce 100 B, idempotent, acks=all, flush=os, 5 in flight", measure=produce_idempotent
    ),
    RequestCost(
        title="Produce to 16 partitions, acks=all, flush=os, 8 in flight",
        measure=partial(produce, acks=-1, flush="os", in_flight=8, partitions=16),
    ),
    RequestCost(title="Produce 900 KB, acks=all, flush=os, 3 in flight", measure=produce_large),
    RequestCost(title="Fetch 1 MB", measure=fetch_1mb),
    *(
        RequestCost(
            title=f"Fetch from {count} partitions, 1 KB each",
            measure=partial(fetch_many_partitions, partitions=count),
        )
        for count in (16, 64, 256)
    ),
    RequestCost(title="Fetch that waits, answered by a Produce", measure=fetch_waiting),
    RequestCost(title="Metadata, 50 partitions", measure=metadata),
    RequestCost(title="ListOffsets, 10 partitions", measure=list_offsets),
    RequestCost(title="OffsetCommit, 1 partition, 50 members", measure=partial(offset_commit, partitions=1)),
    RequestCost(
        title="OffsetCommit, 10 partitions, 50 members", measure=partial(offset_commit, partitions=10)
    ),
    RequestCost(title="OffsetFetch, 10 partitions, 50 members", measure=offset_fetch),
    RequestCost(title="No handler: ApiVersions of no version, 50 members", measure=unanswerable),
    RequestCost(title="Heartbeat, 50 members", measure=heartbeat),
    RequestCost(title="ConsumerGroupHeartbeat, 50 members", measure=consumer_group_heartbeat),
    RequestCost(title="Rebalance of 50 members", measure=rebalance),
)
