# SPDX-License-Identifier: Apache-2.0
"""The client connection against a broker made of bytes: no socket, no sleep."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.connection import Connection, ConnectionLost, RequestTimedOut
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_reply
from tests.harness.client.fake_broker import METADATA, FakeBroker

NO_TOPICS = {"topics": [], "allow_auto_topic_creation": False}


def run(scenario: Callable[[FakeBroker, Connection], Any], broker: FakeBroker | None = None) -> None:
    async def main() -> None:
        fake = broker or FakeBroker()
        connection = await Connection.open("host", 9092, connect=fake.connect, timeout_ms=2000)
        try:
            await scenario(fake, connection)
        finally:
            await connection.close()

    asyncio.run(main())


def test_the_highest_common_version_is_used() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        assert connection.version_for(METADATA) == 12
        future = connection.send(METADATA, NO_TOPICS)
        assert broker.requests == [(METADATA, 12, 1)]
        broker.reply(METADATA, 12, 1, {"cluster_id": "abc", "brokers": [], "topics": []})
        assert (await future).cluster_id == "abc"

    run(scenario)


@pytest.mark.parametrize("highest", [0, 1, 3])
def test_an_older_broker_is_asked_again_in_its_own_version(highest: int) -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        assert connection.versions[METADATA] == (0, 12)

    run(scenario, FakeBroker(highest))


def test_an_api_without_a_common_version_is_refused_with_a_message() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        with pytest.raises(ClientError, match="does not serve produce in a version that Headrace speaks"):
            connection.version_for(0)
        with pytest.raises(ClientError, match="does not serve describe_log_dirs"):
            await connection.call(35, {"topics": None})

    run(scenario)


def test_requests_are_pipelined_and_replies_matched_in_order_byte_by_byte() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        calls = [asyncio.ensure_future(connection.call(METADATA, NO_TOPICS)) for _ in range(3)]
        await asyncio.sleep(0)
        assert [correlation_id for _, _, correlation_id in broker.requests] == [1, 2, 3]
        frames = b"".join(
            encode_reply(METADATA, 12, number, {"cluster_id": f"c{number}", "brokers": [], "topics": []})
            for number in (1, 2, 3)
        )
        for byte in frames:
            broker.send(bytes([byte]))
        assert [reply.cluster_id for reply in await asyncio.gather(*calls)] == ["c1", "c2", "c3"]

    run(scenario)


def test_a_late_reply_to_a_call_that_timed_out_is_dropped() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        with pytest.raises(RequestTimedOut, match="no reply to metadata from host:9092 within 1 ms"):
            await connection.call(METADATA, NO_TOPICS, timeout_ms=1)
        later = asyncio.ensure_future(connection.call(METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        for number in (1, 2):
            broker.reply(METADATA, 12, number, {"cluster_id": f"c{number}", "brokers": [], "topics": []})
        assert (await later).cluster_id == "c2"

    run(scenario)


def test_every_waiting_call_learns_that_the_connection_ended() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        calls = [asyncio.ensure_future(connection.call(METADATA, NO_TOPICS)) for _ in range(2)]
        await asyncio.sleep(0)
        broker.transport.abort()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)
            assert "host:9092 closed the connection" in str(outcome)
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            connection.send(METADATA, NO_TOPICS)

    run(scenario)


@pytest.mark.parametrize("answered_before", [False, True])
def test_a_login_is_asked_for_where_the_connection_ends_before_its_first_reply(answered_before: bool) -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        call = asyncio.ensure_future(connection.call(METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        if answered_before:
            broker.reply(METADATA, 12, 1, {"cluster_id": "c", "brokers": [], "topics": []})
            await call
            call = asyncio.ensure_future(connection.call(METADATA, NO_TOPICS))
            await asyncio.sleep(0)
        broker.transport.abort()
        with pytest.raises(ConnectionLost) as caught:
            await call
        assert ("asks for a login" in str(caught.value)) is not answered_before

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00",
    ],
    ids=["http", "negative length", "too short", "wrong correlation id"],
)
def test_what_is_not_a_reply_ends_the_connection_with_a_clear_error(garbage: bytes) -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        call = asyncio.ensure_future(connection.call(METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        broker.send(garbage)
        with pytest.raises(ConnectionLost, match="not a Kafka reply"):
            await call
        assert broker.transport.closed

    run(scenario)


def test_an_unexpected_reply_closes_the_connection() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        broker.reply(METADATA, 12, 9, {"brokers": [], "topics": []})
        await asyncio.sleep(0.001)
        assert not connection.is_open

    run(scenario)


def test_opening_times_out_without_an_answer() -> None:
    class Mute(FakeBroker):
        def take(self, frame: bytes) -> None: ...

    async def main() -> None:
        broker = Mute()
        with pytest.raises(ClientError, match="host:9092 within 5 ms"):
            await Connection.open("host", 9092, connect=broker.connect, timeout_ms=5)
        assert broker.transport.closed

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            r"the name of the host cannot be resolved \(Name or service not known\)",
        ),
    ],
    ids=["refused", "unknown name"],
)
def test_a_failed_connection_names_the_reason(error: OSError, reason: str) -> None:
    async def fail(*_: Any) -> tuple[Any, Any]:
        raise error

    async def main() -> None:
        with pytest.raises(ConnectionLost, match=f"cannot connect to host:9092: {reason}"):
            await Connection.open("host", 9092, connect=fail)

    asyncio.run(main())


def test_authentication_runs_before_the_connection_is_handed_out() -> None:
    seen: list[bool] = []

    async def authenticate(connection: Connection) -> None:
        seen.append(bool(connection.versions))

    async def refuse(connection: Connection) -> None:
        raise ClientError("wrong password", code=ErrorCode.sasl_authentication_failed.name)

    async def main() -> None:
        broker = FakeBroker()
        connection = await Connection.open("h", 1, connect=broker.connect, authenticate=authenticate)
        await connection.close()
        broker = FakeBroker()
        with pytest.raises(ClientError, match="wrong password"):
            await Connection.open("h", 1, connect=broker.connect, authenticate=refuse)
        assert broker.transport.closed

    asyncio.run(main())
    assert seen == [True]


def test_finalized_features_are_read() -> None:
    broker = FakeBroker()
    broker.features = [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}]

    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        assert connection.features == {"transaction.version": 2}

    run(scenario, broker)


def test_a_request_without_a_reply_does_not_shift_the_others() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        connection.send_unanswered(lambda correlation_id, _: [bare_request(0, 9, correlation_id)])
        call = asyncio.ensure_future(connection.call(METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        assert [number for _, _, number in broker.requests] == [1, 2]
        broker.reply(METADATA, 12, 2, {"cluster_id": "mine", "brokers": [], "topics": []})
        assert (await call).cluster_id == "mine"

    run(scenario)


def bare_request(api_key: int, version: int, correlation_id: int) -> bytes:
    return struct.pack(">ihhihb", 11, api_key, version, correlation_id, -1, 0)


def test_a_retired_connection_still_gives_the_replies_that_it_owes() -> None:
    async def scenario(broker: FakeBroker, connection: Connection) -> None:
        call = asyncio.ensure_future(connection.call(METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        connection.retire_after(0)
        await asyncio.sleep(0.001)
        assert not connection.is_open
        assert not broker.transport.closed
        broker.reply(METADATA, 12, 1, {"cluster_id": "owed", "brokers": [], "topics": []})
        assert (await call).cluster_id == "owed"
        assert broker.transport.closed

    run(scenario)
