# SPDX-License-Identifier: Apache-2.0
"""A fuzz target: a function of bytes that fails when the code under test did what it must not.

Errors that the code may raise are caught inside. Run by Hypothesis (tests/property/fuzzing), by random damage
and by atheris (__main__.py). Read next: catalog.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.harness.fuzzing.damage import damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`sound`: valid inputs that damage starts from, and the first corpus of atheris."""

    name: str
    run: Callable[[bytes], None]
    sound: Callable[[], Sequence[bytes]]


def inputs(target: Target, chance: Random, count: int) -> list[bytes]:
    """Damaged inputs, a few sound ones and some that are only noise."""
    sound = target.sound()
    return [one_input(sound, chance) for _ in range(count)]


def one_input(sound: Sequence[bytes], chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.05:
        return chance.randbytes(chance.randrange(200))
    picked = chance.choice(sound)
    return picked if kind < 0.1 else damaged(picked, chance)
