# SPDX-License-Identifier: Apache-2.0
"""When a lag is gone: a consumer works off all its partitions together."""

from __future__ import annotations

from headrace.client.tools.group_report import PartitionReport, with_forecasts
from headrace.client.tools.groups import GroupMember
from headrace.client.tools.lag import Forecast, records_behind
from headrace.types import TopicPartition


def partition(
    index: int, owner: str | None, committed: int | None, end: int, rates: tuple[float, float] | None
) -> PartitionReport:
    member = owner and GroupMember(member_id=owner, instance_id=None, client_id="", host="", assigned=())
    return PartitionReport(
        partition=TopicPartition("orders", index),
        member=member or None,
        position=None,
        committed=committed,
        start=0,
        end=end,
        lag=records_behind(committed, end),
        behind=None,
        rate_in=rates[0] if rates else None,
        rate_out=rates[1] if rates else None,
        forecast=None,
    )


def forecasts(*partitions: PartitionReport) -> list[Forecast | None]:
    return [each.forecast for each in with_forecasts(partitions)]


def test_partitions_of_one_consumer_are_gone_together() -> None:
    """It read only partition 0 just now, and will come to the other."""
    busy, waiting = partition(0, "a", 100, 300, (10, 60)), partition(1, "a", 0, 100, (10, 0))
    assert forecasts(busy, waiting) == [Forecast(trend="shrinking", clear_ms=10_000 // 4 * 3)] * 2


def test_each_consumer_has_its_own_end() -> None:
    quick, slow = partition(0, "a", 0, 100, (0, 100)), partition(1, "b", 0, 100, (20, 10))
    assert forecasts(quick, slow) == [
        Forecast(trend="shrinking", clear_ms=1000),
        Forecast(trend="growing", clear_ms=None),
    ]


def test_a_partition_without_lag_is_caught_up() -> None:
    done, growing = partition(0, "a", 100, 100, (1, 1)), partition(1, "a", 0, 100, (5, 0))
    assert forecasts(done, growing)[0] == Forecast(trend="caught up", clear_ms=0)


def test_nothing_is_estimated_before_rates_are_known() -> None:
    assert forecasts(partition(0, "a", 0, 100, None), partition(1, None, None, 100, (1, 1))) == [None, None]
    assert forecasts(partition(0, None, 5, 5, None)) == [Forecast(trend="caught up", clear_ms=0)]
