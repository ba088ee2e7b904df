# SPDX-License-Identifier: Apache-2.0
"""Which quota holds for a client, with whom it is shared, and how long a client is throttled."""

from __future__ import annotations

import pytest

from headrace.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    Quotas,
)
from headrace.machines.quotas import client_quotas
from headrace.machines.quotas.client_quotas import ClientQuotas, Limit, find_limit
from headrace.machines.quotas.rates import Window

LEVELS = [
    (QuotaEntity("alice", "app"), ("alice", "app")),
    (QuotaEntity("alice", DEFAULT), ("alice", "app")),
    (QuotaEntity("alice"), ("alice", DEFAULT)),
    (QuotaEntity(DEFAULT, "app"), ("alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), ("alice", "app")),
    (QuotaEntity(DEFAULT), ("alice", DEFAULT)),
    (QuotaEntity(client_id="app"), (DEFAULT, "app")),
    (QuotaEntity(client_id=DEFAULT), (DEFAULT, "app")),
]
"""Kafka's order, the most specific first, with whose use is counted together."""


def machine(quotas: Quotas) -> ClientQuotas:
    quota = ClientQuotas(Window(), Window())
    quota.replace(quotas)
    return quota


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_of_the_eight_levels_holds(level: int) -> None:
    quotas = {
        entity: {PRODUCER_BYTE_RATE: 100.0 + rank} for rank, (entity, _) in enumerate(LEVELS) if rank >= level
    }
    _, key = LEVELS[level]
    assert find_limit(quotas, PRODUCER_BYTE_RATE, "alice", "app") == Limit(100.0 + level, key)


def test_each_quota_is_looked_up_by_itself() -> None:
    """A more specific entity that lacks a quota does not hide the one of a less specific entity."""
    quotas = {
        QuotaEntity("alice", "app"): {PRODUCER_BYTE_RATE: 1.0},
        QuotaEntity(client_id=DEFAULT): {CONSUMER_BYTE_RATE: 2.0},
    }
    limits = machine(quotas).limits("alice", "app")
    assert limits.produce == Limit(1.0, ("alice", "app"))
    assert limits.fetch == Limit(2.0, (DEFAULT, "app"))
    assert limits.request is None
    assert limits.mutation is None


def test_others_have_no_limit() -> None:
    quotas = {QuotaEntity("alice"): {PRODUCER_BYTE_RATE: 1.0}}
    assert find_limit(quotas, PRODUCER_BYTE_RATE, "bob", "app") is None
    assert machine(quotas).produced(machine(quotas).limits("bob", "app"), 1 << 30, 0.0) == 0


def test_a_quota_of_a_user_is_shared_by_the_users_client_ids() -> None:
    quota = machine({QuotaEntity("alice"): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quota.produced(quota.limits("alice", "one"), 10_000, 5.0) == 0
    assert quota.produced(quota.limits("alice", "two"), 1_000, 5.0) == 1000


def test_a_default_quota_of_users_is_not_shared_by_users() -> None:
    quota = machine({QuotaEntity(DEFAULT): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quota.produced(quota.limits("alice", "one"), 20_000, 5.0) > 0
    assert quota.produced(quota.limits("bob", "one"), 5_000, 5.0) == 0


def test_the_throttle_time_is_as_long_as_the_quota_needs_for_what_exceeds_it() -> None:
    quota = machine({QuotaEntity("alice"): {PRODUCER_BYTE_RATE: 1000.0}})
    limits = quota.limits("alice", "app")
    throttle_ms = quota.produced(limits, 15_000, 5.0)
    assert throttle_ms == 5000  # 15 s of the quota, of which ten windows are assumed to have passed
    assert quota.produced(limits, 0, 5.0 + 11.0) == 0  # it is out of the windows


def test_a_throttled_fetch_does_not_count() -> None:
    quota = machine({QuotaEntity("alice"): {CONSUMER_BYTE_RATE: 1000.0}})
    limits = quota.limits("alice", "app")
    assert quota.fetched(limits, 9_000, 5.0) == (0, False)
    assert quota.fetched(limits, 3_000, 5.0) == (2000, True)
    assert quota.fetched(limits, 1_000, 5.0) == (0, False)


def test_a_batch_larger_than_the_quota_allows_is_sent_when_nothing_is_owed() -> None:
    quota = machine({QuotaEntity("alice"): {CONSUMER_BYTE_RATE: 1000.0}})
    limits = quota.limits("alice", "app")
    assert quota.fetch_max_bytes(limits) == 10_000
    assert quota.fetched(limits, 30_000, 5.0) == (20_000, False)
    assert quota.fetched(limits, 30_000, 6.0).empty
    assert not quota.fetched(limits, 30_000, 50.0).empty


def test_time_of_the_event_loop_is_throttled_for_one_window_at_most() -> None:
    quota = machine({QuotaEntity("alice"): {REQUEST_PERCENTAGE: 1.0}})
    limits = quota.limits("alice", "app")
    assert quota.requested(limits, 0.1, 5.0) == 0  # 10 ms a second over ten seconds
    assert quota.requested(limits, 0.002, 5.0) == 200
    assert quota.requested(limits, 5.0, 5.0) == 1000


def test_changes_of_partitions_take_tokens_and_wait_for_those_owed() -> None:
    quota = machine({QuotaEntity("alice"): {CONTROLLER_MUTATION_RATE: 2.0}})
    limits = quota.limits("alice", "app")
    assert quota.mutation_throttle(limits, 5.0) == 0
    quota.mutated(limits, 30, 5.0)  # a burst of 22 is allowed
    assert quota.mutation_throttle(limits, 5.0) == 4000
    assert quota.mutation_throttle(limits, 8.0) == 1000
    assert quota.mutation_throttle(limits, 9.0) == 0


def test_an_altered_quota_holds_at_once_and_use_still_counts() -> None:
    entity = QuotaEntity("alice")
    quota = machine({entity: {PRODUCER_BYTE_RATE: 1000.0}})
    assert quota.produced(quota.limits("alice", "app"), 10_000, 5.0) == 0
    quota.replace({entity: {PRODUCER_BYTE_RATE: 500.0}})
    assert quota.produced(quota.limits("alice", "app"), 0, 5.0) == 10_000


def test_idle_clients_are_forgotten_and_busy_ones_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MOST_METERS", 100)
    quota = machine({QuotaEntity(client_id=DEFAULT): {PRODUCER_BYTE_RATE: 1000.0}})
    for number in range(1000):
        quota.produced(quota.limits("alice", f"client-{number}"), 1, 5.0)
    assert quota.meter_count == 100
    quota.produced(quota.limits("alice", "later"), 1, 17.0)
    assert quota.meter_count == 1
