# SPDX-License-Identifier: Apache-2.0
"""What leaders propose about in-sync replicas: nothing stays open for an answer that will never come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from headrace.broker.replication.isr_proposals import RETRY_S, IsrProposals
from headrace.machines.replication.leader import IsrProposal
from headrace.testing.simworld import Simulation
from headrace.types import TopicPartition

PROPOSAL = IsrProposal(0, 3, 7, ((0, 10), (1, 11)))


class OneLeader:
    """Stands in for a leading and its machine, which proposes one thing at a time."""

    def __init__(self) -> None:
        self.machine = self
        self.partition = SimpleNamespace(topic_id=UUID(int=1), topic_partition=TopicPartition("t", 0))
        self.is_current = True
        self.in_flight = False

    def propose(self, now_ms: int) -> IsrProposal | None:
        if self.in_flight:
            return None
        self.in_flight = True
        return PROPOSAL

    def unknown(self, proposal: IsrProposal) -> None:
        assert proposal == PROPOSAL
        self.in_flight = False


class StumblingPeers:
    def __init__(self) -> None:
        self.requests = 0

    async def request(self, *_: Any) -> Any:
        self.requests += 1
        if self.requests == 1:
            raise ValueError("not foreseen")
        await asyncio.get_running_loop().create_future()


def test_a_proposal_is_repeated_after_an_unexpected_error() -> None:
    with Simulation(1) as simulation:
        world, peers = simulation.start_process("node"), StumblingPeers()
        cluster: Any = SimpleNamespace(view=SimpleNamespace(controller_id=1), node_epoch=5)

        async def scenario() -> None:
            proposals = IsrProposals(world, peers, cluster, 0, lambda *_: None)  # type: ignore[arg-type]
            proposals.consider(OneLeader())  # type: ignore[arg-type]
            await asyncio.sleep(5 * RETRY_S)
            assert peers.requests == 2

        simulation.run(scenario())
