"""Sizes in bytes as people write them. Pure."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", flags=re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int | None:
    """`128m`, `64 MiB`, `1048576`; None for what is no size, or none at all."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] or None if match else None
