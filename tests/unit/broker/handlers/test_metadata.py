# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import uuid
from itertools import pairwise
from typing import Any

import pytest

from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.visibility import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.read_handlers import FakeBroker, node, topic

ALL_VERSIONS = range(14)
NOT_ASKED = -(2**31)


def asked(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def names(reply: Any) -> list[str]:
    return [entry.name for entry in reply.topics]


def everything(version: int) -> Any:
    """How a client of this version asks for all topics."""
    return [] if version == 0 else None


# Metadata


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_in_every_version(version: int) -> None:
    broker = FakeBroker([topic("a", 2), topic("b")])
    reply = broker.ask(ApiKey.METADATA, version, topics=everything(version))
    assert names(reply) == ["a", "b"]
    assert [partition.partition_index for partition in reply.topics[0].partitions] == [0, 1]
    assert [(each.node_id, each.host, each.port) for each in reply.brokers] == [(1, "plaintext-1", 9001)]


@pytest.mark.parametrize("version", ALL_VERSIONS[1:])
def test_an_empty_list_asks_for_no_topic_from_version_1_on(version: int) -> None:
    assert names(FakeBroker([topic("a")]).ask(ApiKey.METADATA, version, topics=[])) == []


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_topics_by_name_once_each_in_the_order_asked(version: int) -> None:
    broker = FakeBroker([topic("a"), topic("b"), topic("c")])
    assert names(broker.ask(ApiKey.METADATA, version, topics=asked("c", "a", "c"))) == ["c", "a"]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_an_unknown_topic_is_created_and_described_in_the_same_reply(version: int) -> None:
    broker = FakeBroker()
    (made,) = broker.ask(ApiKey.METADATA, version, topics=asked("new")).topics
    assert (made.error_code, made.name, len(made.partitions)) == (ErrorCode.none, "new", 1)
    assert broker.controller.created == ["new"]


@pytest.mark.parametrize(
    ("allowed_by_client", "enabled"), [(False, True), (True, False)], ids=["client", "node"]
)
def test_nothing_is_created_unless_client_and_node_want_it(allowed_by_client: bool, enabled: bool) -> None:
    broker = FakeBroker(config={"auto.create.topics.enable": enabled})
    (missing,) = broker.ask(
        ApiKey.METADATA, 12, topics=asked("new"), allow_auto_topic_creation=allowed_by_client
    ).topics
    assert (missing.error_code, missing.partitions) == (ErrorCode.unknown_topic_or_partition, ())
    assert broker.controller.created == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250])
def test_an_illegal_name_is_refused_and_never_created(name: str) -> None:
    broker = FakeBroker()
    (refused,) = broker.ask(ApiKey.METADATA, 12, topics=asked(name)).topics
    assert refused.error_code is ErrorCode.invalid_topic_exception
    assert broker.controller.created == []


def test_a_refused_creation_returns_its_error_code() -> None:
    broker = FakeBroker()
    broker.controller.refuses_with = ErrorCode.invalid_replication_factor
    (refused,) = broker.ask(ApiKey.METADATA, 12, topics=asked("new")).topics
    assert refused.error_code is ErrorCode.invalid_replication_factor


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(version: int) -> None:
    known, unknown = topic("a"), uuid.UUID(int=42)
    broker = FakeBroker([known, topic("b")])
    reply = broker.ask(
        ApiKey.METADATA,
        version,
        topics=[{"topic_id": known.topic_id, "name": None}, {"topic_id": unknown, "name": None}],
    )
    assert [(entry.error_code, entry.name, entry.topic_id) for entry in reply.topics] == [
        (ErrorCode.none, "a", known.topic_id),
        (ErrorCode.unknown_topic_id, None, unknown),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_are_answered_but_not_accepted_before_version_12(version: int) -> None:
    known = topic("a")
    broker = FakeBroker([known])
    assert broker.ask(ApiKey.METADATA, version, topics=asked("a")).topics[0].topic_id == known.topic_id
    by_id = [{"topic_id": known.topic_id, "name": "a"}]
    (refused,) = broker.ask(ApiKey.METADATA, version, topics=by_id).topics
    assert refused.error_code is ErrorCode.invalid_request


def test_authorized_operations_are_all_of_them_when_asked_and_unset_otherwise() -> None:
    broker = FakeBroker([topic("a")])
    plain = broker.ask(ApiKey.METADATA, 8, topics=None)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert plain.cluster_authorized_operations == NOT_ASKED
    full = broker.ask(
        ApiKey.METADATA,
        8,
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert full.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    assert full.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096


@pytest.mark.row("D20")
def test_each_listener_shows_the_addresses_that_its_clients_can_reach() -> None:
    broker = FakeBroker([topic("a")], nodes=[node(1, listeners=("OUTSIDE", "INSIDE"))])
    outside = broker.ask(ApiKey.METADATA, 12, "OUTSIDE", topics=None)
    inside = broker.ask(ApiKey.METADATA, 12, "INSIDE", topics=None)
    assert [each.host for each in outside.brokers] == ["outside-1"]
    assert [each.host for each in inside.brokers] == ["inside-1"]


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)],
)
def test_a_leader_without_the_clients_listener_is_an_error(version: int, error: ErrorCode) -> None:
    broker = FakeBroker([topic("a")], nodes=[node(1, listeners=("OTHER",)), node(2)])
    reply = broker.ask(ApiKey.METADATA, version, topics=None)
    (partition,) = reply.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (error, -1)
    assert (partition.offline_replicas, reply.controller_id) == ((1,), 2)


