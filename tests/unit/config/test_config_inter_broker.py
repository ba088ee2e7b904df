# SPDX-License-Identifier: Apache-2.0
"""The listener between nodes: it exists, and a private one leaves another for clients."""

from __future__ import annotations

import pytest

from headrace.config.load import load_config
from headrace.errors import ConfigError

TWO = {
    "listeners": "OUTSIDE://127.0.0.1:9092,INSIDE://127.0.0.1:29092",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
}
PRIVATE = "headrace.inter.broker.listener.private"


def test_the_first_listener_is_for_nodes_unless_one_is_named() -> None:
    assert load_config(None, TWO, None).inter_broker_listener == "OUTSIDE"
    named = load_config(None, TWO | {"inter.broker.listener.name": "inside"}, None)
    assert named.inter_broker_listener == "INSIDE"


def test_a_listener_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="OTHER is not one of the listeners OUTSIDE, INSIDE"):
        load_config(None, TWO | {"inter.broker.listener.name": "OTHER"}, None)


@pytest.mark.parametrize("settings", [TWO, {"inter.broker.listener.name": "PLAINTEXT"}])
def test_a_private_listener_is_named_and_leaves_one_for_clients(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="have another one for clients"):
        load_config(None, settings | {PRIVATE: "true"}, None)
