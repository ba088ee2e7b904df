# SPDX-License-Identifier: Apache-2.0
"""New connections wait when they come too fast, and are refused beyond the quota of their address."""

from __future__ import annotations

from headrace.client_quotas import CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity
from headrace.machines.quotas.connection_rates import AT_ONCE, ConnectionRates
from headrace.machines.quotas.rates import Window


def test_connections_beyond_the_rate_of_the_node_wait_one_after_the_other() -> None:
    rates = ConnectionRates(Window(), 10)
    assert all(rates.opened("10.0.0.1", 5.0, limited=True) == AT_ONCE for _ in range(100))
    waits = [rates.opened("10.0.0.1", 5.0, limited=True) for _ in range(3)]
    assert [round(wait.wait_s, 3) for wait in waits] == [0.1, 0.2, 0.3]
    assert not any(wait.quota_exceeded for wait in waits)
    assert rates.opened("10.0.0.1", 5.0, limited=False) == AT_ONCE


def test_an_address_beyond_its_quota_is_refused_and_others_are_not() -> None:
    rates = ConnectionRates(Window(), 1_000)
    rates.replace(
        {
            QuotaEntity(ip="10.0.0.1"): {CONNECTION_CREATION_RATE: 1.0},
            QuotaEntity(ip=DEFAULT): {CONNECTION_CREATION_RATE: 2.0},
        }
    )
    served = [not rates.opened("10.0.0.1", 5.0, limited=True).quota_exceeded for _ in range(30)]
    assert served.count(True) == 10
    served = [not rates.opened("10.0.0.2", 5.0, limited=True).quota_exceeded for _ in range(30)]
    assert served.count(True) == 20
    refused = rates.opened("10.0.0.1", 5.0, limited=True)
    assert refused.quota_exceeded
    assert refused.wait_s == 1.0
    assert not rates.opened("10.0.0.1", 17.0, limited=True).quota_exceeded
