# SPDX-License-Identifier: Apache-2.0
"""Open transactions and the partitions that they hold up, from a planted survey."""

from __future__ import annotations

import json
from dataclasses import replace

from headrace.client.tools.transaction_report import JudgedTransaction, PartitionWait, Survey, Verdict
from headrace.client.tools.transactions import OpenTransaction, PartitionEnds, TransactionDescription
from headrace.types import TopicPartition
from tests.unit.console.views_admin.planted import NOW_MS, built

WHERE = TopicPartition("orders", 1)
COPIER = TransactionDescription(
    transactional_id="copier 1",
    node_id=2,
    state="Ongoing",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    start_ms=NOW_MS - 40_000,
    partitions=tuple(TopicPartition("orders", number) for number in range(30)),
)


def waiting(verdict: Verdict, transaction: TransactionDescription | None, records: int = 5) -> PartitionWait:
    opened = OpenTransaction(
        partition=WHERE,
        start_offset=100,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=0,
        last_timestamp_ms=NOW_MS - 1,
    )
    return PartitionWait(
        ends=PartitionEnds(partition=WHERE, high_watermark=100 + records, last_stable=100),
        transactions=(JudgedTransaction(open=opened, verdict=verdict, transaction=transaction),),
    )


def survey(*waits: PartitionWait) -> Survey:
    return Survey(transactions=(COPIER,), waits=waits, searched=30, partitions=50, left_out=2)


def test_an_open_transaction_says_how_old_it_is_and_what_it_holds_up() -> None:
    document = built("transactions", survey(waiting("ongoing", COPIER)))
    (found,) = document["transactions"]
    assert (found["age_ms"], found["ends_by"], found["holds"]) == (40_000, NOW_MS + 20_000, 1)
    assert (len(found["partitions"]), found["partitions_total"]) == (20, 30)
    assert found["command"] == "headrace transactions terminate --id 'copier 1'"
    assert (document["searched"], document["partitions"], document["left_out"]) == (30, 50, 2)
    json.dumps(document)


def test_a_transaction_past_half_its_time_out_is_an_alarm() -> None:
    assert [each["level"] for each in built("transactions", survey())["alarms"]] == ["warning"]
    young = replace(survey(), transactions=(replace(COPIER, start_ms=NOW_MS - 20_000),))
    assert built("transactions", young)["alarms"] == []


def test_a_hanging_transaction_is_an_error_with_the_command_that_ends_it() -> None:
    document = built("transactions", survey(waiting("hanging", None)))
    (blocked,) = document["blocked"]
    assert blocked["command"] == "headrace transactions abort --topic orders --partition 1 --start-offset 100"
    assert (blocked["waiting"], blocked["verdict"], blocked["transactional_id"]) == (5, "hanging", None)
    assert document["alarms"][0]["level"] == "error"
    assert document["alarms"][0]["command"] == blocked["command"]


def test_one_that_is_being_ended_is_to_be_looked_at_only() -> None:
    (blocked,) = built("transactions", survey(waiting("ending", COPIER)))["blocked"]
    assert blocked["command"] == "headrace transactions describe --id 'copier 1'"


def test_the_partition_that_waits_for_most_records_comes_first() -> None:
    document = built("transactions", survey(waiting("ongoing", COPIER), waiting("ongoing", COPIER, 9)))
    assert [each["waiting"] for each in document["blocked"]] == [9, 5]
