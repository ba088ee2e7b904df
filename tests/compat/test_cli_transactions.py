# SPDX-License-Identifier: Apache-2.0
"""`headrace transactions` on a Headrace node, and where transactions are not served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.connection import Connection
from headrace.wire.api_key import ApiKey
from tests.compat.cli_runner import Cli

PLACE = ("--topic", "orders", "--partition", "0")
PRODUCER = ("--producer-id", "1", "--producer-epoch", "0", "--coordinator-epoch", "0")
APIS = frozenset(
    {ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS}
)
TIMEOUT_S = 30


@pytest.fixture
def without_transactions(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """As a release that does not serve them answers."""
    learn = Connection.learn_versions

    async def learn_less(connection: Any, *arguments: Any, **options: Any) -> None:
        await learn(connection, *arguments, **options)
        connection.versions = {key: each for key, each in connection.versions.items() if key not in APIS}

    monkeypatch.setattr(Connection, "learn_versions", learn_less)
    return bootstrap


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("describe", "--id", "copier"),
        ("explain", "orders"),
        ("find-hanging", "--topic", "orders"),
        ("find-hanging", "--broker", "1"),
        ("abort", *PLACE, "--start-offset", "0"),
        ("abort", *PLACE, *PRODUCER),
        ("terminate", "--id", "copier", "--yes"),
        ("fence", "--id", "copier", "--id", "other", "--yes"),
    ],
    ids=" ".join,
)
def test_a_broker_without_transactions_is_named_in_one_line(
    without_transactions: str, arguments: tuple[str, ...]
) -> None:
    ended = Cli(without_transactions)("transactions", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"headrace: the broker at {without_transactions} serves no transactions; on Headrace they are served "
        "once every node runs a release that has them, and headrace.transaction.version is not 0\n"
    )


def test_it_is_named_as_json_too(without_transactions: str) -> None:
    ended = Cli(without_transactions)("transactions", "list", "--json")
    assert '"code": "UNSUPPORTED_VERSION"' in ended.err


@pytest.fixture
def opened(bootstrap: str, topic: str) -> Callable[[], Producer]:
    """A producer whose transaction is open in partition 0 of the topic; its id is the topic's name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)

    def open_one() -> Producer:
        settings = {"transactional.id": topic, "transaction.timeout.ms": 60_000}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        return producer

    return open_one


def test_an_open_transaction_is_listed_described_explained_and_terminated(
    bootstrap: str, topic: str, opened: Callable[[], Producer]
) -> None:
    cli, producer = Cli(bootstrap), opened()
    (listed,) = cli("transactions", "list", "--id", topic, "--json").ok().document
    assert (listed["transactional_id"], listed["state"]) == (topic, "Ongoing")
    described = cli("transactions", "describe", "--id", topic, "--json").ok().document
    assert described["partitions"] == [[topic, 0]]
    assert described["timeout_ms"] == 60_000
    held, free = cli("transactions", "explain", topic, "--json").ok().document["partitions"]
    assert (held["waiting"], free["waiting"]) == (1, 0)
    assert held["next"] == f"headrace transactions terminate --id {topic}"
    assert cli("transactions", "find-hanging", "--topic", topic, "--json").ok().document == []
    ended = cli("transactions", "terminate", "--id", topic, "--yes").ok()
    assert ended.out == f"Aborted the transaction of '{topic}' in 1 partition.\n"
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    after = cli("transactions", "explain", topic, "--json").ok().document["partitions"]
    assert [each["waiting"] for each in after] == [0, 0]


def test_a_producer_is_fenced(bootstrap: str, topic: str, opened: Callable[[], Producer]) -> None:
    producer = opened()
    fenced = Cli(bootstrap)("transactions", "fence", "--id", topic, "--yes", "--json").ok().document["fenced"]
    assert [each["transactional_id"] for each in fenced] == [topic]
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
