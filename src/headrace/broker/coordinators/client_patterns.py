# SPDX-License-Identifier: Apache-2.0
"""Regular expressions that clients send: RE2 syntax as in Apache Kafka.

An expression comes from any client and is matched against every name, so the engine must run in linear time.
Call these functions on a thread. Read next: groups/topic_patterns.py, handlers/transactions.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_MOST_MEMORY = 1 << 20
"""Memory limit of one expression, with what RE2 caches for it."""


class InvalidPattern(Exception):
    """The message says what is wrong with it."""


def compile_pattern(pattern: str) -> Any:
    """RE2's compiled expression. Raises InvalidPattern."""
    import re2  # when first needed: most nodes never see an expression

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    try:
        return re2.compile(pattern, options=options)
    except re2.error as problem:
        raise InvalidPattern(_text(problem)) from None


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the pattern matches as a whole. Raises InvalidPattern."""
    matches = compile_pattern(pattern).fullmatch
    return frozenset(name for name in names if matches(name))


def _text(problem: Exception) -> str:
    reason = problem.args[0] if problem.args else problem
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
