# SPDX-License-Identifier: Apache-2.0
"""The driver of machines: batches, held replies, failures, the end of a term, timers, questions."""

from __future__ import annotations

import pytest

from headrace.broker.coordinators.machine_driver import BATCH_BYTES, RETRY_S
from headrace.broker.coordinators.machine_timers import FIRED_PER_ITERATION
from headrace.errors import ApiError
from headrace.wire.coordinator.record import BatchProducer
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.toy_machines import COMMIT_TIMEOUT_MS, Do, Lab, Told, Toy, Wrote, in_lab

PRODUCER = BatchProducer(7, 3)
OTHER = BatchProducer(8, 0)


def test_a_step_without_records_is_answered_at_once():
    async def scenario(lab: Lab) -> None:
        lab.ask("read")
        assert lab.answers == ["0"]
        assert lab.partition.batches == []
        assert lab.driver.names() == [], "nothing is left of a machine that holds nothing"

    in_lab(scenario)


def test_replies_wait_until_their_records_are_committed():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        await lab.turn()
        assert lab.partition.batches == [["x"]]
        assert lab.answers == []
        assert lab.committed == []
        lab.partition.commit()
        assert lab.answers == ["written"]
        assert [(name, len(records), len(lines)) for name, records, lines in lab.committed] == [("m", 1, 1)]

    in_lab(scenario)


def test_a_reply_that_depends_on_uncommitted_records_waits_for_them():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.ask("read")
        await lab.turn()
        lab.ask("read")
        lab.ask("read", name="other")
        assert lab.answers == []
        lab.partition.commit()
        assert lab.answers == ["written", "1", "1", "0"]
        assert lab.driver.all_committed

    in_lab(scenario)


def test_the_steps_of_one_turn_share_a_batch():
    async def scenario(lab: Lab) -> None:
        for name in "abc":
            lab.ask("write", name=name)
        await lab.turn()
        assert lab.partition.batches == [["x", "x", "x"]]
        lab.partition.commit()
        assert lab.answers == ["written"] * 3

    in_lab(scenario)


def test_a_step_larger_than_a_batch_is_written_in_several_and_answered_once():
    async def scenario(lab: Lab) -> None:
        count = BATCH_BYTES // 8  # of records of more than 8 bytes each
        lab.ask("write", size=count)
        await lab.turn()
        assert sum(map(len, lab.partition.batches)) == count
        assert len(lab.partition.batches) > 1
        lab.partition.commit()
        assert lab.answers == ["written"]

    in_lab(scenario)


def test_after_a_failed_append_everyone_is_sent_away_and_nothing_is_kept():
    async def scenario(lab: Lab) -> None:
        lab.ask("wait", name="patient")
        lab.partition.refuses_with = ErrorCode.kafka_storage_error
        lab.ask("write")
        await lab.turn()
        assert lab.answers == [ErrorCode.not_coordinator] * 2
        assert (lab.ended, lab.driver.ended, lab.driver.names()) == (1, True, [])
        lab.ask("read")
        assert lab.answers[-1] is ErrorCode.not_coordinator

    in_lab(scenario)


def test_records_that_are_too_large_are_a_final_error():
    async def scenario(lab: Lab) -> None:
        lab.partition.refuses_with = ErrorCode.message_too_large
        lab.ask("write")
        await lab.turn()
        assert lab.answers == [ErrorCode.unknown_server_error]

    in_lab(scenario)


def test_a_slow_disk_costs_the_answer_and_not_the_state():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        await lab.turn()
        (waiter,) = lab.partition.waiters
        due = lab.world.clock.monotonic() + COMMIT_TIMEOUT_MS / 1000
        assert waiter.deadline == pytest.approx(due, abs=0.1)
        lab.partition.give_up(ErrorCode.request_timed_out)
        assert lab.answers == [ErrorCode.coordinator_not_available]
        lab.ask("read")
        assert lab.answers[1:] == [], "what it would tell of is still not committed"
        await lab.turn()
        lab.partition.commit()
        assert lab.answers[1:] == ["1"]

    in_lab(scenario)


