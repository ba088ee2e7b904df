# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.realworld import RealWorld
from tests.contract.store_backends import BACKENDS, Backend, Run, Scenario, opener, zookeeper


@pytest.fixture(scope="session", autouse=True)
def _stop_zookeeper() -> Iterator[None]:
    yield
    zookeeper.stop()


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario on a fresh backend of each kind."""

    async def main(scenario: Scenario) -> None:
        world = RealWorld()
        try:
            async with AsyncExitStack() as closing:
                await scenario(Backend(opener(request.param, world, tmp_path / "coordination"), closing))
        finally:
            await world.tasks.close()

    return lambda scenario: asyncio.run(main(scenario))
