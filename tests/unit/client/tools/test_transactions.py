# SPDX-License-Identifier: Apache-2.0
"""Requests about transactions: older brokers, brokers without transactions, and what counts as hanging."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.client.tools import transactions
from headrace.client.tools.transaction_report import explain, find_hanging, judge
from headrace.client.tools.transactions import (
    AbortMarker,
    OpenTransaction,
    TransactionDescription,
    TransactionFilter,
    describe_transaction,
    fence_producers,
    list_transactions,
    with_brokers,
    write_abort_marker,
)
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

ORDERS = TopicPartition("orders", 0)
ALL_SERVED = dict.fromkeys(ApiKey, (0, 99))
Reply = Callable[[dict[str, Any]], Any]


def values(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


class FakeBrokers:
    """Node 1, which answers from a table of functions of the request; remembers the requests."""

    def __init__(self, replies: dict[int, Reply] | None = None, *, version: int = 2) -> None:
        self.replies = replies or {}
        self.version = version
        self.nodes = [1]
        self.served: dict[int, tuple[int, int]] = dict(ALL_SERVED)
        self.asked: list[tuple[int, dict[str, Any]]] = []
        self.topics: dict[str, dict[int, int]] = {"orders": {0: 1}, "__transaction_state": {0: 1}}

    def __call__(self, cluster: str) -> FakeBrokers:
        return self

    async def __aenter__(self) -> FakeBrokers:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def any_connection(self) -> Any:
        return values(address="127.0.0.1:9092", versions=self.served)

    async def node_ids(self) -> list[int]:
        return self.nodes

    async def version_of(self, node_id: int, api_key: int) -> int:
        return self.version

    async def metadata(self, topics: list[str] | None) -> Any:
        wanted = self.topics if topics is None else {name: self.topics[name] for name in topics}
        return values(topics=[_topic(name, leaders) for name, leaders in wanted.items()])

    async def call_any(self, api_key: int, fields: Any) -> Any:
        if api_key == ApiKey.FIND_COORDINATOR:
            return values(coordinators=[values(error_code=0, node_id=1)])
        return await self.call_node(1, api_key, fields)

    async def call_node(self, node_id: int, api_key: int, fields: Any) -> Any:
        self.asked.append((api_key, fields))
        return self.replies[api_key](fields)


def _topic(name: str, leaders: dict[int, int]) -> Any:
    partitions = [
        values(partition_index=index, leader_id=leader, replica_nodes=[1])
        for index, leader in leaders.items()
    ]
    return values(name=name, error_code=0, partitions=partitions)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeBrokers], str]:
    def use(brokers: FakeBrokers) -> str:
        monkeypatch.setattr(transactions, "check_reachable", lambda target: None)
        monkeypatch.setattr(transactions, "Brokers", brokers)
        monkeypatch.setattr(transactions, "_RETRY_MS", 1)
        return "127.0.0.1:9092"

    return use


def listed(*entries: tuple[str, int], error_code: int = 0) -> Reply:
    states = [values(transactional_id=n, producer_id=p, transaction_state="Ongoing") for n, p in entries]
    return lambda fields: values(error_code=error_code, transaction_states=states)


def described(state: str = "Ongoing", *partitions: int, error_code: int = 0) -> Reply:
    def answer(fields: dict[str, Any]) -> Any:
        entries = [
            values(
                error_code=error_code,
                transactional_id=name,
                transaction_state=state,
                transaction_timeout=timedelta(milliseconds=60_000),
                transaction_start_time=datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC),
                producer_id=7,
                producer_epoch=3,
                topics=[values(topic="orders", partitions=partitions)],
            )
            for name in fields["transactional_ids"]
        ]
        return values(transaction_states=entries)

    return answer


def producing(*opened: tuple[int, int], last_timestamp: int = 1_000) -> Reply:
    """DescribeProducers with (producer id, start offset) in partition 0 of orders."""
    producers = [
        values(
            producer_id=producer_id,
            producer_epoch=3,
            last_sequence=0,
            last_timestamp=last_timestamp,
            coordinator_epoch=-1,
            current_txn_start_offset=start,
        )
        for producer_id, start in opened
    ]
    partition = values(partition_index=0, error_code=0, active_producers=producers)
    return lambda fields: values(topics=[values(name="orders", partitions=[partition])])


def ends(last_stable: int, high_watermark: int) -> Reply:
    def answer(fields: dict[str, Any]) -> Any:
        offset = last_stable if fields["isolation_level"] else high_watermark
        partition = values(partition_index=0, error_code=0, offset=offset)
        return values(topics=[values(name="orders", partitions=[partition])])

    return answer


def test_a_broker_without_transactions_is_named_in_one_line(cluster: Callable[[FakeBrokers], str]) -> None:
    brokers = FakeBrokers()
    for key in (ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.END_TXN):
        del brokers.served[key]
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:9092 serves no transactions; on Headrace"):
        explain(cluster(brokers), "orders")
    assert brokers.asked == []


def test_a_broker_too_old_to_list_transactions_is_told_from_one_without_them(
    cluster: Callable[[FakeBrokers], str],
) -> None:
    brokers = FakeBrokers()
    del brokers.served[ApiKey.LIST_TRANSACTIONS]
    with pytest.raises(ClientError, match=r"does not serve list_transactions; .* from version 3\.0 on"):
        explain(cluster(brokers), "orders")


def test_every_node_is_asked_and_the_one_that_lists_an_id_is_its_coordinator() -> None:
    answers = [listed(("zeta", 7)), listed(("alpha", 8))]

    def states(fields: dict[str, Any]) -> Any:
        return answers.pop(0)(fields)

    brokers = FakeBrokers({ApiKey.LIST_TRANSACTIONS: states})
    brokers.nodes = [1, 2]
    found = asyncio.run(list_transactions(brokers, TransactionFilter()))  # type: ignore[arg-type]
    assert [(each.transactional_id, each.node_id) for each in found] == [("alpha", 2), ("zeta", 1)]


def test_an_old_broker_ignores_the_pattern_so_it_is_applied_here() -> None:
    brokers = FakeBrokers({ApiKey.LIST_TRANSACTIONS: listed(("copier-1", 7), ("my-copier", 8))}, version=0)
    found = asyncio.run(list_transactions(brokers, TransactionFilter(id_pattern="copier.*")))  # type: ignore[arg-type]
    assert [each.transactional_id for each in found] == ["copier-1"]
    with pytest.raises(ClientError, match=r"'\*' is not a regular expression"):
        asyncio.run(list_transactions(brokers, TransactionFilter(id_pattern="*")))  # type: ignore[arg-type]


def test_a_newer_broker_applies_the_pattern_itself() -> None:
    """Its expressions are RE2's, so what it answers is not filtered again."""
    brokers = FakeBrokers({ApiKey.LIST_TRANSACTIONS: listed(("copier-1", 7))})
    wanted = TransactionFilter(states=["Ongoing"], producer_ids=[7], longer_than_ms=5, id_pattern=r"\pL+-1")
    assert len(asyncio.run(list_transactions(brokers, wanted))) == 1  # type: ignore[arg-type]
    assert brokers.asked[0][1] == {
        "state_filters": ["Ongoing"],
        "producer_id_filters": [7],
        "duration_filter": 5,
        "transactional_id_pattern": r"\pL+-1",
    }