def test_a_dead_leader_is_not_available_and_its_replica_offline() -> None:
    broker = FakeBroker([topic("a", leader=2, replicas=(1, 2), isr=(1, 2))])
    (partition,) = broker.ask(ApiKey.METADATA, 12, topics=None).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.leader_not_available, -1)
    assert (partition.replica_nodes, partition.offline_replicas) == ((1, 2), (2,))


def test_version_0_hides_replicas_that_are_gone() -> None:
    broker = FakeBroker([topic("a", replicas=(1, 2), isr=(1, 2))])
    (partition,) = broker.ask(ApiKey.METADATA, 0, topics=[]).topics[0].partitions
    assert (partition.error_code, partition.replica_nodes, partition.isr_nodes) == (
        ErrorCode.replica_not_available,
        (1,),
        (1,),
    )


# What is kept


def raw_reply(broker: FakeBroker, version: int = 12, listener: str = "PLAINTEXT") -> Any:
    context = RequestContext(
        api_key=3, api_version=version, correlation_id=1, client_id=None, listener=listener, peer=""
    )
    request = _AllTopics()
    metadata: Any = broker.handlers()[ApiKey.METADATA]
    return asyncio.run(metadata(context, request))


class _AllTopics:
    topics = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AllTopics)

    def __hash__(self) -> int:
        return 1


def test_the_same_request_gets_the_same_bytes_until_the_view_changes() -> None:
    broker = FakeBroker([topic("a")])
    first = raw_reply(broker)
    assert raw_reply(broker) is first
    assert raw_reply(broker, version=11) is not first
    broker.set_view([*broker.cluster.view.topics.values(), topic("b")])
    assert raw_reply(broker) is not first
    assert names(broker.ask(ApiKey.METADATA, 12, topics=None)) == ["a", "b"]


def test_a_reply_with_an_error_is_not_kept() -> None:
    broker = FakeBroker()
    broker.controller.refuses_with = ErrorCode.request_timed_out
    (refused,) = broker.ask(ApiKey.METADATA, 12, topics=asked("new")).topics
    assert refused.error_code is ErrorCode.request_timed_out
    broker.controller.refuses_with = None
    (created,) = broker.ask(ApiKey.METADATA, 12, topics=asked("new")).topics
    assert created.error_code is ErrorCode.none


def test_a_change_encodes_only_the_topics_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.broker.controller import metadata_cache
    from headrace.wire.requests import metadata_reply

    encoded: list[str] = []
    encode = metadata_reply.encode_topic

    def counted(version: int, entry: Any) -> bytes:
        encoded.append(entry.name)
        return encode(version, entry)

    monkeypatch.setattr(metadata_cache, "encode_topic", counted)
    broker = FakeBroker([topic(f"t{number}") for number in range(50)])
    raw_reply(broker)
    assert len(encoded) == 50
    broker.set_view([*broker.cluster.view.topics.values(), topic("more")])
    raw_reply(broker)
    assert encoded[50:] == ["more"]


