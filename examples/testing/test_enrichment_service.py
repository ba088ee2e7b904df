# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from enrichment_service import EnrichmentService

from headrace.testing import Broker

QUICK = {"heartbeat_interval_ms": 100, "retry_backoff_ms": 20, "retry_pause_s": 0.01}


async def find_country(user: str) -> str:
    return {"ann": "AT", "bob": "BR"}[user]


async def prepare(broker: Broker, *users: str, partitions: int = 1) -> None:
    """The topics, and a click of each user."""
    for topic in ("clicks", "enriched", "clicks.dead"):
        broker.create_topic(topic, partitions=partitions)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for number, user in enumerate(users):
            click = json.dumps({"user": user, "number": number}).encode()
            await producer.send_and_wait("clicks", click, partition=number % partitions)


@asynccontextmanager
async def running(broker: Broker, find: Any = find_country) -> AsyncIterator[EnrichmentService]:
    service = EnrichmentService(broker.bootstrap, find, **QUICK)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        service.stop()
        await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it is the broker that changes
            await asyncio.sleep(0.01)


def enriched(broker: Broker) -> list[tuple[int, str]]:
    clicks = [json.loads(record.value or b"") for record in broker.records("enriched")]
    return sorted((click["number"], click["country"]) for click in clicks)


def committed(broker: Broker) -> int:
    return sum(broker.offsets("enrichment").values())


def test_clicks_are_enriched_and_committed(kafka: Broker) -> None:
    async def scenario() -> None:
        await prepare(kafka, "ann", "bob")
        async with running(kafka):
            await until(lambda: committed(kafka) == 2)

    asyncio.run(scenario())
    assert enriched(kafka) == [(0, "AT"), (1, "BR")]


def test_what_cannot_be_enriched_becomes_a_dead_letter(kafka: Broker) -> None:
    async def scenario() -> None:
        await prepare(kafka, "eve", "bob")
        async with running(kafka):
            await until(lambda: committed(kafka) == 2)

    asyncio.run(scenario())
    assert enriched(kafka) == [(1, "BR")]
    (letter,) = kafka.records("clicks.dead")
    assert letter.headers == (("error", b"KeyError('eve')"),)


def test_a_stop_finishes_the_click_and_leaves_the_rest(kafka: Broker) -> None:
    async def scenario() -> None:
        await prepare(kafka, "ann", "bob")

        async def stop_meanwhile(user: str) -> str:
            service.stop()
            return await find_country(user)

        async with running(kafka, stop_meanwhile) as service:
            await until(lambda: committed(kafka) == 1)

    asyncio.run(scenario())
    assert enriched(kafka) == [(0, "AT")]
    assert len(kafka.requests(api="LeaveGroup", client="enrichment")) == 1


def test_a_result_that_is_refused_is_written_by_the_next_attempt(kafka: Broker) -> None:
    async def scenario() -> None:
        await prepare(kafka, "ann", "bob")
        kafka.fail(api="Produce", client="enrichment", error="INVALID_RECORD")
        async with running(kafka):
            await until(lambda: committed(kafka) == 2)

    asyncio.run(scenario())
    assert enriched(kafka) == [(0, "AT"), (1, "BR")]


def test_a_lost_reply_makes_no_duplicate(kafka: Broker) -> None:
    async def scenario() -> None:
        await prepare(kafka, "ann")
        kafka.fail(api="Produce", client="enrichment", disconnect="after")
        async with running(kafka):
            await until(lambda: committed(kafka) == 1)

    asyncio.run(scenario())
    assert enriched(kafka) == [(0, "AT")]


def test_errors_that_pass_are_retried(kafka: Broker) -> None:
    passing = [
        ("Produce", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ]

    async def scenario() -> None:
        await prepare(kafka, "ann")
        for api, error in passing:
            kafka.fail(api=api, client="enrichment", error=error)
        async with running(kafka):
            await until(lambda: committed(kafka) == 1)

    asyncio.run(scenario())
    assert enriched(kafka) == [(0, "AT")]


def test_an_expelled_member_joins_again_and_nothing_is_lost(kafka: Broker) -> None:
    asked: list[str] = []

    async def scenario() -> None:
        await prepare(kafka, "ann")

        async def find_slowly(user: str) -> str:
            asked.append(user)
            if len(asked) == 1:
                await asyncio.to_thread(kafka.advance, "1m", expire="enrichment")
            return await find_country(user)

        async with running(kafka, find_slowly):
            await until(lambda: committed(kafka) == 1)

    asyncio.run(scenario())
    assert set(enriched(kafka)) == {(0, "AT")}, "at least once"
    assert len(kafka.requests(api="SyncGroup", client="enrichment")) > 1


def test_a_second_process_takes_its_share_and_nothing_is_lost(kafka: Broker) -> None:
    asked: dict[str, list[str]] = {"first": [], "second": []}

    def finder(name: str) -> Any:
        async def find(user: str) -> str:
            asked[name].append(user)
            return await find_country(user)

        return find

    async def scenario() -> int:
        await prepare(kafka, "ann", "bob", partitions=2)
        sent = 2
        async with (
            running(kafka, finder("first")),
            AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer,
        ):
            await until(lambda: committed(kafka) == 2)
            async with running(kafka, finder("second")), asyncio.timeout(20):
                while not asked["second"]:
                    click = json.dumps({"user": "ann", "number": sent}).encode()
                    await producer.send_and_wait("clicks", click, partition=sent % 2)
                    sent += 1
                await until(lambda: committed(kafka) == sent)
        return sent

    sent = asyncio.run(scenario())
    assert {number for number, _ in enriched(kafka)} == set(range(sent))


def test_a_broker_that_crashes_is_waited_for(kafka: Broker) -> None:
    async def scenario() -> None:
        await prepare(kafka, "ann")
        async with running(kafka):
            await until(lambda: committed(kafka) == 1)
            kafka.crash()
            kafka.restart()
            async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
                await producer.send_and_wait("clicks", json.dumps({"user": "bob", "number": 1}).encode())
            await until(lambda: committed(kafka) == 2)

    asyncio.run(scenario())
    assert enriched(kafka) == [(0, "AT"), (1, "BR")]
