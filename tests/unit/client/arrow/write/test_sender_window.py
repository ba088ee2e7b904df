# SPDX-License-Identifier: Apache-2.0
"""How many batches of a partition are in flight, over a connection that answers when it is told to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from headrace.client.arrow.write.sender import IN_FLIGHT, Outgoing, Sender
from headrace.client.network_client import TopicView
from headrace.wire.error_codes import ErrorCode
from tests.harness.waiting import until


class Leader:
    """Stands for a NetworkClient and for the connection to its one node."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Any]] = []
        self.sent = 0

    async def find(self, name: str) -> TopicView:
        return TopicView(name=name, topic_id=None, leaders={0: 1})

    topic = find

    async def connection(self, node_id: int) -> Leader:
        return self

    def version_for(self, api_key: int) -> int:
        return 12

    def send_parts(self, api_key: int, version: int, make: Any) -> asyncio.Future[Any]:
        self.sent += 1
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def answer(self, code: ErrorCode) -> None:
        entry = SimpleNamespace(error_code=code, base_offset=0, record_errors=(), error_message=None)
        topic = SimpleNamespace(partition_responses=[entry])
        self.waiting.pop(0).set_result(SimpleNamespace(responses=[topic]))


def test_the_first_batch_goes_alone_until_it_is_taken() -> None:
    async def main() -> None:
        leader: Any = Leader()
        sender = Sender(leader, "t", acks=-1, budget=1 << 20, timeout_ms=10_000)
        await sender.open(idempotent=False)
        for number in range(10):
            await sender.put(Outgoing(partition=0, batch=bytearray(b"batch"), rows=[number]))
        await until(lambda: leader.sent == 1)
        leader.answer(ErrorCode.not_leader_or_follower)
        await until(lambda: leader.sent == 2)
        await asyncio.sleep(0.02)
        assert len(leader.waiting) == 1, "the others wait until the first is in the log"
        leader.answer(ErrorCode.none)
        await until(lambda: len(leader.waiting) == IN_FLIGHT)
        for _ in range(9):
            await until(lambda: leader.waiting)
            leader.answer(ErrorCode.none)
        assert (await sender.finish()).records == 10
        await sender.close()

    asyncio.run(main())