def test_a_node_that_comes_or_goes_is_seen_in_every_topic() -> None:
    broker = FakeBroker([topic("a", replicas=(1, 2), isr=(1, 2))])
    assert broker.ask(ApiKey.METADATA, 12, topics=None).topics[0].partitions[0].offline_replicas == (2,)
    broker.set_view(broker.cluster.view.topics.values(), nodes=[node(1), node(2)])
    assert broker.ask(ApiKey.METADATA, 12, topics=None).topics[0].partitions[0].offline_replicas == ()


def test_the_cache_is_bounded() -> None:
    broker = FakeBroker([topic(f"t{number}") for number in range(1000)])
    for number in range(1000):
        broker.ask(ApiKey.METADATA, 12, topics=asked(f"t{number}"))
    assert len(broker.metadata_cache._replies) <= 256


def test_deleted_topics_leave_the_cache() -> None:
    broker = FakeBroker([topic(f"t{number}") for number in range(100)])
    raw_reply(broker)
    broker.set_view([topic("left")])
    raw_reply(broker)
    (shape,) = broker.metadata_cache._encoded.values()
    assert set(shape._topics) == {"left"}


def test_requests_of_others_are_served_while_thousands_of_topics_are_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reply tells the topics of one view, and is not kept for the next one."""
    from headrace.broker.controller import metadata_cache
    from headrace.wire.requests import metadata_reply

    encoded: list[str] = []
    encode = metadata_reply.encode_topic

    def counted(version: int, entry: Any) -> bytes:
        encoded.append(entry.name)
        return encode(version, entry)

    async def scenario() -> None:
        broker = FakeBroker([topic(f"t{number}") for number in range(2000)])
        asking = asyncio.ensure_future(broker.ask_async(ApiKey.METADATA, 12, topics=None))
        seen = [0]
        while not asking.done():
            await asyncio.sleep(0)
            seen.append(len(encoded))
            if len(encoded) < 1000:
                broker.set_view([topic("other")])
        assert max(after - before for before, after in pairwise(seen)) <= 500
        assert len(names(asking.result())) == 2000
        assert names(await broker.ask_async(ApiKey.METADATA, 12, topics=None)) == ["other"]

    monkeypatch.setattr(metadata_cache, "encode_topic", counted)
    asyncio.run(scenario())


# DescribeTopicPartitions


def described(reply: Any) -> list[tuple[str, list[int]]]:
    return [(entry.name, [part.partition_index for part in entry.partitions]) for entry in reply.topics]


def test_topics_are_described_in_the_order_of_their_names() -> None:
    broker = FakeBroker([topic("b", 2), topic("a")])
    reply = broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[])
    assert described(reply) == [("a", [0]), ("b", [0, 1])]
    assert reply.next_cursor is None
    assert reply.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    partition = reply.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 3, (1,))
    assert (partition.eligible_leader_replicas, partition.offline_replicas) == ((), ())


def test_a_reader_with_a_cursor_sees_every_partition_once() -> None:
    broker = FakeBroker([topic("a", 3), topic("b", 1), topic("c", 4)])
    seen: list[tuple[str, int]] = []
    cursor: Any = None
    for _ in range(10):
        reply = broker.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=2, cursor=cursor
        )
        seen += [(name, index) for name, indexes in described(reply) for index in indexes]
        if reply.next_cursor is None:
            break
        cursor = {
            "topic_name": reply.next_cursor.topic_name,
            "partition_index": reply.next_cursor.partition_index,
        }
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1), ("c", 2), ("c", 3)]


def test_unknown_and_invalid_topics_get_different_errors() -> None:
    reply = FakeBroker().ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=asked("nowhere", "a b"))
    assert [(entry.name, entry.error_code) for entry in reply.topics] == [
        ("a b", ErrorCode.invalid_topic_exception),
        ("nowhere", ErrorCode.unknown_topic_or_partition),
    ]


@pytest.mark.parametrize(("name", "index"), [("a", -1), ("other", 0)])
def test_a_cursor_that_cannot_be_is_refused(name: str, index: int) -> None:
    broker = FakeBroker([topic("a", 3)])
    reply = broker.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=asked("a"),
        cursor={"topic_name": name, "partition_index": index},
    )
    assert [entry.error_code for entry in reply.topics] == [ErrorCode.invalid_request]
