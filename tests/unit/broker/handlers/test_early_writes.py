# SPDX-License-Identifier: Apache-2.0
"""Writes that reach a new leader before its epoch is on disk (R13): held, in order, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.handlers.produce import MAX_HOLD_S
from headrace.broker.partition.validation import record_validation
from headrace.testing.simworld import WorkProfile
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import CREATE, LONG_MS, PRODUCE, TOPIC
from tests.harness.broker.three_nodes import NODES, SimMember, SimTrio, on_three_nodes

NONE, ONE, ALL = 0, 1, -1
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
PRODUCE_VERSION = 8
SLOW_MS = 700


def set_disks(trio: SimTrio, work_ms: int) -> None:
    for node_id in NODES:
        trio.simulation.machine(f"node{node_id}").work = WorkProfile(least_ms=work_ms, most_ms=work_ms)


async def led_early(trio: SimTrio, *, slow_ms: int = SLOW_MS, partitions: int = 1) -> SimMember:
    """The leader of a new topic, whose epoch is being written."""
    set_disks(trio, slow_ms)
    assignments = [{"partition_index": n, "broker_ids": list(NODES)} for n in range(partitions)]
    topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "configs": []}
    fields = {"topics": [{**topic, "assignments": assignments}], "timeout": 0, "validate_only": False}
    reply = await trio.members[1].ask(CREATE, fields)
    assert reply.topics[0].error_code is ErrorCode.none
    await trio.until(lambda: all(TOPIC in member.broker.cluster.view.topics for member in trio.up))
    leader = trio.leader
    assert not leader.partition().takes_writes
    return leader


class CountedMemory:
    """What the handler of Produce holds, instead of the memory that all requests share."""

    def __init__(self, member: SimMember) -> None:
        self.held = self.most = 0
        member.broker.dispatcher._produce._memory = self  # type: ignore[assignment]

    def take(self, holder: object, byte_count: int) -> None:
        self.held += byte_count
        self.most = max(self.most, self.held)

    def give_back(self, holder: object, byte_count: int) -> None:
        self.held -= byte_count


def result_of(reply: Any) -> tuple[int, int]:
    result = reply.responses[0].partition_responses[0]
    return int(result.error_code), int(result.base_offset)


def batch_fields(member: SimMember, value: bytes, acks: int, **options: Any) -> dict[str, Any]:
    return {**member.produce_fields(value, acks=acks), **options}


@pytest.mark.parametrize("acks", [ONE, ALL])
def test_an_early_write_is_appended_when_the_epoch_is_on_disk(acks: int) -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio)
        memory = CountedMemory(leader)
        assert await leader.produce(b"early", acks=acks) == (0, 0)
        await trio.until(lambda: leader.partition().high_watermark == 1)
        assert await leader.values() == [b"early"]
        assert (memory.held, memory.most > len(b"early")) == (0, True)

    on_three_nodes(scenario)


def test_an_early_write_without_acknowledgement_is_not_lost() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio)
        connection = await leader.connect()
        fields = batch_fields(leader, b"early", NONE)
        connection.send_without_reply(PRODUCE, fields, version=PRODUCE_VERSION)
        await trio.until(lambda: leader.partition().high_watermark == 1)
        assert connection.is_open
        connection.abort()

    on_three_nodes(scenario)


def test_requests_behind_an_early_write_keep_their_order_and_other_connections_go_on() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio)
        connection = await leader.connect()
        values = [b"%d" % number for number in range(20)]
        replies = [
            connection.send(PRODUCE, batch_fields(leader, value, ONE), version=PRODUCE_VERSION)
            for value in values
        ]
        started = trio.clients.clock.monotonic()
        await leader.ask(ApiKey.METADATA, {"topics": []}, 12)
        assert trio.clients.clock.monotonic() - started < SLOW_MS / 2000
        assert not leader.partition().takes_writes
        assert [result_of(await reply) for reply in replies] == [(0, n) for n in range(20)]
        connection.abort()
        await trio.until(lambda: leader.partition().high_watermark == 20)
        assert await leader.values() == values

    on_three_nodes(scenario)


def test_a_held_write_is_not_overtaken_on_another_connection() -> None:
    """Its producer lost the connection, and sends the next record on a new one."""

    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio)
        partition = leader.partition()
        connection = await leader.connect()
        connection.send(PRODUCE, batch_fields(leader, b"first", ONE), version=PRODUCE_VERSION)
        await trio.until(lambda: bool(partition._when_writable))
        connection.abort()
        later: list[int] = []
        partition.when_writable(lambda: later.append(partition.log_end_offset))
        assert await leader.produce(b"second", acks=ONE) == (0, 1)
        assert later == [1], "written in the step that opened the partition"
        await trio.until(lambda: partition.high_watermark == 2)
        assert await leader.values() == [b"first", b"second"]

    on_three_nodes(scenario)


def test_sequences_of_an_idempotent_producer_are_kept() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio)
        connection = await leader.connect()
        replies = []
        for sequence in range(3):
            options = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence}
            fields = leader.produce_fields(b"%d" % sequence, **options)
            replies.append(connection.send(PRODUCE, fields, version=PRODUCE_VERSION))
        assert [result_of(await reply) for reply in replies] == [(0, 0), (0, 1), (0, 2)]
        connection.abort()

    on_three_nodes(scenario)


def test_partitions_of_one_request_wait_for_each_other() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio, partitions=3)
        fields = leader.produce_fields(b"x")
        (topic,) = fields["topic_data"]
        records = topic["partition_data"][0]["records"]
        topic["partition_data"] = [{"index": index, "records": records} for index in range(3)]
        reply = await leader.ask(PRODUCE, fields, PRODUCE_VERSION)
        results = reply.responses[0].partition_responses
        assert [(each.index, int(each.error_code)) for each in results] == [(0, 0), (1, 0), (2, 0)]

    on_three_nodes(scenario)


def test_records_that_a_worker_checks_are_held_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "AT_ONCE", record_validation.AT_ONCE._replace(records=10))

    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio)
        values = [b"%d" % number for number in range(200)]
        assert await leader.produce(*values, codec=1) == (0, 0)

    on_three_nodes(scenario, settings={"log.cleanup.policy": "compact"})


def test_a_write_is_held_for_its_timeout_and_never_longer_than_the_limit() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio, slow_ms=60_000)
        memory = CountedMemory(leader)
        for timeout_ms, limit_s in ((300, 0.3), (0, 0.0), (LONG_MS, MAX_HOLD_S)):
            started = trio.clients.clock.monotonic()
            reply = await leader.ask(
                PRODUCE, batch_fields(leader, b"x", ALL, timeout=timeout_ms), PRODUCE_VERSION
            )
            assert result_of(reply)[0] == NOT_LEADER
            assert limit_s <= trio.clients.clock.monotonic() - started < limit_s + 0.5
        assert leader.partition()._when_writable == []
        connection = await leader.connect()
        fields = batch_fields(leader, b"x", NONE, timeout=300)
        connection.send_without_reply(PRODUCE, fields, version=PRODUCE_VERSION)
        await trio.until(lambda: not connection.is_open)
        assert leader.log_end == 0
        assert (memory.held, memory.most > 0) == (0, True)
        set_disks(trio, 1)

    on_three_nodes(scenario)


def test_a_leader_that_loses_its_role_refuses_what_it_held() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio, slow_ms=3_000)
        connection = await leader.connect()
        held = connection.send(PRODUCE, batch_fields(leader, b"x", ALL), version=PRODUCE_VERSION)
        await trio.until(lambda: bool(leader.partition()._when_writable))
        session = leader.broker.cluster._lifecycle._session
        assert session is not None
        session._renewed_at -= 1000
        leader.broker.replication.check_session()
        assert result_of(await held)[0] == NOT_LEADER
        assert leader.log_end == 0
        connection.abort()
        session._renewed_at += 1000

    on_three_nodes(scenario)


def test_a_deleted_topic_refuses_what_was_held() -> None:
    async def scenario(trio: SimTrio) -> None:
        leader = await led_early(trio, slow_ms=3_000)
        connection = await leader.connect()
        held = connection.send(PRODUCE, batch_fields(leader, b"x", ONE), version=PRODUCE_VERSION)
        await trio.until(lambda: bool(leader.partition()._when_writable))
        assert await trio.members[2].delete() == 0
        assert result_of(await held)[0] in (NOT_LEADER, int(ErrorCode.unknown_topic_or_partition))
        connection.abort()

    on_three_nodes(scenario)