def test_a_broker_that_cannot_filter_by_age_is_not_asked_to() -> None:
    brokers = FakeBrokers(version=0)
    with pytest.raises(ClientError, match="too old to list transactions by their age"):
        asyncio.run(list_transactions(brokers, TransactionFilter(longer_than_ms=1)))  # type: ignore[arg-type]
    assert brokers.asked == []


def test_a_description_has_times_to_the_millisecond() -> None:
    brokers = FakeBrokers({ApiKey.DESCRIBE_TRANSACTIONS: described("Ongoing", 2, 0)})
    found = asyncio.run(describe_transaction(brokers, "copier"))  # type: ignore[arg-type]
    assert found == TransactionDescription(
        transactional_id="copier",
        node_id=1,
        state="Ongoing",
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        start_ms=1_769_860_800_123,
        partitions=(TopicPartition("orders", 0), TopicPartition("orders", 2)),
    )
    assert found.ends_by_ms == 1_769_860_860_123


def test_an_id_that_no_coordinator_knows() -> None:
    missing = described("Dead", error_code=int(ErrorCode.transactional_id_not_found))
    brokers = FakeBrokers({ApiKey.DESCRIBE_TRANSACTIONS: missing})
    with pytest.raises(ClientError, match="no coordinator knows transactional id 'copier'; list") as caught:
        asyncio.run(describe_transaction(brokers, "copier"))  # type: ignore[arg-type]
    assert caught.value.code == "TRANSACTIONAL_ID_NOT_FOUND"


