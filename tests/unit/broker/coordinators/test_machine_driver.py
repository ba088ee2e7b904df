"""The driver of machines: batches, held replies, failures, the end of a term, timers, questions."""

from __future__ import annotations

import pytest

from headrace.broker.coordinators.machine_driver import BATCH_BYTES
from headrace.broker.coordinators.machine_timers import FIRED_PER_ITERATION
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.toy_machines import COMMIT_TIMEOUT_MS, Lab, Toy, in_lab


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
