# SPDX-License-Identifier: Apache-2.0
"""Functions that pass their keywords on to a class: their signature shows them, and a wrong one is named.

`help(headrace.write)` and notebooks list every option with its default that way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def keywords_of(options: Any, *requests: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function with `**options: Unpack[…]`; the defaults are those of the `requests`."""
    known: dict[str, inspect.Parameter] = {}
    for request in reversed(requests):
        known |= inspect.signature(request).parameters
    names = {*options.__required_keys__, *options.__optional_keys__}
    offered = [each for name, each in known.items() if name in names]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown = signature.replace(parameters=[*own, *offered])

        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in shown.parameters:
                    raise TypeError(_unknown(function.__name__, name, shown))
            return function(*arguments, **options)

        call.__signature__ = shown  # type: ignore[attr-defined]
        return call

    return decorate


def _unknown(function: str, name: str, signature: inspect.Signature) -> str:
    close = get_close_matches(name, signature.parameters, n=1)
    return f"{function}() has no argument {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
