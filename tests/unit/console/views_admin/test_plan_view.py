# SPDX-License-Identifier: Apache-2.0
"""The plan of a topic: what was measured goes into the sum of `headrace plan`, and nothing is guessed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.console.state.model import Event
from headrace.console.views.view import ViewError
from tests.unit.console.views_admin.planted import billing, built, orders, snapshot


def test_measured_rates_make_a_plan() -> None:
    document = built("plan", params={"topic": "orders"}, snapshot=snapshot(topic=orders(), group=billing()))
    assert document["group"] == "billing"
    assert document["situation"]["produce_rate"]["value"] == 300
    assert document["situation"]["produce_rate"]["source"] == "measured"
    assert document["situation"]["consume_rate"]["value"] == 80
    assert document["plan"]["consumers"] == 4
    assert document["missing"] == []
    json.dumps(document)


def test_consumers_that_kept_up_only_give_a_lower_bound() -> None:
    kept_up = billing(committed=999)
    document = built("plan", params={"topic": "orders"}, snapshot=snapshot(topic=orders(), group=kept_up))
    assert document["situation"]["consume_rate_is_floor"]
    assert not any(each["busy"] for each in document["consumer_rates"])


def test_without_rates_it_says_what_is_missing_and_makes_no_plan() -> None:
    document = built("plan", params={"topic": "orders"}, snapshot=snapshot(topic=orders(rate_in=None)))
    assert (document["situation"], document["plan"]) == (None, None)
    assert len(document["missing"]) == 2
    assert all(each["next"] for each in document["missing"])


def test_given_rates_replace_measured_ones() -> None:
    given = {"topic": "orders", "produce_rate": "1000", "consume_rate": "100", "headroom": "2"}
    document = built("plan", params=given, snapshot=snapshot(topic=orders(rate_in=None)))
    assert document["plan"]["consumers"] == 10
    assert document["plan"]["partitions"] == 30
    assert document["situation"]["headroom"]["source"] == "given"


def test_the_median_of_recorded_rebalances_is_their_time() -> None:
    took = [{"took_ms": 100}, {"took_ms": 900}, {"took_ms": 300}, {}]
    events = tuple(Event(at_ms=1, kind="assigned", group="billing", details=each) for each in took)
    known = replace(snapshot(topic=orders(), group=billing()), group_events={"billing": events})
    document = built("plan", params={"topic": "orders"}, snapshot=known)
    assert document["situation"]["rebalance_ms"]["value"] == 300


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many"])
def test_a_rate_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ViewError, match="produce_rate") as refused:
        built("plan", params={"topic": "orders", "produce_rate": text}, snapshot=snapshot(topic=orders()))
    assert refused.value.status == 400


def test_a_topic_that_is_not_there_is_refused() -> None:
    with pytest.raises(ViewError, match="no topic 'other'"):
        built("plan", params={"topic": "other"}, snapshot=snapshot(topic=orders()))


def test_no_topic_gives_the_topics_with_most_records_first() -> None:
    idle = orders(name="idle", rate_in=0.0)
    both = replace(snapshot(topic=orders()), topics={"idle": idle, "orders": orders()})
    document = built("plan", snapshot=both)
    assert [each["name"] for each in document["topics"]] == ["orders", "idle"]
    assert document["topic"] is None
