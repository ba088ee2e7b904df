# SPDX-License-Identifier: Apache-2.0
"""What `headrace top --once` prints: the documents of the three tabs, after rates were measured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from headrace.console.views.view import Document

LIMIT = "1000"
"""Topics and groups; the documents say how many there are."""
_ASKED: tuple[tuple[str, dict[str, str]], ...] = (
    ("cluster", {}),
    ("topics", {"limit": LIMIT, "sort": "-rate_in"}),
    ("groups", {"limit": LIMIT, "sort": "-lag"}),
)
_AGAIN_S = 0.5


class Views(Protocol):
    """What is needed of an Observer."""

    async def view(self, name: str, params: Mapping[str, str]) -> Document: ...


async def documents_once(views: Views, *, over_s: float) -> dict[str, Document]:
    """Rates need two looks at the cluster: it is watched until they are known, for `over_s` at most."""
    ends = asyncio.get_running_loop().time() + over_s
    documents = await _look(views)
    while not _measured(documents) and asyncio.get_running_loop().time() < ends:
        await asyncio.sleep(_AGAIN_S)
        documents = await _look(views)
    return documents


async def _look(views: Views) -> dict[str, Document]:
    return {name: await views.view(name, params) for name, params in _ASKED}


def _measured(documents: Mapping[str, Document]) -> bool:
    topics = [topic["rate_in"] for topic in documents["topics"]["topics"]]
    groups = [group["rate_out"] for group in documents["groups"]["groups"] if group["members"]]
    return None not in topics and None not in groups