def test_a_lost_partition_ends_the_term_and_answers_all_who_wait():
    async def scenario(lab: Lab) -> None:
        lab.ask("wait")
        lab.ask("write")
        await lab.turn()
        lab.partition.leads = False
        lab.partition.give_up(ErrorCode.not_leader_or_follower)
        assert sorted(lab.answers) == [ErrorCode.coordinator_not_available, ErrorCode.not_coordinator]
        assert lab.ended == 1

    in_lab(scenario)


def test_the_end_of_the_term_answers_what_waits_for_the_disk_too():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        await lab.turn()
        lab.ask("write")
        lab.ask("wait")
        lab.driver.end()
        assert lab.answers == [ErrorCode.not_coordinator] * 3
        await lab.turn()
        lab.partition.commit()
        assert len(lab.answers) == 3
        assert lab.partition.batches == [["x"]], "nothing is written after the end"

    in_lab(scenario)


def test_all_batches_under_way_are_answered_at_the_end():
    async def scenario(lab: Lab) -> None:
        for _ in range(3):
            lab.ask("write")
            await lab.turn()
        assert len(lab.partition.batches) == 3
        lab.driver.end()
        assert lab.answers == [ErrorCode.not_coordinator] * 3
        lab.partition.commit()
        assert len(lab.answers) == 3

    in_lab(scenario)


def test_clients_get_load_in_progress_while_the_log_is_read():
    async def scenario(lab: Lab) -> None:
        lab.driver.serving = False
        lab.ask("read")
        assert lab.answers == [ErrorCode.coordinator_load_in_progress]

    in_lab(scenario)


def test_replies_after_a_load_wait_for_what_was_loaded():
    async def scenario(lab: Lab) -> None:
        lab.partition.log_end_offset = 5  # read back, and not yet known to be safe
        lab.driver.set_machines({"m": Toy("m")}, version=1)
        lab.ask("read")
        assert lab.answers == []
        await lab.turn()
        lab.partition.commit()
        assert lab.answers == ["0"]

    in_lab(scenario)


def test_a_timer_fires_at_its_time_unless_replaced_or_cancelled():
    async def scenario(lab: Lab) -> None:
        lab.ask("write", name="a")
        lab.ask("write", name="b")
        lab.ask("timer", name="a", size=100)
        lab.ask("timer", name="b", size=100)
        lab.ask("timer", name="a", size=200)
        lab.ask("cancel", name="b")
        await lab.turn()
        lab.partition.commit()
        await lab.world.tasks.sleep(0.15)
        assert len(lab.partition.batches) == 1
        await lab.world.tasks.sleep(0.06)
        assert lab.partition.batches[1:] == [["fired"]]
        await lab.world.tasks.sleep(1)
        assert len(lab.partition.batches) == 2

    in_lab(scenario)


def test_many_timers_at_once_take_turns():
    async def scenario(lab: Lab) -> None:
        fired: list[int] = []
        due_ms = int(lab.world.clock.monotonic() * 1000) + 50
        for _ in range(3 * FIRED_PER_ITERATION):
            lab.timers.set(due_ms, fired.append)
        await lab.world.tasks.sleep(0.2)
        assert fired == sorted(fired)
        assert len(fired) == 3 * FIRED_PER_ITERATION

    in_lab(scenario)


def test_the_answer_to_a_question_comes_back_as_an_event():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.ask("ask")
        await lab.world.tasks.sleep(2)
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.received == ["42"]

    in_lab(scenario)


def test_a_machine_receives_a_change_once_before_its_next_step():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.version = 4
        lab.ask("read")
        lab.ask("read")
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.received == ["1->4"]

    in_lab(scenario)


def test_a_defect_in_a_machine_costs_its_request_and_a_reload():
    async def scenario(lab: Lab) -> None:
        lab.ask("wait", name="patient")
        lab.ask("fail")
        assert lab.answers == [ErrorCode.unknown_server_error, ErrorCode.not_coordinator]
        assert lab.ended == 1

    in_lab(scenario)


def test_an_ended_machine_is_removed():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.ask("end")
        assert lab.driver.names() == []
        await lab.turn()
        lab.partition.commit()
        assert lab.answers == ["written", "ended"]

    in_lab(scenario)


