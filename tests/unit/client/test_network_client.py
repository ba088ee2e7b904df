# SPDX-License-Identifier: Apache-2.0
"""Which node is asked for metadata when one stops while it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.connection import ConnectionLost
from headrace.client.network_client import NetworkClient


class Node:
    """Ends its connection as often as told, then knows no topic."""

    def __init__(self, stops: int) -> None:
        self.stops = stops

    async def call(self, api_key: int, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        if self.stops:
            self.stops -= 1
            raise ConnectionLost("127.0.0.1:1 closed the connection")
        return SimpleNamespace(brokers=[], topics=[])


def asked(monkeypatch: pytest.MonkeyPatch, stops: int, reachable: int = 10) -> int:
    """How often a connection was asked for."""
    node, asked = Node(stops), 0

    async def any_connection() -> Node:
        nonlocal asked
        asked += 1
        if asked > reachable:
            raise ConnectionLost("no Kafka broker can be reached")
        return node

    client = NetworkClient("127.0.0.1:1,127.0.0.1:2")
    monkeypatch.setattr(client, "any_connection", any_connection)
    assert asyncio.run(client.topics(None)) == {}
    return asked


def test_another_node_is_asked_when_one_stops_before_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, stops=0) == 1
    assert asked(monkeypatch, stops=1) == 2
    assert asked(monkeypatch, stops=2) == 3


def test_nodes_that_all_stop_are_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionLost, match="closed the connection"):
        asked(monkeypatch, stops=3)


def test_it_ends_at_once_when_nobody_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionLost, match="can be reached"):
        asked(monkeypatch, stops=1, reachable=1)
