# SPDX-License-Identifier: Apache-2.0
"""Syntax trees of our own sources, for tests that check a rule of the code."""

from __future__ import annotations

import ast

_ATTEMPTS = 5


def parse(source: str) -> ast.Module:
    """`ast.parse`, again where another one ran in the middle of it.

    Python 3.11 counts the recursion of this conversion in one place for the whole process. A traceback
    that is formatted meanwhile, by another thread or by a finalizer, parses source too, and the first one
    raises "AST constructor recursion depth mismatch".
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)
