# SPDX-License-Identifier: Apache-2.0
"""What a page may call besides views: one function for each, without HTTP in it.

web/ checks login, origin, CSRF token and read-only mode before `handle` is called. Read next: web/app.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.console.views.view import Document, Params, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file, sent while it is made."""

    name: str
    media_type: str
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Server-sent events: (event, document) pairs until the viewer leaves."""

    events: AsyncIterator[tuple[str, Document]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    """GET, or POST for what changes the cluster."""
    path: str
    """Below /api, e.g. /messages."""
    handle: Callable[[Source, Params, Mapping[str, Any]], Awaitable[Document | Download | Feed]]
    """Called with the query parameters and the JSON body; raises ViewError or ClientError."""

    @property
    def changes(self) -> bool:
        return self.method != "GET"
