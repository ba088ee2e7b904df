# SPDX-License-Identifier: Apache-2.0
"""A node that starts while the session of a dead controller is open waits as long as that may last."""

from __future__ import annotations

import pytest

from tests.harness.broker.three_nodes import SimTrio, on_three_nodes

SESSION_S = 600


def test_a_node_starts_however_long_the_session_of_the_dead_controller_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(trio: SimTrio) -> None:
        assert trio.members[2].broker.cluster.view.controller_id == 1
        for member in trio.members.values():
            await member.kill()
        with caplog.at_level("INFO"):
            began = trio.clients.clock.monotonic()
            await trio.members[2].start()
        took_s = trio.clients.clock.monotonic() - began
        assert SESSION_S * 0.9 < took_s < SESSION_S + 60
        assert trio.members[2].broker.cluster.is_controller

    on_three_nodes(scenario, settings={"broker.session.timeout.ms": str(SESSION_S * 1000)})
    assert "waiting until node 1, the controller, admits this node" in caplog.text
    assert "within at most 600 s" in caplog.text
