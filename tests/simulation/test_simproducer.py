# SPDX-License-Identifier: Apache-2.0
"""The simulated idempotent producer does with answers what real ones do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.testing.simworld import Simulation
from headrace.wire.batch import read_header
from headrace.wire.error_codes import ErrorCode
from headrace.world import World
from tests.harness.history import History
from tests.harness.simulation.clients import BrokenPromise, SimConnection, Target
from tests.harness.simulation.producer import ProducerKind, SimProducer

IN_FLIGHT = 3


class Broker(SimConnection):
    """Answers one produce request after the other with these codes, then that all is well."""

    def __init__(self, codes: Sequence[ErrorCode]) -> None:
        self.codes = list(codes)
        self.sequences: list[int] = []
        self.stop = asyncio.Event()

    async def call(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(error_code=ErrorCode.none, producer_id=7)

    def send(self, api_key: int, fields: Mapping[str, Any], **_: Any) -> asyncio.Future[Any]:
        header = read_header(memoryview(fields["topic_data"][0]["partition_data"][0]["records"]))
        self.sequences.append(header.base_sequence)
        code = self.codes.pop(0) if self.codes else ErrorCode.none
        if not self.codes:
            self.stop.set()
        result = SimpleNamespace(error_code=code, base_offset=header.base_sequence if not code else -1)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        reply.set_result(SimpleNamespace(responses=[SimpleNamespace(partition_responses=[result])]))
        return reply

    def abort(self) -> None:
        """The next connection is this one again."""


def run(*codes: ErrorCode) -> tuple[History, list[int]]:
    history = History()

    async def scenario(simulation: Simulation) -> list[int]:
        broker = Broker(codes)

        class ScriptedTarget(Target):
            async def connect(self, world: World, name: str) -> SimConnection:
                return broker

        producer = SimProducer(
            simulation.start_process("client"),
            ScriptedTarget(host="", port=0, topic="topic", partitions=1),
            history,
            Random(1),
            name="p",
            kind=ProducerKind(acks=-1, idempotent=True, depth=IN_FLIGHT),
            durable=True,
        )
        running = asyncio.ensure_future(producer.run())
        await asyncio.wait(
            {running, asyncio.ensure_future(broker.stop.wait())}, return_when="FIRST_COMPLETED"
        )
        producer.stopping = True
        await running
        return broker.sequences

    with Simulation(1) as simulation:
        return history, simulation.run(scenario(simulation))


def test_a_later_acknowledgement_covers_earlier_batches() -> None:
    """Else it would come again when the broker remembers only the five batches after it."""
    history, sequences = run(ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas, ErrorCode.none)
    assert {send.outcome for send in history.sends} == {"ok"}
    assert sequences == sorted(set(sequences))
    assert [send.offset is None for send in history.sends[: sequences[2]]] == [True] * sequences[2]


def test_refused_batches_are_resent_in_order() -> None:
    refused = ErrorCode.not_enough_replicas, *[ErrorCode.out_of_order_sequence_number] * (IN_FLIGHT - 1)
    history, sequences = run(*refused)
    assert sequences[IN_FLIGHT : 2 * IN_FLIGHT] == sequences[:IN_FLIGHT]
    assert all(send.offset is not None for send in history.sends)


def test_the_next_batch_due_is_never_out_of_order() -> None:
    with pytest.raises(BrokenPromise, match="the next due"):
        run(ErrorCode.none, ErrorCode.out_of_order_sequence_number)
