# SPDX-License-Identifier: Apache-2.0
"""Loops over many items that yield to the event loop at intervals, so that other connections are served.

A node has one event loop. State may change between two items of such a loop.
Read next: dispatch/dispatcher.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

ITEMS_PER_YIELD = 100
"""At some ten microseconds each."""

_LISTS = (list, tuple)


class _YieldOnce:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def yielding(items: Iterable[T], at_a_time: int = ITEMS_PER_YIELD) -> AsyncIterator[T]:
    """The items; yields to the event loop after every `at_a_time` of them."""
    for number, item in enumerate(items):
        if number and not number % at_a_time:
            await _YieldOnce()
        yield item


async def yielding_by_size(
    items: Iterable[T], size: Callable[[T], int], most_at_a_time: int
) -> AsyncIterator[T]:
    """The items; yields to the event loop whenever those since then come to so much in all."""
    passed = 0
    for item in items:
        if passed >= most_at_a_time:
            await _YieldOnce()
            passed = 0
        passed += size(item)
        yield item


async def unique(items: Iterable[T], at_a_time: int = 10 * ITEMS_PER_YIELD) -> list[T]:
    """The items in their order, each once; yields like `yielding`."""
    return list({item: None async for item in yielding(items, at_a_time)})


def is_long(fields: Mapping[str, Any], limit: int = 5 * ITEMS_PER_YIELD) -> bool:
    """Whether encoding a reply would keep the event loop busy for too long."""
    count = 0
    lists = [value for value in fields.values() if isinstance(value, _LISTS)]
    while lists:
        count += sum(map(len, lists))
        if count > limit:
            return True
        lists = [
            value
            for items in lists
            for item in items
            if isinstance(item, dict)
            for value in item.values()
            if isinstance(value, _LISTS)
        ]
    return False
