# SPDX-License-Identifier: Apache-2.0
"""A text that is never shown: passwords, keys and tokens (S8).

Knows no setting. Whoever needs the text calls `reveal`, so that a search finds every such place.
"""

from __future__ import annotations

import hmac

HIDDEN = "***"


class Secret:
    """Prints as `***` in messages, logs, tracebacks and JSON. Can be pickled, compared and used as a key."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))