def test_a_stopping_node_answers_who_waits_for_others_and_keeps_who_waits_for_the_disk():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.ask("wait")
        await lab.turn()
        lab.driver.reject_waiting(ErrorCode.not_coordinator)
        assert lab.answers == [ErrorCode.not_coordinator]
        lab.partition.commit()
        assert lab.answers[1:] == ["written"]

    in_lab(scenario)


def test_reads_wait_for_uncommitted_records():
    async def scenario(lab: Lab) -> None:
        seen: list[str] = []
        lab.driver.when_all_committed(lambda: seen.append("at once"))
        lab.ask("write")
        lab.driver.when_all_committed(lambda: seen.append("open"))
        await lab.turn()
        lab.driver.when_all_committed(lambda: seen.append("written"))
        assert seen == ["at once"]
        lab.partition.commit()
        assert seen == ["at once", "open", "written"]

    in_lab(scenario)


# Commands


def test_a_command_starts_when_its_record_is_committed():
    async def scenario(lab: Lab) -> None:
        lab.ask("decide")
        await lab.turn()
        assert lab.orders == []
        lab.partition.commit()
        assert lab.answers == ["decided"]
        ((name, _, tell),) = lab.orders
        assert name == "m"
        tell(Told("done"))
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.received == ["done"]

    in_lab(scenario)


def test_a_command_without_records_waits_for_what_was_decided_before_it():
    async def scenario(lab: Lab) -> None:
        lab.ask("command")
        assert len(lab.orders) == 1, "everything is committed"
        lab.ask("write")
        lab.ask("command")
        await lab.turn()
        lab.ask("command")
        assert len(lab.orders) == 1
        lab.partition.commit()
        assert len(lab.orders) == 3

    in_lab(scenario)


def test_a_commit_that_takes_longer_than_its_request_waits_loses_no_command():
    async def scenario(lab: Lab) -> None:
        lab.ask("decide")
        await lab.turn()
        for _ in range(3):
            lab.partition.give_up(ErrorCode.request_timed_out)
            await lab.world.tasks.sleep(2 * RETRY_S)
        assert lab.answers == [ErrorCode.coordinator_not_available]
        assert lab.orders == []
        lab.partition.commit()
        assert len(lab.orders) == 1
        assert lab.answers == [ErrorCode.coordinator_not_available], "answered once"

    in_lab(scenario)


def test_a_command_starts_when_too_few_are_in_sync_only_after_its_record_was_committed():
    async def scenario(lab: Lab) -> None:
        lab.ask("decide")
        await lab.turn()
        lab.partition.high_watermark = lab.partition.log_end_offset
        lab.partition.give_up(ErrorCode.not_enough_replicas_after_append)
        assert lab.answers == [ErrorCode.coordinator_not_available]
        assert len(lab.orders) == 1

    in_lab(scenario)


def test_no_command_of_an_ended_driver_starts():
    async def scenario(lab: Lab) -> None:
        lab.ask("decide")
        await lab.turn()
        lab.partition.give_up(ErrorCode.request_timed_out)
        lab.driver.end()
        lab.partition.commit()
        await lab.world.tasks.sleep(2 * RETRY_S)
        lab.partition.commit()
        assert lab.orders == []

    in_lab(scenario)


# Transactions


def test_records_of_a_transaction_have_batches_of_their_producer_in_the_order_of_the_steps():
    async def scenario(lab: Lab) -> None:
        lab.ask("write", "a")
        lab.ask("write", "b", producer=PRODUCER)
        lab.ask("write", "c")
        lab.ask("write", "d", producer=PRODUCER)
        lab.ask("write", "e", producer=PRODUCER)
        lab.ask("write", "f", producer=OTHER)
        await lab.turn()
        batches = [
            (header.producer_id, header.producer_epoch, header.is_transactional, header.record_count)
            for header in lab.partition.headers
        ]
        plain = (-1, -1, False, 1)
        first, second = batches.index((7, 3, True, 1)), batches.index(plain, 1)
        assert (batches[0], first, second) == (plain, 1, 2)
        assert sum(count for *_, count in batches) == 6
        assert batches[-1] == (8, 0, True, 1)
        assert all(header.base_sequence == -1 for header in lab.partition.headers)
        lab.partition.commit()
        assert lab.answers == ["written"] * 6

    in_lab(scenario)


