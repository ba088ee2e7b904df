"""Which topics a member's regular expression means: RE2 syntax as in Apache Kafka, linear time, off the loop.

An expression comes from any client and is matched against every topic, so the engine must not be one that an
expression can make take for ever. Read next: group_coordinator.py (who asks).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from headrace.types import OWN_TOPICS, ClusterView
from headrace.world import Thread

_COMPILED_KEPT = 256
_MOST_MEMORY = 1 << 20
"""Of one expression, with what matching it caches: clients send many."""


class TopicPatterns:
    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._found: dict[str, frozenset[str]] = {}
        self._version = -1

    async def problem(self, pattern: str) -> str | None:
        """Why it is no regular expression; None when it is one."""
        return await self._thread.run(_problem, pattern)

    async def matching(self, patterns: Iterable[str], view: ClusterView) -> dict[str, frozenset[str]]:
        """The topics of `view` that each pattern matches whole; many groups may ask for the same.

        Never those that the node writes about itself: who says `.*` on Apache Kafka does not get them either.
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
        _compile(pattern)
    except _error() as problem:
        return _text(problem)
    return None


@lru_cache(maxsize=_COMPILED_KEPT)
def _compiled(pattern: str) -> Any:
    """None for what an older release took for an expression."""
    try:
        return _compile(pattern)
    except _error():
        return None


def _compile(pattern: str) -> Any:
    import re2  # when first needed: most nodes never see an expression

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    return re2.compile(pattern, options=options)


def _error() -> type[Exception]:
    import re2

    error: type[Exception] = re2.error
    return error


def _text(problem: Exception) -> str:
    reason = problem.args[0] if problem.args else problem
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
