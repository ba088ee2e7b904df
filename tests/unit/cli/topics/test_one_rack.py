# SPDX-License-Identifier: Apache-2.0
"""The warning about replicas that share one rack."""

from __future__ import annotations

import pytest

from headrace.cli.topics.one_rack import one_rack_warning


def test_replicas_in_one_rack_are_warned_of_with_what_to_do() -> None:
    warning = one_rack_warning("orders", 2, ["h1", "h1"])
    assert warning is not None
    assert warning.startswith("the 2 replicas of orders are all in rack h1, and are lost together")
    assert "--replication-factor 1" in warning


@pytest.mark.parametrize(
    ("replicas", "racks"),
    [(1, ["h1", "h1"]), (2, ["h1", "h2"]), (2, [None, None]), (2, ["h1", None]), (2, [])],
)
def test_one_replica_or_several_racks_or_none_are_not(replicas: int, racks: list[str | None]) -> None:
    assert one_rack_warning("orders", replicas, racks) is None
