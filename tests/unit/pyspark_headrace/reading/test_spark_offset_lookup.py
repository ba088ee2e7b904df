# SPDX-License-Identifier: Apache-2.0
"""Topics that were named and are not there, or have nothing to read: said with what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.client.network_client import TopicView
from pyspark_headrace.options import Selection
from pyspark_headrace.reading.offset_lookup import OffsetLookup


class Known:
    """A cluster that answers with these topics."""

    def __init__(self, *views: TopicView) -> None:
        self._views = {view.name: view for view in views}

    async def any_connection(self) -> None:
        """There is one."""

    async def topics(self, names: Any) -> dict[str, TopicView]:
        return self._views


def look(*views: TopicView, **selection: Any) -> None:
    client: Any = Known(*views)
    lookup = OffsetLookup(client, Selection(**selection), committed_only=True, timeout_ms=100)
    asyncio.run(lookup.snapshot(topics_must_exist=True))


def view(*partitions: int) -> TopicView:
    return TopicView(name="orders", topic_id=None, leaders=dict.fromkeys(partitions, 1))


def test_a_topic_without_partitions_is_named() -> None:
    with pytest.raises(ClientError, match=r"'orders' has no partitions; .*headrace topics describe orders"):
        look(view(), names=("orders",))


def test_a_missing_topic_is_named_with_the_command_that_makes_it() -> None:
    with pytest.raises(ClientError, match="'payments' does not exist; create it: headrace topics create pay"):
        look(view(0), names=("orders", "payments"))


def test_a_missing_partition_is_named_with_those_that_are_there() -> None:
    with pytest.raises(ClientError, match="topic 'orders' has no partition 7: they are 0 to 1"):
        look(view(0, 1), partitions={"orders": (0, 7)})
