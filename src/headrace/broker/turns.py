"""Long loops over what one client asked for give the others their turn: a node has one event loop for all.

Whoever loops so must not rely on what was true before the last item. Read next: dispatch.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

T = TypeVar("T")

ITEMS_PER_TURN = 100
"""At some ten microseconds each."""


class _NextTurn:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def in_turns(items: Iterable[T], at_a_time: int = ITEMS_PER_TURN) -> AsyncIterator[T]:
    for number, item in enumerate(items):
        if number and not number % at_a_time:
            await _NextTurn()
        yield item


def is_long(fields: Mapping[str, Any], limit: int = 5 * ITEMS_PER_TURN) -> bool:
    """Whether a reply holds more items than are encoded in a moment."""
    count = 0
    level: Iterable[Any] = fields.values()
    while True:
        lists = [value for value in level if isinstance(value, list | tuple)]
        count += sum(map(len, lists))
        if count > limit:
            return True
        if not lists:
            return False
        level = chain.from_iterable(
            item.values() for items in lists for item in items if isinstance(item, Mapping)
        )