def test_what_is_checked_still_holds_when_it_is_written():
    """All before the check is in the log, and what was checked is written before anything else can be."""

    async def scenario(lab: Lab) -> None:
        seen: list[int] = []
        lab.ask("write", "a")
        lab.ask("write", "b", producer=PRODUCER, check=lambda: seen.append(len(lab.partition.batches)))
        assert seen == [1]
        assert [header.producer_id for header in lab.partition.headers] == [-1, 7]

    in_lab(scenario)


def test_a_producer_that_may_not_write_is_refused_before_the_step():
    async def scenario(lab: Lab) -> None:
        def refuse() -> None:
            raise ApiError(ErrorCode.invalid_producer_epoch)

        lab.ask("write", producer=PRODUCER, check=refuse)
        await lab.turn()
        assert lab.answers == [ErrorCode.invalid_producer_epoch]
        assert (lab.partition.batches, lab.driver.names(), lab.ended) == ([], [], 0)

    in_lab(scenario)


def test_a_check_after_a_failed_append_finds_the_driver_ended():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.partition.refuses_with = ErrorCode.kafka_storage_error
        lab.ask("write", producer=PRODUCER, check=lambda: None)
        assert lab.answers == [ErrorCode.not_coordinator] * 2
        assert lab.driver.names() == []

    in_lab(scenario)


def test_a_marker_is_written_and_applied_in_the_order_of_the_steps():
    async def scenario(lab: Lab) -> None:
        lab.ask("write", "a", producer=PRODUCER)
        lab.ask("write", "b")
        lab.ask("write", "c", producer=OTHER)
        lab.end_transaction(7)
        lab.ask("write", "a")
        await lab.turn()
        assert lab.partition.batches == [["x"], ["x"], ["x"], ["marker"], ["x"]]
        written = {name: machine.written for name in "abc" if (machine := lab.driver.get(name))}
        assert written == {"a": ["x", "committed", "x"], "b": ["x"], "c": ["x"]}
        assert lab.answers == []
        lab.partition.commit()
        assert lab.answers == ["written", "written", "written", "marked", "written"]

    in_lab(scenario)


def test_a_marker_does_not_overtake_a_request_that_follows_a_reply_at_once():
    async def scenario(lab: Lab) -> None:
        lab.partition.high_watermark = 100  # what is appended is committed
        lab.driver.submit("a", lambda token: Do("write", token), lambda _: lab.ask("decide", "b"))
        lab.end_transaction(7)
        assert lab.partition.batches == [["x"], ["decision"], ["marker"]]
        assert lab.answers == ["decided", "marked"]

    in_lab(scenario)


def test_reads_wait_for_the_marker_that_they_saw():
    async def scenario(lab: Lab) -> None:
        lab.ask("write", producer=PRODUCER)
        await lab.turn()
        lab.partition.commit()
        lab.end_transaction(7, committed=False)
        lab.ask("read")
        assert lab.answers == ["written"]
        lab.partition.commit()
        assert lab.answers == ["written", "marked", "2"]

    in_lab(scenario)


def test_markers_of_unknown_producers_and_repeated_ones_are_written_and_change_nothing():
    async def scenario(lab: Lab) -> None:
        lab.ask("write", producer=PRODUCER)
        for producer_id in (7, 7, 99):
            lab.end_transaction(producer_id)
        await lab.turn()
        lab.partition.commit()
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.written == ["x", "committed"]
        assert lab.partition.batches == [["x"], ["marker"], ["marker"], ["marker"]]
        assert lab.answers == ["written", "marked", "marked", "marked"]

    in_lab(scenario)


@pytest.mark.parametrize("code", ["transaction_coordinator_fenced", "invalid_producer_epoch"])
def test_a_refused_marker_changes_nothing(code: str):
    async def scenario(lab: Lab) -> None:
        lab.ask("write", producer=PRODUCER)
        await lab.turn()
        lab.partition.refuses_with = ErrorCode[code]
        lab.end_transaction(7)
        lab.partition.refuses_with = None
        assert lab.answers == [ErrorCode[code]]
        assert not lab.driver.ended
        lab.end_transaction(7)
        lab.partition.commit()
        assert lab.answers[1:] == ["written", "marked"]
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.written == ["x", "committed"], "the transaction was still open"

    in_lab(scenario)


