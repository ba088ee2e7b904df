# SPDX-License-Identifier: Apache-2.0
"""Exactly once or at least once: decided once for a batch, when Spark pickles the writer for its tasks."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.arrow.io_thread import IoThread
from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import read_request_header
from headrace.wire.messages import encode_reply
from pyspark_headrace.client_pool import close_client
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.delivery import Delivery
from pyspark_headrace.writing.internal_topics import SINKS
from tests.harness.client.fake_broker import SERVED

END_TXN = {"api_key": int(ApiKey.END_TXN), "min_version": 0, "max_version": 5}
UNKNOWN_TOPIC = 3


class VersionsBroker:
    """Answers ApiVersions and Metadata. `answers`: with transactions or not, the last one for ever."""

    def __init__(self) -> None:
        self.answers = [False]
        self.has_ledger = False
        self.asked: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = size.to_bytes(4, "big") + await reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            header = read_request_header(memoryview(frame), 4, len(frame))
            self.asked.append(header.api_key)
            fields = self._versions() if header.api_key == ApiKey.API_VERSIONS else self._metadata()
            writer.write(encode_reply(header.api_key, header.api_version, header.correlation_id, fields))

    def _versions(self) -> dict[str, Any]:
        serves = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"api_keys": [*SERVED, END_TXN] if serves else SERVED}

    def _metadata(self) -> dict[str, Any]:
        code = 0 if self.has_ledger else UNKNOWN_TOPIC
        topic = {"error_code": code, "name": SINKS.name, "is_internal": False, "partitions": []}
        return {"cluster_id": "abc", "brokers": [], "topics": [topic]}


@pytest.fixture
def broker() -> VersionsBroker:
    return VersionsBroker()


@pytest.fixture
def bootstrap(broker: VersionsBroker) -> Iterator[str]:
    async def nothing_to_close() -> None:
        pass

    io = IoThread("versions-broker", nothing_to_close)
    server = io.call(asyncio.start_server(broker.serve, "127.0.0.1", 0))
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield address
    close_client(address)
    io.call(_closed(server))
    io.close()


async def _closed(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()


def delivery(bootstrap: str, exactly_once: Any = None, *, timeout_ms: int = 10_000) -> Delivery:
    settings = WriteSettings(
        bootstrap=bootstrap,
        topic="out",
        compression="none",
        timeout_ms=timeout_ms,
        exactly_once=exactly_once,
    )
    return Delivery(settings, awaits_broker=True)


def in_tasks(planned: Delivery, tasks: int = 2) -> list[bool]:
    """What the tasks of a batch do: each gets the same bytes."""
    pickled = pickle.dumps(planned)
    return [pickle.loads(pickled).is_exactly_once() for _ in range(tasks)]


def test_a_broker_with_transactions_is_written_to_exactly_once(
    broker: VersionsBroker, bootstrap: str
) -> None:
    broker.answers = [True]
    for asked in (None, "batch"):
        assert in_tasks(delivery(bootstrap, asked)) == [True, True]


def test_the_tasks_of_a_batch_do_not_decide_again(broker: VersionsBroker, bootstrap: str) -> None:
    """The cluster is upgraded between them: the next batch is the first that is written exactly once."""
    pickled = pickle.dumps(delivery(bootstrap))
    asked = list(broker.asked)
    broker.answers = [True]
    assert [pickle.loads(pickled).is_exactly_once() for _ in range(2)] == [False, False]
    assert broker.asked == asked
    assert in_tasks(delivery(bootstrap)) == [True, True]


def test_a_connection_older_than_the_upgrade_is_asked_again(broker: VersionsBroker, bootstrap: str) -> None:
    assert in_tasks(delivery(bootstrap)) == [False, False]
    broker.answers = [True]
    before = broker.asked.count(ApiKey.API_VERSIONS)
    assert in_tasks(delivery(bootstrap)) == [True, True]
    assert broker.asked.count(ApiKey.API_VERSIONS) == before + 1, "on the same connection"


def test_off_asks_no_broker() -> None:
    assert in_tasks(delivery("127.0.0.1:1", "off")) == [False, False]


def test_exactly_once_that_is_asked_for_is_refused_without_transactions(
    broker: VersionsBroker, bootstrap: str
) -> None:
    with pytest.raises(ClientError, match=f"needs transactions, and the broker at {bootstrap} has none"):
        in_tasks(delivery(bootstrap, "batch"))


def test_exactly_once_does_not_become_at_least_once_unnoticed(broker: VersionsBroker, bootstrap: str) -> None:
    """A node of an earlier version joined a cluster that exactly-once sinks have written to."""
    broker.has_ledger = True
    for asked in (None, "batch"):
        with pytest.raises(ClientError, match=r"serves no transactions now; .*set exactlyOnce=off") as raised:
            in_tasks(delivery(bootstrap, asked, timeout_ms=100))
        assert raised.value.code == "UNSUPPORTED_VERSION"
    assert in_tasks(delivery(bootstrap, "off")) == [False, False]


def test_a_broker_that_has_not_heard_of_the_upgrade_is_waited_for(
    broker: VersionsBroker, bootstrap: str
) -> None:
    broker.has_ledger = True
    broker.answers = [False, False, False, True]
    assert in_tasks(delivery(bootstrap)) == [True, True]


def test_a_broker_that_is_away_is_named_in_the_tasks() -> None:
    with pytest.raises(ClientError, match=r"no Kafka broker can be reached: .* 127\.0\.0\.1:1"):
        in_tasks(delivery("127.0.0.1:1", timeout_ms=0))
