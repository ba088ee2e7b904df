# SPDX-License-Identifier: Apache-2.0
"""Matches topics against members' regular expressions, on a thread.

Read next: coordinators/client_patterns.py, groups/coordinator.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from headrace.broker.coordinators.client_patterns import InvalidPattern, compile_pattern
from headrace.types import OWN_TOPICS, ClusterView
from headrace.world import Thread

_COMPILED_CACHED = 256


class TopicPatterns:
    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._found: dict[str, frozenset[str]] = {}
        self._version = -1

    async def problem(self, pattern: str) -> str | None:
        """Why the pattern is invalid; None when it is valid."""
        return await self._thread.run(_problem, pattern)

    async def matching(self, patterns: Iterable[str], view: ClusterView) -> dict[str, frozenset[str]]:
        """The topics of `view` whose whole name each pattern matches; cached for all groups.

        Without Headrace's own internal topics: they do not exist in Apache Kafka, where `.*` is used.
        """
        if self._version != view.version:
            self._version, self._found = view.version, {}
        found = self._found
        missing = [pattern for pattern in patterns if pattern not in found]
        if missing:
            names = tuple(name for name in view.topics if name not in OWN_TOPICS)
            found.update(await self._thread.run(_match, missing, names))
        return {pattern: found[pattern] for pattern in patterns}


def _match(patterns: list[str], names: tuple[str, ...]) -> dict[str, frozenset[str]]:
    return {pattern: _matched(pattern, names) for pattern in patterns}


def _matched(pattern: str, names: tuple[str, ...]) -> frozenset[str]:
    compiled = _compiled(pattern)
    if compiled is None:
        return frozenset()
    return frozenset(name for name in names if compiled.fullmatch(name))


def _problem(pattern: str) -> str | None:
    try:
        compile_pattern(pattern)
    except InvalidPattern as problem:
        return str(problem)
    return None


@lru_cache(maxsize=_COMPILED_CACHED)
def _compiled(pattern: str) -> Any:
    """None for an invalid expression that an older release accepted."""
    try:
        return compile_pattern(pattern)
    except InvalidPattern:
        return None