def test_a_marker_that_could_not_be_written_ends_the_driver():
    async def scenario(lab: Lab) -> None:
        lab.partition.refuses_with = ErrorCode.kafka_storage_error
        lab.end_transaction(7)
        assert lab.answers == [ErrorCode.not_coordinator]
        assert lab.ended == 1
        lab.end_transaction(7)
        assert lab.answers == [ErrorCode.not_coordinator] * 2

    in_lab(scenario)


# Too few replicas in sync (R17)


def test_below_the_minimum_nothing_that_may_write_begins():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        await lab.turn()
        lab.partition.commit()
        lab.partition.role.too_few_in_sync = True
        lab.ask("write")
        lab.ask("write", name="new")
        lab.end_transaction(7)
        lab.ask("read")
        await lab.turn()
        refused = ErrorCode.coordinator_not_available
        assert lab.answers == ["written", refused, refused, refused, "1"]
        assert lab.partition.batches == [["x"]]
        assert lab.driver.names() == ["m"]
        lab.partition.role.too_few_in_sync = False
        lab.ask("write")
        await lab.turn()
        assert lab.partition.batches == [["x"], ["x"]]

    in_lab(scenario)


def test_below_the_minimum_timers_and_events_wait():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        lab.ask("ask")
        await lab.turn()
        lab.partition.commit()
        lab.ask("timer", size=100)
        lab.partition.role.too_few_in_sync = True
        lab.driver.notify("m", Told("kept"))
        lab.driver.notify("m", Told("skipped"), may_be_skipped=True)
        await lab.world.tasks.sleep(5)
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.received == []
        assert lab.partition.batches == [["x"]]
        lab.partition.role.too_few_in_sync = False
        await lab.world.tasks.sleep(2 * RETRY_S)
        assert sorted(machine.received) == ["42", "kept"]
        assert lab.partition.batches == [["x"], ["fired"]]

    in_lab(scenario)


def test_below_the_minimum_a_timer_that_was_set_anew_does_not_fire_early():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        await lab.turn()
        lab.partition.commit()
        lab.ask("timer", size=100)
        lab.partition.role.too_few_in_sync = True
        await lab.world.tasks.sleep(3)
        lab.ask("timer", size=60_000)
        lab.partition.role.too_few_in_sync = False
        await lab.world.tasks.sleep(10)
        assert lab.partition.batches == [["x"]]

    in_lab(scenario)


def test_below_the_minimum_a_change_of_the_metadata_comes_before_a_later_step():
    async def scenario(lab: Lab) -> None:
        lab.ask("write")
        await lab.turn()
        lab.partition.commit()
        lab.partition.role.too_few_in_sync = True
        lab.version = 4
        lab.ask("read")
        machine = lab.driver.get("m")
        assert machine is not None
        assert machine.received == []
        lab.partition.role.too_few_in_sync = False
        lab.ask("read")
        assert machine.received == ["1->4"]

    in_lab(scenario)


def test_sums_follow_every_step_marker_and_load_and_end_with_the_driver():
    async def scenario(lab: Lab) -> None:
        loaded = Toy("a")
        loaded.apply(Wrote("x"))
        lab.driver.set_machines({"a": loaded}, version=1)
        assert lab.driver.sums.values == {"toys": 1, "texts": 1}
        lab.ask("write", name="a", size=2)
        lab.ask("write", name="b", producer=PRODUCER)
        lab.ask("read", name="c")
        assert lab.driver.sums.values == {"toys": 2, "texts": 4}
        lab.end_transaction(PRODUCER.producer_id)
        assert lab.driver.sums.values == {"toys": 2, "texts": 5}
        lab.ask("end", name="a")
        assert lab.driver.sums.values == {"toys": 1, "texts": 2}
        lab.driver.end()
        assert not lab.driver.sums.values
        lab.driver.set_machines({"a": loaded}, version=1)
        assert (lab.driver.names(), not lab.driver.sums.values) == ([], True), "loaded too late"

    in_lab(scenario)
