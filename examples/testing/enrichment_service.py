# SPDX-License-Identifier: Apache-2.0
"""An asyncio service on aiokafka: reads clicks, adds the user's country, writes them on, stops gracefully.

    service = EnrichmentService("127.0.0.1:9092", find_country)
    task = asyncio.create_task(service.run())
    ...
    service.stop()
    await task

A click is committed after its result is stored: at least once. What is done is committed before partitions
move to another process; what cannot be written is read again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

FindCountry = Callable[[str], Awaitable[str]]
_log = logging.getLogger(__name__)


class EnrichmentService:
    def __init__(
        self, bootstrap: str, find_country: FindCountry, *, retry_pause_s: float = 1.0, **settings: Any
    ) -> None:
        self._find_country = find_country
        self._retry_pause_s = retry_pause_s
        self._bootstrap = bootstrap
        self._settings = settings
        self._done: dict[TopicPartition, int] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Has `run` finish the click it is at, commit and leave the group."""
        self._stopping.set()

    async def run(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="enrichment",
            group_id="enrichment",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **self._settings,
        )
        self._consumer.subscribe(["clicks"], listener=_CommitBefore(self))
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, client_id="enrichment", enable_idempotence=True
        )
        async with self._producer, self._consumer:
            while not self._stopping.is_set():
                batches = await self._consumer.getmany(timeout_ms=100, max_records=100)
                for partition, clicks in batches.items():
                    await self._handle(partition, clicks)
                await self.commit()

    async def commit(self) -> None:
        assigned = self._consumer.assignment()
        done = {partition: offset for partition, offset in self._done.items() if partition in assigned}
        self._done.clear()
        if not done:
            return
        try:
            await self._consumer.commit(done)
        except (CommitFailedError, IllegalStateError) as error:  # others get these clicks again
            _log.warning("not committed: %s", error)

    async def _handle(self, partition: TopicPartition, clicks: list[Any]) -> None:
        for click in clicks:
            if self._stopping.is_set():
                return
            try:
                await self._enrich(click.value)
            except KafkaError as error:
                _log.warning("%s at offset %d is read again: %s", partition, click.offset, error)
                if partition in self._consumer.assignment():
                    self._consumer.seek(partition, click.offset)
                await asyncio.sleep(self._retry_pause_s)
                return
            self._done[partition] = click.offset + 1

    async def _enrich(self, value: bytes) -> None:
        try:
            click = json.loads(value)
            click["country"] = await self._find_country(click["user"])
        except (ValueError, KeyError) as error:
            reason = [("error", repr(error).encode())]
            await self._producer.send_and_wait("clicks.dead", value, headers=reason)
        else:
            await self._producer.send_and_wait("enriched", json.dumps(click).encode())


class _CommitBefore(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, service: EnrichmentService) -> None:
        self._service = service

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._service.commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass
