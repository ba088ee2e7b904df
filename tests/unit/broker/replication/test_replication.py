# SPDX-License-Identifier: Apache-2.0
"""Replicas of the real broker code: who leads, who follows, what is acknowledged, what is cut and fetched."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.broker.partition.leader_role import LeaderRole
from headrace.broker.partition.validation import record_validation
from headrace.broker.replication.fetch_loop import Asked, FetchLoop
from headrace.broker.replication.fetcher import FEW, IDLE_WAITS
from headrace.broker.replication.peers import FETCH
from headrace.errors import CorruptLogError
from headrace.log.epochs import EpochHistory
from headrace.testing.simworld import WorkProfile
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.replica_fetch import (
    REPLICA_FETCH_VERSION,
    ReplicaQuestion,
    read_replica_fetch_reply,
    write_replica_fetch,
)
from tests.harness.broker.simulated_node import LIST_OFFSETS, PRODUCE, TOPIC, directory_of, fetch_fields
from tests.harness.broker.three_nodes import FIRST_PORT, NODES, SimMember, SimTrio, on_three_nodes
from tests.harness.simulation.clients import log_in_as_node

ALTER_REASSIGNMENTS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 45, 8, 9, 10
ONE, ALL = 1, -1


def latest(partition: int = 0, replica_id: int = -1) -> dict[str, Any]:
    asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
    return {
        "replica_id": replica_id,
        "isolation_level": 0,
        "topics": [{"name": TOPIC, "partitions": [asked]}],
    }


async def listed(member: SimMember, **options: Any) -> Any:
    reply = await member.ask(LIST_OFFSETS, latest(**options), 7)
    return reply.topics[0].partitions[0]


def test_a_record_acknowledged_with_acks_all_is_on_every_replica() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        for number in range(5):
            assert await trio.leader.produce(b"%d" % number) == (0, number)
            assert {member.log_end for member in trio.up} == {number + 1}
        await trio.until(lambda: {m.partition().high_watermark for m in trio.up} == {5})
        assert await trio.leader.values() == [b"0", b"1", b"2", b"3", b"4"]

    on_three_nodes(scenario)


def test_a_record_never_waits_for_the_poll_of_quiet_partitions() -> None:
    """Also not one that comes while its partition goes from the busy ones to the others."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create(partitions=4 * FEW)
        clock, slowest = trio.clients.clock, 0.0
        for number in range(80):
            await trio.clients.tasks.sleep(0.24 + number * 0.001)  # each of eight after about BUSY_S
            started = clock.monotonic()
            assert (await trio.leader.produce(b"x", index=number % 8))[0] == 0
            slowest = max(slowest, clock.monotonic() - started)
        assert slowest < 0.1

    on_three_nodes(scenario, settings={"headrace.flush.default": "os"})


def test_quiet_partitions_are_asked_for_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    questions = FetchLoop._questions

    def counted(loop: FetchLoop, now: float) -> list[Asked]:
        nonlocal asked
        found = questions(loop, now)
        asked += len(found)
        return found

    async def scenario(trio: SimTrio) -> None:
        nonlocal asked
        monkeypatch.setattr(FetchLoop, "_questions", counted)
        await trio.create(partitions=50)
        await trio.clients.tasks.sleep(10)
        asked = 0
        await trio.clients.tasks.sleep(60)
        few, others = FEW * 2, (50 - FEW) * 2 / IDLE_WAITS  # of each follower, a second
        assert 0 < asked < 2 * 60 * (few + others) * 1.2

    on_three_nodes(scenario, settings={"headrace.flush.default": "os"})


@pytest.mark.parametrize("flush", ["ack", "os"])
def test_a_follower_has_flushed_what_counts(flush: str) -> None:
    """R23."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await trio.leader.produce(b"x")
        flushed = {member.partition().flushed_offset for member in trio.up}
        assert flushed == ({1} if flush == "ack" else {0})

    on_three_nodes(scenario, settings={"headrace.flush.default": flush})


def test_only_the_leader_serves() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await trio.leader.produce(b"x")
        not_leader = int(ErrorCode.not_leader_or_follower)
        for follower in trio.followers:
            assert (await follower.produce(b"y"))[0] == not_leader
            assert (await follower.fetch(max_wait_ms=0)).error_code == not_leader
            assert (await listed(follower)).error_code == not_leader
        assert (await listed(trio.leader)).offset == 1

    on_three_nodes(scenario)


def test_a_request_to_the_wrong_node_returns_the_leader() -> None:
    """KIP-951."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        follower = trio.followers[0]
        right = (trio.state.leader, trio.state.leader_epoch)
        address = (trio.state.leader, FIRST_PORT + trio.state.leader)
        reply = await follower.ask(PRODUCE, follower.produce_fields(b"x"), 10)
        named = reply.responses[0].partition_responses[0].current_leader
        assert (named.leader_id, named.leader_epoch) == right
        assert [(node.node_id, node.port) for node in reply.node_endpoints] == [address]
        fields = fetch_fields(max_wait_ms=0)
        (topic,) = fields["topics"]
        topic["topic_id"] = follower.partition().topic_id
        del topic["topic"], fields["replica_id"]
        reply = await follower.ask(ApiKey.FETCH, fields, 16)
        named = reply.responses[0].partitions[0].current_leader
        assert (named.leader_id, named.leader_epoch) == right
        assert [(node.node_id, node.port) for node in reply.node_endpoints] == [address]

    on_three_nodes(scenario)


def test_a_node_without_a_replica_answers_not_leader() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create(1, 2)
        assert (await trio.members[3].produce(b"y"))[0] == int(ErrorCode.not_leader_or_follower)

    on_three_nodes(scenario)


def test_a_record_acknowledged_with_acks_all_survives_the_leader() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        old = trio.leader
        await old.produce(b"kept")
        await old.kill()
        await trio.until(lambda: trio.state.leader not in (-1, old.node_id))
        await trio.until_led()
        assert await trio.leader.produce(b"next") == (0, 1)
        assert await trio.leader.values() == [b"kept", b"next"]
        await old.start()
        await trio.until_all_in_sync()
        assert old.log_end == 2
        assert old.batches() == trio.leader.batches()

    on_three_nodes(scenario)


def test_too_few_in_sync_refuse_acks_all_and_nothing_is_written() -> None:
    """R17."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        for follower in trio.followers:
            await follower.kill()
        await trio.until(lambda: trio.state.isr == (trio.state.leader,))
        await trio.until_led()
        assert (await trio.leader.produce(b"refused"))[0] == int(ErrorCode.not_enough_replicas)
        assert trio.leader.log_end == 0
        assert await trio.leader.produce(b"taken", acks=ONE) == (0, 0)
        assert await trio.leader.values() == [], "not committed while too few are in sync (R14)"

    on_three_nodes(scenario)


def test_a_suspended_leader_with_too_few_in_sync_says_that_it_does_not_lead() -> None:
    """R7 before R17: the producer has to look for the leader, whatever the ISR was."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        for follower in trio.followers:
            await follower.kill()
        await trio.until(lambda: trio.state.isr == (trio.state.leader,))
        await trio.until_led()
        broker = trio.leader.broker
        broker.cluster._lifecycle._session._renewed_at -= 1000
        broker.replication.check_session()
        assert (await trio.leader.produce(b"refused"))[0] == int(ErrorCode.not_leader_or_follower)

    on_three_nodes(scenario)


def test_the_isr_counts_again_after_the_worker_has_checked_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R17, between the first look at the ISR and the append."""
    monkeypatch.setattr(record_validation, "AT_ONCE", record_validation.ONE_BY_ONE)
    slow = WorkProfile(least_ms=20_000, most_ms=20_000, slow_probability=0)
    many = [b"v"] * (record_validation.ONE_BY_ONE.records + 1)

    async def scenario(trio: SimTrio) -> None:
        await trio.create(cleanup_policy="compact")
        leader = trio.leader
        trio.simulation.machine(f"node{leader.node_id}").work = slow
        connection = await leader.connect()
        reply = connection.send(PRODUCE, leader.produce_fields(*many), version=8)
        await trio.clients.tasks.sleep(1)  # simulated: the request is there, and the worker needs 20 s
        for follower in trio.followers:
            await follower.kill()
        await trio.until(lambda: trio.state.isr == (leader.node_id,))
        assert not reply.done()
        refused = (await reply).responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.not_enough_replicas
        assert leader.log_end == 0

    on_three_nodes(scenario)


def test_the_unreplicated_tail_of_a_leader_is_truncated_when_it_returns() -> None:
    """R12, by epochs: the old leader alone had written, and others led meanwhile."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        old, others = trio.leader, trio.followers
        await old.produce(b"kept")
        for follower in others:
            await follower.kill()
        await trio.until(lambda: trio.state.isr == (old.node_id,))
        await trio.until_led()
        for _ in range(3):
            assert (await old.produce(b"lost", acks=ONE))[0] == 0
        await old.kill()
        for follower in others:
            await follower.start()
        await trio.until_led()
        await trio.until(lambda: len(trio.state.isr) == len(others))
        assert (await trio.leader.produce(b"next")) == (0, 1)
        await old.start()
        await trio.until_all_in_sync()
        assert old.log_end == 2
        assert await trio.leader.values() == [b"kept", b"next"]
        assert old.batches() == trio.leader.batches()

    on_three_nodes(scenario)


def test_a_leader_of_two_epochs_in_a_row_has_the_newer_one_on_disk() -> None:
    """R13: each is written by a thread of its own, and the slower one must not have the last word."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        leader, others = trio.leader, trio.followers
        await leader.produce(b"kept")
        machine = trio.simulation.machine(f"node{leader.node_id}")
        machine.work = WorkProfile(least_ms=1, most_ms=500)
        for follower in others:
            await follower.kill()
        await trio.until(lambda: trio.state.isr == (leader.node_id,))
        await leader.produce(b"next", acks=ONE)
        known = leader.partition().log.epochs.entries
        await leader.stop()
        machine.work = WorkProfile()
        written = EpochHistory.load(leader.files, directory_of())
        assert written is not None
        assert written.entries == known

    for seed in range(8):
        on_three_nodes(scenario, seed=seed)


def test_a_new_leader_that_was_suspended_still_waits_for_its_epoch_on_disk() -> None:
    """R13: a suspension does not end the wait for the write that began before it."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        old, others = trio.leader, trio.followers
        await old.produce(b"kept")
        for follower in others:
            trio.simulation.machine(f"node{follower.node_id}").work = WorkProfile(least_ms=500, most_ms=500)
        await old.kill()
        await trio.until(lambda: trio.leader.is_up and isinstance(trio.leader.partition().role, LeaderRole))
        leader = trio.leader
        broker, epoch = leader.broker, trio.state.leader_epoch
        session = broker.cluster._lifecycle._session
        for since_renewal_s in (1000, -1000):
            await trio.clients.tasks.sleep(0.02)
            assert not leader.partition().takes_writes
            session._renewed_at -= since_renewal_s
            broker.replication.check_session()
        await trio.until(lambda: leader.partition().takes_writes)
        written = EpochHistory.load(leader.files, directory_of())
        assert written is not None
        assert written.entries[-1].epoch == epoch

    on_three_nodes(scenario)


def test_a_node_whose_session_may_have_expired_leads_nothing() -> None:
    """R7."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        broker = trio.leader.broker
        session = broker.cluster._lifecycle._session
        await trio.leader.produce(b"x")
        session._renewed_at -= 1000
        broker.replication.check_session()
        assert (await trio.leader.produce(b"y", acks=ONE))[0] == int(ErrorCode.not_leader_or_follower)
        assert (await trio.leader.fetch(max_wait_ms=0)).error_code == int(ErrorCode.not_leader_or_follower)
        await trio.until_led()
        assert await trio.leader.produce(b"y") == (0, 1)

    on_three_nodes(scenario)


async def fetched_as(
    member: SimMember, node: int, node_epoch: int, leader_epoch: int, *, logged_in_as: int | None = None
) -> Any:
    """Error code of the whole, and the answer for the partition. Left out: logged in as that node."""
    partition = member.partition()
    question = ReplicaQuestion(0, leader_epoch, 0, -1, 0, 1 << 20)
    request = write_replica_fetch(
        node, node_epoch, [(partition.topic_id, [question])], max_wait_ms=0, max_bytes=1 << 20
    )
    connection = await member.connect()
    await log_in_as_node(connection, node if logged_in_as is None else logged_in_as, member.broker.cluster)
    frame = await connection.call_raw(ApiKey.FETCH, REPLICA_FETCH_VERSION, request, timeout_ms=1000)
    connection.abort()
    code, answers = read_replica_fetch_reply(memoryview(frame))
    return ErrorCode(code), answers.get((partition.topic_id, 0))


def test_only_the_current_incarnation_of_a_registered_node_fetches_as_replica() -> None:
    """R3, R11."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        leader, follower = trio.leader, trio.followers[0]
        await leader.produce(b"x")
        epoch = leader.broker.cluster.view.nodes[follower.node_id].epoch
        led = trio.state.leader_epoch
        assert (await fetched_as(leader, 77, 1, led))[0] is ErrorCode.cluster_authorization_failed
        assert (await fetched_as(leader, follower.node_id, epoch - 1, led))[0] is ErrorCode.stale_broker_epoch
        for later in (epoch + 1, 1 << 62):
            refused, _ = await fetched_as(leader, follower.node_id, later, led)
            assert refused is ErrorCode.broker_id_not_registered
        _, newer = await fetched_as(leader, follower.node_id, epoch, led + 1)
        assert newer.error_code == int(ErrorCode.unknown_leader_epoch)
        _, answer = await fetched_as(leader, follower.node_id, epoch, led)
        assert (answer.error_code, answer.high_watermark) == (0, 1)
        assert len(answer.records) > 0

    on_three_nodes(scenario)


def test_a_follower_is_woken_by_the_log_end_and_not_by_time() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await trio.clients.tasks.sleep(1)
        began = trio.clients.clock.monotonic()
        await trio.leader.produce(b"x")
        assert trio.clients.clock.monotonic() - began < 0.2

    on_three_nodes(scenario, settings={"replica.fetch.wait.max.ms": "10000"})


def test_a_follower_that_stays_behind_leaves_and_returns() -> None:
    """R15, R16: acknowledgements wait until it is out, and it is back once it has caught up."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        leader, slow = trio.leader, trio.followers[0]
        fetcher = slow.broker.replication._fetchers[leader.node_id]
        following = slow.partition().role
        fetcher.remove(following)
        slow.broker.peers.drop(leader.node_id, FETCH)
        code, offset = await leader.produce(b"x")
        assert (code, offset) in ((0, 0), (int(ErrorCode.request_timed_out), -1))
        await trio.until(lambda: slow.node_id not in trio.state.isr)
        assert (await leader.produce(b"y"))[0] == 0
        fetcher.add(following)
        await trio.until_all_in_sync()
        assert slow.log_end == leader.log_end

    on_three_nodes(scenario, settings={"replica.lag.time.max.ms": "1000"})


def test_a_busy_partition_is_asked_for_without_the_idle_ones() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create(partitions=12)
        leader = trio.leader
        await trio.until(lambda: all(leader.partition(index=n).takes_writes for n in range(12)))
        fetcher = trio.followers[0].broker.replication._fetchers[leader.node_id]
        for _ in range(40):
            assert (await leader.produce(b"x", index=11))[0] == 0
            await trio.clients.tasks.sleep(0.1)
        assert len(fetcher._busy) <= FEW
        assert trio.followers[0].partition(index=11).role in fetcher._busy
        assert len(fetcher) == 12
        assert (await leader.produce(b"y", index=5))[0] == 0, "the idle ones are followed all the same"
        assert trio.followers[0].partition(index=5).role in fetcher._busy

    on_three_nodes(scenario)


def test_records_are_deleted_on_every_replica_before_the_reply() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        for number in range(4):
            await trio.leader.produce(b"%d" % number)
        assert await trio.leader.delete_records(3) == 3
        assert {member.partition().log_start_offset for member in trio.up} == {3}

    on_three_nodes(scenario)


def test_a_damaged_replica_is_fetched_again_once_it_is_out_of_the_isr() -> None:
    """R27."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await trio.leader.produce(b"x")
        damaged = trio.followers[0]
        damaged.partition().fault(CorruptLogError("a bit is wrong"))
        assert not damaged.partition().online
        assert damaged.node_id in trio.state.isr
        await trio.leader.produce(b"y", acks=ONE)
        await trio.until(lambda: damaged.node_id not in trio.state.isr)
        await trio.until_all_in_sync()
        assert damaged.log_end == 2
        assert damaged.batches() == trio.leader.batches()
        kept = [name for name in damaged.files.listdir(directory_of().parent) if name.endswith("-stray")]
        assert len(kept) == 1, "what is damaged may still be of use to somebody"

    on_three_nodes(scenario, settings={"replica.lag.time.max.ms": "1000"})


def test_a_replica_that_is_moved_away_leaves_nothing_on_disk() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create(1, 2)
        await trio.leader.produce(b"x")
        move = {"partition_index": 0, "replicas": [2, 3]}
        fields = {"topics": [{"name": TOPIC, "partitions": [move]}], "timeout": 5000}
        await trio.leader.ask(ALTER_REASSIGNMENTS, fields)
        await trio.until(lambda: set(trio.state.replicas) == {2, 3} and trio.state.leader in (2, 3))
        await trio.until(lambda: trio.members[1].broker.partitions.get(TOPIC, 0) is None)
        await trio.until_led()
        await trio.until(lambda: trio.leader.partition().high_watermark == 1)
        assert not trio.members[1].files.exists(directory_of())
        assert await trio.leader.values() == [b"x"]
        assert trio.members[3].log_end == 1

    on_three_nodes(scenario)


def test_a_replica_that_was_moved_while_its_node_was_down_goes_when_it_returns() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create(1, 2)
        await trio.leader.produce(b"x")
        gone = trio.members[1]
        await gone.kill()
        await trio.until(lambda: trio.state.leader == 2)
        await trio.until_led()
        move = {"partition_index": 0, "replicas": [2, 3]}
        fields = {"topics": [{"name": TOPIC, "partitions": [move]}], "timeout": 5000}
        await trio.leader.ask(ALTER_REASSIGNMENTS, fields)
        await trio.until(lambda: set(trio.state.replicas) == {2, 3})
        assert gone.files.exists(directory_of())
        await gone.start()
        assert not gone.files.exists(directory_of())
        assert await trio.leader.values() == [b"x"]

    on_three_nodes(scenario)


async def coordinator(trio: SimTrio) -> SimMember:
    asked = {"key_type": 0, "coordinator_keys": ["g"]}
    for _ in range(200):
        found = (await trio.up[0].ask(FIND_COORDINATOR, asked, 4)).coordinators[0]
        if int(found.error_code) == 0 and trio.members[found.node_id].is_up:
            return trio.members[found.node_id]
        await trio.clients.tasks.sleep(0.05)
    raise AssertionError("no coordinator")


async def commit(member: SimMember, offset: int) -> ErrorCode:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": TOPIC, "partitions": [partition]}],
    }
    reply = await member.ask(OFFSET_COMMIT, fields, 8)
    return ErrorCode(reply.topics[0].partitions[0].error_code)