def test_fencing_is_repeated_until_the_open_transaction_has_ended(
    cluster: Callable[[FakeBrokers], str],
) -> None:
    codes = [int(ErrorCode.concurrent_transactions)] * 2 + [0]
    brokers = FakeBrokers(
        {ApiKey.INIT_PRODUCER_ID: lambda f: values(error_code=codes.pop(0), producer_id=7, producer_epoch=4)}
    )
    fenced = with_brokers(cluster(brokers), lambda each: fence_producers(each, "copier"))
    assert (fenced.producer_id, fenced.producer_epoch) == (7, 4)
    assert codes == []


def test_a_refused_marker_says_what_is_open_now() -> None:
    marker = AbortMarker(partition=ORDERS, producer_id=7, producer_epoch=3, coordinator_epoch=-1)

    def answer(fields: dict[str, Any]) -> Any:
        partition = values(partition_index=0, error_code=int(ErrorCode.invalid_producer_epoch))
        topic = values(name="orders", partitions=[partition])
        return values(markers=[values(producer_id=7, topics=[topic])])

    brokers = FakeBrokers({ApiKey.WRITE_TXN_MARKERS: answer})
    with pytest.raises(ClientError, match=r"producer epoch 3 is not the partition's; .* explain orders"):
        asyncio.run(write_abort_marker(brokers, marker))  # type: ignore[arg-type]
    (sent,) = brokers.asked[0][1]["markers"]
    assert sent["coordinator_epoch"] == 0, "before a first marker, 0 is not above any coordinator's epoch"
    assert sent["transaction_result"] is False


@pytest.mark.parametrize(
    ("state", "partitions", "verdict"),
    [
        ("Ongoing", [ORDERS], "ongoing"),
        ("PrepareCommit", [ORDERS], "ending"),
        ("PrepareAbort", [ORDERS], "ending"),
        ("Ongoing", [TopicPartition("orders", 1)], "hanging"),
        ("PrepareAbort", [], "hanging"),
        ("CompleteAbort", [], "hanging"),
    ],
)
def test_what_a_coordinator_does_not_list_hangs(
    state: str, partitions: list[TopicPartition], verdict: str
) -> None:
    found = OpenTransaction(
        partition=ORDERS,
        start_offset=5,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=-1,
        last_timestamp_ms=0,
    )
    known = TransactionDescription(
        transactional_id="copier",
        node_id=1,
        state=state,
        producer_id=7,
        producer_epoch=3,
        timeout_ms=1,
        start_ms=0,
        partitions=tuple(partitions),
    )
    assert judge(found, known) == verdict
    assert judge(found, None) == "hanging"


def test_the_oldest_open_transaction_holds_readers_back(cluster: Callable[[FakeBrokers], str]) -> None:
    brokers = FakeBrokers(
        {
            ApiKey.LIST_OFFSETS: ends(5, 9),
            ApiKey.DESCRIBE_PRODUCERS: producing((8, 7), (7, 5), (9, -1)),
            ApiKey.LIST_TRANSACTIONS: listed(("copier", 7)),
            ApiKey.DESCRIBE_TRANSACTIONS: described("Ongoing", 0),
        }
    )
    (wait,) = explain(cluster(brokers), "orders")
    assert (wait.waiting, wait.stands_still) == (4, True)
    assert [(each.open.producer_id, each.verdict) for each in wait.transactions] == [
        (7, "ongoing"),
        (8, "hanging"),
    ]
    assert wait.held_by is wait.transactions[0]


def test_leaders_are_not_asked_for_producers_when_nobody_waits(cluster: Callable[[FakeBrokers], str]) -> None:
    brokers = FakeBrokers({ApiKey.LIST_OFFSETS: ends(9, 9)})
    (wait,) = explain(cluster(brokers), "orders")
    assert (wait.stands_still, wait.held_by) == (False, None)


