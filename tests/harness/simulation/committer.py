# SPDX-License-Identifier: Apache-2.0
"""A simulated consumer group of one: commits rising offsets with its coordinator, and reads them back.

What was acknowledged, and what was once read, never falls (R31, R33); nobody else commits for the group.
Read next: routing.py, several_nodes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import World
from tests.harness.groups import wire as group_wire
from tests.harness.simulation.clients import PATIENCE_MS, BrokenPromise, SimConnection, TryAgain, awake
from tests.harness.simulation.routing import Address, open_coordinator


class SimCommitter:
    def __init__(
        self, world: World, addresses: Sequence[Address], random: Random, *, group_id: str, topic: str
    ) -> None:
        self.stopping = False
        self.awake = awake()
        """While cleared, it commits nothing."""
        self.progress = ""
        self.commits = 0
        self._world = world
        self._addresses = addresses
        self._random = random
        self._group_id = group_id
        self._topic = topic
        self._floor = -1
        """The highest offset that was acknowledged or read."""
        self._asked = 0

    async def run(self) -> None:
        """Until told to stop; then once more until the offset is known."""
        while True:
            try:
                if await self._use_one_connection():
                    return
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error}"
                await asyncio.sleep(self._random.uniform(0.05, 0.4))

    async def _use_one_connection(self) -> bool:
        connection = await open_coordinator(
            self._world, self._addresses, self._group_id, f"group {self._group_id}"
        )
        try:
            while True:
                ending = self.stopping
                await self._read_back(connection)
                if ending:
                    return True
                await self.awake.wait()
                await self._commit(connection)
                await asyncio.sleep(self._random.uniform(0, 0.3))
        finally:
            connection.abort()

    async def _commit(self, connection: SimConnection) -> None:
        self._asked += self._random.randint(1, 5)
        offset = self._asked
        fields = group_wire.commit_fields(self._group_id, "", -1, self._topic, {0: offset})
        reply = await connection.call(ApiKey.OFFSET_COMMIT, fields, version=9, timeout_ms=PATIENCE_MS)
        _expect(reply.topics[0].partitions[0].error_code)
        self._floor = offset
        self.commits += 1

    async def _read_back(self, connection: SimConnection) -> None:
        fields = group_wire.fetch_fields(self._group_id, self._topic, [0])
        reply = await connection.call(ApiKey.OFFSET_FETCH, fields, version=9, timeout_ms=PATIENCE_MS)
        (group,) = reply.groups
        _expect(group.error_code)
        found = group.topics[0].partitions[0]
        _expect(found.error_code)
        if found.committed_offset < self._floor:
            raise BrokenPromise(
                f"group {self._group_id}: {found.committed_offset} is committed, before it was "
                f"{self._floor} (R31)"
            )
        if found.committed_offset > self._asked:
            raise BrokenPromise(
                f"group {self._group_id}: {found.committed_offset} is committed, which nobody asked for"
            )
        self._floor = found.committed_offset


def _expect(code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise TryAgain(code.name)
