# SPDX-License-Identifier: Apache-2.0
"""All lives of one transactional id: each fences the one before, dead or only believed to be.

Read next: life.py, cluster.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from tests.harness.simulation.routing import LeaderTarget
from tests.harness.simulation.transactions.life import Died, Life, Surroundings
from tests.harness.simulation.transactions.links import GaveUp, Refused
from tests.harness.simulation.transactions.requests import draw_versions

_LOOK_S = 0.3


class Copier:
    def __init__(
        self, surroundings: Surroundings, source: LeaderTarget, random: Random, *, name: str
    ) -> None:
        self.name = name
        self.ends: Counter[str] = Counter()
        """Why lives ended."""
        self.goal: int | None = None
        """The end of the input, once nothing is written to it any more."""
        self._surroundings = surroundings
        self._source = source
        self._random = random
        self._life: Life | None = None
        self._lives: dict[asyncio.Task[None], Life] = {}

    @property
    def progress(self) -> str:
        life = self._life
        return "" if life is None else f"at {life.position} of {self.goal}: {life.links.progress}"

    @property
    def is_done(self) -> bool:
        return self.goal is not None and self._life is not None and self._life.position >= self.goal

    def finish(self, goal: int) -> None:
        """From now on nobody dies."""
        self.goal = goal
        for life in self._lives.values():
            life.careful = True

    async def run(self) -> None:
        """Until all of the input is copied."""
        try:
            while not self.is_done:
                newest = self._begin_life()
                while not newest.done() and not self.is_done and not self._is_taken_for_dead():
                    await asyncio.wait({newest}, timeout=_LOOK_S)
                if newest.done():
                    await asyncio.sleep(self._random.choice((0, 0.1, 1.0)))
        finally:
            for task in self._lives:
                task.cancel()

    def _is_taken_for_dead(self) -> bool:
        return self.goal is None and self._random.random() * self._surroundings.habits.replacements < 1

    def _begin_life(self) -> asyncio.Task[None]:
        life = self._life = Life(
            self._surroundings,
            self._source,
            Random(self._random.getrandbits(64)),
            transactional_id=self.name,
            versions=draw_versions(self._random),
        )
        life.careful = self.goal is not None
        task = asyncio.ensure_future(self._live(life))
        self._lives[task] = life
        task.add_done_callback(self._lives.pop)
        return task

    async def _live(self, life: Life) -> None:
        try:
            await life.run()
        except Died:
            self.ends["died"] += 1
        except GaveUp:
            self.ends["gave up"] += 1
        except Refused as refusal:
            self.ends[refusal.code.name] += 1
