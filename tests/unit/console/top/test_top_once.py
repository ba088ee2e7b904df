# SPDX-License-Identifier: Apache-2.0
"""`headrace top --once`: how long it measures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.console.top.once import documents_once
from headrace.console.views.view import Document
from tests.unit.console.top import documents


class CountedViews:
    """Rates are known from the second look on."""

    def __init__(self, *, known_after: int) -> None:
        self._known_after = known_after
        self.looks = 0

    async def view(self, name: str, params: Mapping[str, str]) -> Document:
        self.looks += name == "cluster"
        known = self.looks > self._known_after
        if name == "topics":
            return documents.topics() | {
                "topics": [documents.topic_entry("a", rate_in=1.0 if known else None)]
            }
        return {"cluster": documents.cluster, "groups": documents.groups}[name]()


def test_it_looks_again_until_rates_are_known() -> None:
    views = CountedViews(known_after=2)
    found = asyncio.run(documents_once(views, over_s=30))
    assert found["topics"]["topics"][0]["rate_in"] == 1.0
    assert views.looks == 3


def test_it_does_not_wait_where_no_time_is_given() -> None:
    views = CountedViews(known_after=100)
    found = asyncio.run(documents_once(views, over_s=0))
    assert found["topics"]["topics"][0]["rate_in"] is None
    assert views.looks == 1
