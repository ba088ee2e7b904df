# SPDX-License-Identifier: Apache-2.0
"""Who is charged: users and their client ids, never nodes; tasks as the request that started them."""

from __future__ import annotations

import asyncio

from headrace.broker.metrics import Metrics
from headrace.broker.quotas.client_throttles import ClientThrottles
from headrace.client_quotas import DEFAULT, QuotaEntity, Quotas
from headrace.machines.quotas.rates import Window
from headrace.principal import node, user
from headrace.types import ClusterView
from tests.harness.broker.fake_clients import Server


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def throttles(clock: Clock, quotas: Quotas) -> ClientThrottles:
    made = ClientThrottles(clock=clock, metrics=Metrics(clock), window=Window(), mutation_window=Window())
    empty = ClusterView(version=0, cluster_id="")
    made.apply_view(empty, ClusterView(version=1, cluster_id="", client_quotas=quotas))
    return made


EVERYONE = QuotaEntity(DEFAULT)
ALL = {"producer_byte_rate": 1.0, "consumer_byte_rate": 1.0, "request_percentage": 0.1}


def test_without_quotas_nothing_is_active_and_address_quotas_do_not_count() -> None:
    quotas = {QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 1.0}}
    assert not throttles(Clock(), {}).active
    assert not throttles(Clock(), quotas).active
    assert throttles(Clock(), {EVERYONE: ALL}).active


def test_nodes_are_exempt() -> None:
    made = throttles(Clock(), {EVERYONE: ALL})
    connection, _ = Server().connect()
    connection.principal = node(2)
    assert made.produced(connection, "n", 1 << 20) == 0
    assert made.fetched(connection, "n", 1 << 20) == (0, False)
    assert made.begin(connection.principal, "n") is None
    connection.principal = user("alice")
    assert made.produced(connection, "n", 1 << 20) > 0


def test_the_time_of_a_task_is_charged_to_the_client_that_started_it() -> None:
    clock = Clock()
    made = throttles(clock, {QuotaEntity("alice"): {"request_percentage": 1.0}})
    connection, transport = Server().connect()
    connection.principal = user("alice")

    async def slow() -> None:
        clock.now += 0.5
        await asyncio.sleep(0)
        clock.now += 0.5

    async def main() -> None:
        before = made.begin(connection.principal, "app")
        task = asyncio.create_task(made.metered(slow()))
        made.end(before)
        await task

    asyncio.run(main())
    assert made.produced(connection, "app", 10) == 1000  # at most one window
    assert not transport.reading