def test_a_transaction_that_ends_between_two_questions_does_not_hang(
    cluster: Callable[[FakeBrokers], str],
) -> None:
    answers = [producing((7, 5)), producing()]

    def producers(fields: dict[str, Any]) -> Any:
        return answers.pop(0)(fields)

    brokers = FakeBrokers(
        {
            ApiKey.LIST_OFFSETS: ends(5, 9),
            ApiKey.DESCRIBE_PRODUCERS: producers,
            ApiKey.LIST_TRANSACTIONS: listed(),
        }
    )
    (wait,) = explain(cluster(brokers), "orders")
    assert wait.transactions == ()
    assert answers == []


def test_nothing_is_said_to_hang_while_a_coordinator_is_missing(
    cluster: Callable[[FakeBrokers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_RETRIES_MS", 5)
    brokers = FakeBrokers(
        {
            ApiKey.LIST_OFFSETS: ends(5, 9),
            ApiKey.DESCRIBE_PRODUCERS: producing((7, 5)),
            ApiKey.LIST_TRANSACTIONS: listed(),
        }
    )
    brokers.topics["__transaction_state"] = {0: 1, 1: -1}
    with pytest.raises(ClientError, match="partition 1 of __transaction_state has no leader"):
        explain(cluster(brokers), "orders")


def test_a_partition_without_a_leader_is_reported_beside_the_others(
    cluster: Callable[[FakeBrokers], str],
) -> None:
    brokers = FakeBrokers({ApiKey.LIST_OFFSETS: ends(9, 9)})
    brokers.topics["orders"] = {0: 1, 1: -1}
    led, leaderless = explain(cluster(brokers), "orders")
    assert not led.stands_still
    assert (leaderless.ends.last_stable, leaderless.waiting, leaderless.stands_still) == (None, 0, True)


def test_find_hanging_leaves_out_young_transactions_and_those_that_a_coordinator_ends(
    cluster: Callable[[FakeBrokers], str],
) -> None:
    brokers = FakeBrokers(
        {
            ApiKey.DESCRIBE_PRODUCERS: producing((7, 5), (8, 6), last_timestamp=1_000),
            ApiKey.LIST_TRANSACTIONS: listed(("copier", 7)),
            ApiKey.DESCRIBE_TRANSACTIONS: described("Ongoing", 0),
        }
    )
    asked: dict[str, Any] = {"topic": "orders", "partition": None, "node_id": None, "older_than_ms": 500}
    report = find_hanging(cluster(brokers), **asked, now_ms=1_501)
    assert [each.open.producer_id for each in report.hanging] == [8]
    assert [each.open.producer_id for each in report.known] == [7]
    young = find_hanging(cluster(brokers), **asked, now_ms=1_500)
    assert (young.hanging, young.known) == ((), ())


def test_many_partitions_are_asked_for_in_parts(
    cluster: Callable[[FakeBrokers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_PARTITIONS_PER_REQUEST", 2)
    brokers = FakeBrokers({ApiKey.DESCRIBE_PRODUCERS: lambda fields: values(topics=[])})
    brokers.topics["orders"] = dict.fromkeys(range(3), 1)
    find_hanging(cluster(brokers), topic=None, partition=None, node_id=1, older_than_ms=0, now_ms=0)
    indexes = [[(t["name"], t["partition_indexes"]) for t in fields["topics"]] for _, fields in brokers.asked]
    assert indexes == [[("orders", [0, 1])], [("orders", [2]), ("__transaction_state", [0])]]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"topic": None, "partition": None, "node_id": 9}, "node 9 is not in the cluster now: it has 1"),
        ({"topic": "orders", "partition": 5, "node_id": 1}, "node 1 has no replica of partition 5 of topic"),
        ({"topic": "orders", "partition": 5, "node_id": None}, "topic 'orders' has no partition 5: it has 1"),
    ],
)
def test_a_search_where_nothing_is_does_not_say_that_nothing_hangs(
    cluster: Callable[[FakeBrokers], str], asked: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ClientError, match=complaint):
        find_hanging(cluster(FakeBrokers()), **asked, older_than_ms=0, now_ms=0)


def test_partitions_without_a_leader_are_named_as_not_searched(cluster: Callable[[FakeBrokers], str]) -> None:
    brokers = FakeBrokers({ApiKey.DESCRIBE_PRODUCERS: producing()})
    brokers.topics["orders"] = {0: 1, 1: -1}
    report = find_hanging(
        cluster(brokers), topic="orders", partition=None, node_id=None, older_than_ms=0, now_ms=0
    )
    assert report.leaderless == (TopicPartition("orders", 1),)
