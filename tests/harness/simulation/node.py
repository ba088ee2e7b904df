# SPDX-License-Identifier: Apache-2.0
"""A node of the real broker code in a simulated process, and a supervisor that starts it after each end.

Knows how a node is started, nothing of what it serves. Read next: testing/simworld.py, faults.py,
one_node.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from headrace.broker.node import Broker, start_node
from headrace.config import NodeConfig
from headrace.coordination.store import Store
from headrace.errors import HeadraceError
from headrace.testing.simloop import Process
from headrace.testing.simworld import Machine, Simulation, SimWorld


class SimNode:
    """`broker` is there while the node serves; None while it is down or starting.

    `connect_store` opens the coordination store for each run of the node.
    """

    def __init__(
        self,
        simulation: Simulation,
        config: NodeConfig,
        connect_store: Callable[[SimWorld], Store],
        *,
        machine: str = "node",
    ) -> None:
        self.broker: Broker | None = None
        self.starts = 0
        self.refusals: list[str] = []
        """Why starts failed; under disk faults that is as it should be."""
        self.failures: list[str] = []
        """Why the node ended itself; only a broken disk is a reason (R24)."""
        self._simulation = simulation
        self._config = config
        self.on_death: Callable[[Process], None] = _nothing
        self._connect_store = connect_store
        self._machine = machine
        self._random: Random = simulation.random_for(f"supervisor{machine.removeprefix('node')}")
        self._world: SimWorld | None = None
        self._ended: asyncio.Future[None] | None = None
        self._serving = asyncio.Event()
        self._wanted = True

    @property
    def machine(self) -> Machine:
        return self._simulation.machine(self._machine)

    @property
    def world(self) -> SimWorld | None:
        return self._world

    async def supervise(self) -> None:
        """Starts the node whenever it is down, after a short while."""
        while self._wanted:
            await self._run_once()
            await asyncio.sleep(self._random.uniform(0.01, 1.5))

    async def wait_until_serving(self) -> Broker:
        while self.broker is None:
            await self._serving.wait()
        return self.broker

    def kill(self) -> None:
        if self._world is not None:
            self._simulation.kill(self._world)
            self._down()

    def cut_power(self) -> None:
        self._simulation.cut_power(self._machine)
        self._down()

    def replace_disk(self) -> None:
        self._simulation.replace_disk(self._machine)
        self._down()

    def stop_cleanly(self) -> None:
        if self.broker is not None:
            self.broker.stop_wanted.set()

    def remove(self) -> None:
        """Stops it for good."""
        self._wanted = False
        self.stop_cleanly()

    async def _run_once(self) -> None:
        self._world = world = self._simulation.start_process(self._machine)
        self._ended = ended = asyncio.get_running_loop().create_future()
        self.starts += 1
        run = world.tasks.spawn(self._serve(world), name="node")
        await asyncio.wait({run, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():  # it ended by itself: the process exits
            self.kill()
            run.result()

    async def _serve(self, world: SimWorld) -> None:
        try:
            broker = await start_node(world, self._config, self._connect_store(world))
        except HeadraceError as error:
            self.refusals.append(str(error))
            return
        self.broker = broker
        self._serving.set()
        await broker.stop_wanted.wait()
        if broker.failure is not None:
            self.failures.append(str(broker.failure))
        self.broker = None
        self._serving.clear()
        await broker.stop()

    def _down(self) -> None:
        if self._world is not None:
            self.on_death(self._world.process)
        self.broker = None
        self._world = None
        self._serving.clear()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _nothing(_: Process) -> None:
    """Nobody has to be told."""
