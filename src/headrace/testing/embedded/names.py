# SPDX-License-Identifier: Apache-2.0
"""Names of APIs and errors as Kafka writes them, looked up with suggestions for what is not there."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode


def api_name(key: ApiKey) -> str:
    """As Kafka writes it: OffsetCommit."""
    return "".join(part.capitalize() for part in key.name.split("_"))


_APIS = {api_name(key).lower(): key for key in ApiKey}


def find_api(name: str) -> ApiKey:
    """Raises ValueError that says which API may have been meant."""
    key = _APIS.get(name.replace("_", "").lower())
    if key is None:
        raise ValueError(f"Kafka has no API {name!r}{_suggestion(name, map(api_name, ApiKey))}")
    return key


def find_error(name: str) -> ErrorCode:
    """Raises ValueError that says which error may have been meant."""
    try:
        return ErrorCode[name.lower()]
    except KeyError:
        known = (each.name.upper() for each in ErrorCode)
        raise ValueError(f"Kafka has no error {name!r}{_suggestion(name, known)}") from None


def _suggestion(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # of mistakes only

    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=3)
    if not close:
        return f"; some of those it has: {', '.join(sorted(by_lower.values())[:5])}"
    return f": did you mean {' or '.join(by_lower[each] for each in close)}?"
