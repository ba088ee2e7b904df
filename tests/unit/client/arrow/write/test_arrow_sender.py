# SPDX-License-Identifier: Apache-2.0
"""The sender keeps its window full, and after a lost connection sends what was not acknowledged, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.client.arrow.write.sender import IN_FLIGHT, Outgoing, Sender
from headrace.client.connection import ConnectionLost
from headrace.client.network_client import NetworkClient, TopicView


class FakeConnection:
    """Takes requests; the test answers them, or loses the connection."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self._replies: list[asyncio.Future[Any]] = []
        self._lost: ConnectionLost | None = None

    def version_for(self, api_key: int) -> int:
        return 9

    def send_parts(
        self, api_key: int, version: int, make: Callable[[int, str], Sequence[bytes]]
    ) -> asyncio.Future[Any]:
        if self._lost is not None:
            raise self._lost
        self.sent.append(bytes(make(0, "test")[1]))
        self._replies.append(asyncio.get_running_loop().create_future())
        return self._replies[-1]

    def acknowledge(self, place: int) -> None:
        entry = SimpleNamespace(error_code=0, base_offset=place)
        self._replies[place].set_result(
            SimpleNamespace(responses=[SimpleNamespace(partition_responses=[entry])])
        )

    def lose(self) -> None:
        self._lost = ConnectionLost("it is gone")
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(self._lost)

    def abort(self) -> None:
        self.lose()


class FakeNetworkClient:
    def __init__(self) -> None:
        self.connections = [FakeConnection()]

    async def find(self, name: str) -> TopicView:
        return TopicView(name=name, topic_id=None, leaders={0: 1})

    topic = find

    async def connection(self, node_id: int, lane: str = "") -> FakeConnection:
        return self.connections[-1]


def batch(number: int) -> Outgoing:
    return Outgoing(partition=0, batch=bytearray(b"batch %d" % number), rows=[number])


def names(*numbers: int) -> list[bytes]:
    return [b"batch %d" % number for number in numbers]


def with_sender(scenario: Callable[[Sender, FakeNetworkClient], Awaitable[None]]) -> None:
    async def run() -> None:
        client = FakeNetworkClient()
        sender = Sender(cast("NetworkClient", client), "t", acks=-1, budget=1 << 20, timeout_ms=5_000)
        await sender.open(idempotent=False)
        await scenario(sender, client)
        await sender.close()

    asyncio.run(run())


async def a_moment() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_batch_that_comes_while_a_reply_is_waited_for_is_sent_at_once() -> None:
    async def scenario(sender: Sender, client: FakeNetworkClient) -> None:
        (connection,) = client.connections
        await sender.put(batch(0))
        await a_moment()
        connection.acknowledge(0)  # the first of a partition goes alone
        await a_moment()
        await sender.put(batch(1))
        await a_moment()
        for number in range(2, IN_FLIGHT + 3):
            await sender.put(batch(number))
        assert connection.sent == names(*range(IN_FLIGHT + 1))  # and no more than a leader remembers
        connection.acknowledge(1)
        await a_moment()
        assert connection.sent == names(*range(IN_FLIGHT + 2))
        for place in range(2, IN_FLIGHT + 2):
            connection.acknowledge(place)
            await a_moment()
        connection.acknowledge(IN_FLIGHT + 2)
        assert (await sender.finish()).records == IN_FLIGHT + 3

    with_sender(scenario)


def test_what_was_not_acknowledged_when_the_connection_was_lost_is_sent_again_in_order() -> None:
    async def scenario(sender: Sender, client: FakeNetworkClient) -> None:
        (lost,) = client.connections
        for number in range(3):
            await sender.put(batch(number))
        await a_moment()
        lost.acknowledge(0)
        await a_moment()
        client.connections.append(FakeConnection())
        lost.lose()
        await sender.put(batch(3))  # before anybody has heard of the loss
        await sender.put(batch(4))
        found = client.connections[-1]
        async with asyncio.timeout(5):
            while len(found.sent) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found.sent == names(1, 2, 3, 4)
        for place in range(4):
            found.acknowledge(place)
        assert (await sender.finish()).records == 5

    with_sender(scenario)


def test_a_leader_that_hangs_is_given_up_also_when_another_one_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers no more and keeps its connection open; meanwhile another partition found the new leader."""
    monkeypatch.setattr("headrace.client.arrow.write.sender._REPLY_GRACE_MS", 0)

    async def run() -> None:
        client = FakeNetworkClient()
        (hung,) = client.connections
        sender = Sender(cast("NetworkClient", client), "t", acks=-1, budget=1 << 20, timeout_ms=200)
        await sender.open(idempotent=False)
        await sender.put(batch(0))
        await a_moment()
        hung.acknowledge(0)
        await a_moment()
        for number in (1, 2):
            await sender.put(batch(number))
        await a_moment()
        new = FakeConnection()
        client.connections.append(new)
        hung.acknowledge(1)  # the last that it says
        for _ in range(500):
            if new.sent:
                break
            await asyncio.sleep(0.01)
        assert new.sent == names(2)
        new.acknowledge(0)
        assert (await asyncio.wait_for(sender.finish(), 5)).records == 3
        await sender.close()

    asyncio.run(run())