async def committed(member: SimMember) -> int:
    fields = {
        "groups": [{"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}],
        "require_stable": False,
    }
    group = (await member.ask(OFFSET_FETCH, fields, 8)).groups[0]
    assert int(group.error_code) == 0
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset


def test_committed_offsets_move_with_their_leader() -> None:
    """R31: another node reads them from its replica of the log and goes on."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        first = await coordinator(trio)
        await trio.clients.tasks.sleep(1)
        assert await commit(first, 7) is ErrorCode.none
        await first.kill()
        await trio.clients.tasks.sleep(1)
        second = await coordinator(trio)
        assert second is not first
        assert await committed(second) == 7

    on_three_nodes(scenario, settings={"offsets.topic.num.partitions": "3"})


def test_a_group_writes_nothing_while_too_few_replicas_are_in_sync() -> None:
    """R17: refused at once, as Apache Kafka does; what is committed can be read."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        first = await coordinator(trio)
        await trio.clients.tasks.sleep(1)
        assert await commit(first, 7) is ErrorCode.none
        others = [member for member in trio.up if member is not first]
        for member in others:
            await member.kill()
        index = first.broker.groups.partition_of("g")
        partition = first.partition(OFFSETS_TOPIC, index)
        await trio.until(lambda: partition.role.refusal_before_append() is not None and partition.leads)
        await trio.clients.tasks.sleep(2)  # the coordinator may have been loaded anew
        end_offset, asked_at = partition.log_end_offset, trio.clients.clock.monotonic()
        assert await commit(first, 8) is ErrorCode.coordinator_not_available
        assert trio.clients.clock.monotonic() - asked_at < 1, "nothing is waited for"
        assert partition.log_end_offset == end_offset, "nothing was written"
        assert await committed(first) == 7
        for member in others:
            await member.start()
        await trio.until(lambda: partition.role.refusal_before_append() is None)
        assert await committed(first) == 7, "what was refused is not written later"
        assert await commit(first, 9) is ErrorCode.none
        assert await committed(first) == 9

    on_three_nodes(scenario, settings={"offsets.topic.num.partitions": "1", "min.insync.replicas": "2"})


def test_a_restarted_node_knows_what_was_committed() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await trio.leader.produce(b"x")
        follower = trio.followers[0]
        await trio.until(lambda: follower.partition().high_watermark == 1)
        await follower.stop()
        assert follower.files.exists(directory_of().parent / "replication-offset-checkpoint")
        await follower.start()
        assert follower.partition().high_watermark == 1
        assert len(trio.up) == len(NODES)

    on_three_nodes(scenario)


def test_metrics_show_replica_lag_and_partitions_below_the_minimum() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        follower = trio.followers[0]
        await trio.until(lambda: follower.broker.replication.figures().followed == 1)
        for each in trio.followers:
            await each.kill()
        await trio.until(lambda: len(trio.state.isr) == 1)
        await trio.until_led()
        assert trio.leader.broker.replication.figures().below_min_insync == 1

    on_three_nodes(scenario, settings={"headrace.lag.enable": "false"})


def test_a_node_keeps_checking_its_session_after_an_unexpected_error() -> None:
    """R7: else it would lead for ever, whatever its session does."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        leader = trio.leader
        replication, errors = leader.broker.replication, [ValueError("not foreseen")]
        check_session = replication.check_session

        def stumble() -> None:
            if errors:
                raise errors.pop()
            check_session()

        replication.check_session = stumble  # type: ignore[method-assign]
        await trio.clients.tasks.sleep(1)
        assert errors == []
        lifecycle = leader.broker.cluster._lifecycle
        assert lifecycle is not None
        assert lifecycle._heartbeat is not None
        lifecycle._heartbeat.cancel()
        await trio.until(lambda: not leader.partition().leads)

    on_three_nodes(scenario)


def test_a_leader_accepts_writes_after_an_unexpected_error_while_saving_its_epoch() -> None:
    async def scenario(trio: SimTrio) -> None:
        errors = [ValueError("not foreseen")]
        for member in trio.up:
            for thread in member.broker.replication._epoch_threads:
                thread.run = _stumbling(thread.run, errors)  # type: ignore[method-assign]
        await trio.create()
        assert errors == []
        assert await trio.leader.produce(b"0") == (0, 0)

    on_three_nodes(scenario)


def _stumbling(run: Any, errors: list[ValueError]) -> Any:
    async def stumble(*call: Any) -> Any:
        if errors:
            raise errors.pop()
        return await run(*call)

    return stumble


def test_a_full_disk_is_published_after_an_unexpected_error() -> None:
    async def scenario(trio: SimTrio) -> None:
        report, errors = trio.members[1].broker.disk_report, [ValueError("not foreseen")]
        note_partitions = report._note_partitions

        def stumble() -> None:
            if errors:
                raise errors.pop()
            note_partitions()

        report._note_partitions = stumble  # type: ignore[method-assign]
        trio.members[1].broker.partitions.writable = False
        report.check()
        await trio.until(lambda: trio.members[2].broker.cluster.view.nodes[1].full, within_s=0.9)
        assert errors == []

    on_three_nodes(scenario)
