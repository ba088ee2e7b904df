# SPDX-License-Identifier: Apache-2.0
"""Copies partitions of a topic with aiokafka, one transaction in sixteen aborted on purpose.

aiokafka names no member of the group in its commits, so that only a producer of the same transactional id
fences another: each copier has its own partitions. Ends at any error; copier.py starts it again.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.harness.copies.programs.arguments import CopyArguments

_ABORTED = 16


async def main(plan: CopyArguments) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=plan.bootstrap,
        transactional_id=plan.transactional_id,
        transaction_timeout_ms=int(plan.timeout_ms),
    )
    await producer.start()  # before the offsets are asked for: what an earlier one left open is ended now
    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    places = [TopicPartition(plan.source, number) for number in plan.own_partitions]
    consumer.assign(places)
    try:
        while True:
            found = await consumer.getmany(timeout_ms=200, max_records=int(plan.size))
            if found:
                await copy(producer, consumer, plan, found)
    finally:
        await asyncio.wait_for(consumer.stop(), 10)
        await asyncio.wait_for(producer.stop(), 10)


async def copy(
    producer: AIOKafkaProducer,
    consumer: AIOKafkaConsumer,
    plan: CopyArguments,
    found: dict[TopicPartition, list[Any]],
) -> None:
    await producer.begin_transaction()
    for place, records in found.items():
        for record in records:
            await producer.send(plan.target, record.value, record.key, partition=place.partition)
    ends = {place: records[-1].offset + 1 for place, records in found.items()}
    await producer.send_offsets_to_transaction(ends, plan.group)
    if random.randrange(_ABORTED) == 0:
        await producer.abort_transaction()
        for place in consumer.assignment():  # seek_to_committed passes over partitions without a commit
            consumer.seek(place, await consumer.committed(place) or 0)
        return
    await producer.commit_transaction()
    print(f"copied {sum(map(len, found.values()))}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(CopyArguments.given()))
