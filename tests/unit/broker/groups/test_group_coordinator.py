# SPDX-License-Identifier: Apache-2.0
"""Groups on a whole simulated node: membership, offsets, restarts, chores, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from headrace.broker.coordinators.coordinated_topic import RELOAD_AFTER_S, RELOAD_NEWER_AFTER_S
from headrace.broker.coordinators.machine_loading import MachineLoading
from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.broker.partition.partition import Partition
from headrace.broker.reporting.group_families import group_figures
from headrace.broker.reporting.metrics_export import MetricsExport
from headrace.errors import ApiError
from headrace.machines.groups.group import Group
from headrace.machines.machine import TimelineEvent
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_batch, plain_record
from headrace.world import Thread
from tests.harness.broker.group_client import RANGE, GroupClient
from tests.harness.broker.simulated_node import SimBroker, on_a_node

QUICK = {"group.initial.rebalance.delay.ms": "0"}
WAITING = {"group.initial.rebalance.delay.ms": "3000"}
NONE = ErrorCode.none
JOIN = {
    "session_timeout": 6000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}


async def stable_member(node: SimBroker, group: str = "g") -> GroupClient:
    client = await GroupClient.of(node, group)
    await client.join()
    assert (await client.sync({client.member_id: b"mine"})).assignment == b"mine"
    return client


async def loaded(node: SimBroker) -> None:
    await asyncio.sleep(1)
    assert list(node.broker.groups.groups())


def test_clients_get_load_in_progress_while_groups_are_loaded():
    async def scenario(node: SimBroker) -> None:
        client, loading = await GroupClient.of(node), ErrorCode.coordinator_load_in_progress
        node.broker.groups._drivers[node.broker.groups.partition_of("g")].serving = False
        assert (await client.join()).error_code is loading
        assert (await client.sync()).error_code is ErrorCode.rebalance_in_progress
        assert await client.heartbeat() is NONE, "nobody is forgotten meanwhile"
        assert (await client.call("list_groups")).error_code is loading
        assert (await client.call("describe_groups", 6, groups=["g"])).groups[0].error_code is loading
        assert (await client.call("delete_groups", groups_names=["g"])).results[0].error_code is loading
        found = await client.call("find_coordinator", 6, key_type=0, coordinator_keys=["g"])
        assert found.coordinators[0].error_code is NONE

    on_a_node(scenario)


def test_a_request_behind_one_that_the_end_of_its_driver_answers_ends_no_driver_twice(
    caplog: pytest.LogCaptureFixture,
):
    """Found by fuzzing: the answer lets the next request in, which looks for drivers in the middle of it."""

    async def scenario(node: SimBroker) -> None:
        await GroupClient.of(node)
        connection = await node.connect()
        joined = connection.send(ApiKey.JOIN_GROUP, {"group_id": "g", **JOIN}, version=3)
        behind = connection.send(ApiKey.HEARTBEAT, {"group_id": "g"}, version=3)
        await asyncio.sleep(1)
        assert await node.delete(OFFSETS_TOPIC) == NONE
        assert (await joined).error_code is ErrorCode.not_coordinator
        assert (await behind).error_code is ErrorCode.not_coordinator
        assert not node.broker.groups._drivers

    on_a_node(scenario, settings=WAITING)
    assert not [record for record in caplog.records if record.exc_info]


def test_the_first_question_makes_the_topic_as_kafka_does():
    async def scenario(node: SimBroker) -> None:
        assert OFFSETS_TOPIC not in node.broker.cluster.view.topics
        client = await GroupClient.of(node)
        topic = node.broker.cluster.view.topics[OFFSETS_TOPIC]
        assert (len(topic.partitions), topic.internal) == (50, True)
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(100 * 1024 * 1024),
        }
        reply = await client.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
        assert {each.name: each.is_internal for each in reply.topics}[OFFSETS_TOPIC]

    on_a_node(scenario)


def test_without_the_offsets_topic_there_is_no_coordinator():
    async def scenario(node: SimBroker) -> None:
        client = GroupClient(await node.connect())
        assert await client.heartbeat() is ErrorCode.not_coordinator
        assert (await client.call("list_groups")).groups == ()

    on_a_node(scenario)


@pytest.mark.parametrize("version", range(10))
def test_a_group_of_one_in_every_version(version: int):
    async def scenario(node: SimBroker) -> None:
        client = await GroupClient.of(node)
        joined = await client.join(version)
        assert (joined.error_code, joined.generation_id, joined.leader) == (NONE, 1, client.member_id)
        assert client.member_id.startswith("test-")
        assert joined.members[0].metadata == RANGE[0]["metadata"]
        synced = await client.sync({client.member_id: b"all"}, min(version, 5))
        assert (synced.error_code, synced.assignment) == (NONE, b"all")
        assert await client.heartbeat(min(version, 4)) is NONE
        left = await client.leave(min(version, 5))
        assert left.error_code is NONE
        assert await client.heartbeat() is ErrorCode.unknown_member_id

    on_a_node(scenario, settings=QUICK)


def test_a_second_member_waits_for_the_first_to_join_again():
    async def scenario(node: SimBroker) -> None:
        first, second = await stable_member(node), await GroupClient.of(node)
        joining = asyncio.ensure_future(second.join())
        await asyncio.sleep(1)
        assert not joining.done()
        assert await first.heartbeat() is ErrorCode.rebalance_in_progress
        await first.join()
        assert (await joining).generation_id == first.generation == 2
        first_sync = asyncio.ensure_future(first.sync({first.member_id: b"1", second.member_id: b"2"}))
        assert (await second.sync()).assignment == b"2"
        assert (await first_sync).assignment == b"1"

    on_a_node(scenario, settings=QUICK)


def test_a_member_that_falls_silent_is_taken_out_after_its_session():
    async def scenario(node: SimBroker) -> None:
        client = await stable_member(node)
        await asyncio.sleep(9)
        assert await client.heartbeat() is NONE
        await asyncio.sleep(9)
        assert await client.heartbeat() is NONE
        await asyncio.sleep(11)
        assert await client.heartbeat() is ErrorCode.unknown_member_id

    on_a_node(scenario, settings=QUICK)


@pytest.mark.parametrize("clean", [True, False])
def test_members_and_offsets_outlive_the_node(clean: bool):
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=3)
        client = await stable_member(node)
        assert await client.commit(41, [0, 2]) == {0: NONE, 2: NONE}
        await (node.stop() if clean else node.kill())
        await node.start()
        again = GroupClient(await node.connect())
        again.member_id, again.generation = client.member_id, client.generation
        await loaded(node)
        assert await again.heartbeat() is NONE
        assert (await again.sync()).assignment == b"mine"
        assert await again.committed() == {0: 41, 2: 41}

    on_a_node(scenario, settings=QUICK)


def test_a_consumer_group_outlives_the_node():
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=4)
        client = await GroupClient.of(node)
        client.member_id = "m"
        joined = await client.beat(0, subscribed_topic_names=["t"])
        assert (joined.error_code, joined.heartbeat_interval.seconds) == (NONE, 5)
        (given,) = joined.assignment.topic_partitions
        assert sorted(given.partitions) == [0, 1, 2, 3]
        await node.kill()
        await node.start()
        again = GroupClient(await node.connect())
        again.member_id = "m"
        epoch = joined.member_epoch
        await loaded(node)
        reply = await again.beat(epoch)
        assert (reply.error_code, reply.member_epoch) == (NONE, epoch)
        described = (await again.call("consumer_group_describe", group_ids=["g"])).groups[0]
        assert described.group_state == "Stable"
        assert described.members[0].assignment.topic_partitions[0].topic_name == "t"

    on_a_node(scenario)


def test_regular_expressions_find_topics_that_are_made_later():
    async def scenario(node: SimBroker) -> None:
        await node.create("ab")
        await node.create("other")
        client = await GroupClient.of(node)
        client.member_id = "m"
        refused = await client.beat(0, subscribed_topic_regex="a(")
        assert refused.error_code is ErrorCode.invalid_regular_expression
        assert "missing )" in refused.error_message
        epoch = (await client.beat(0, subscribed_topic_regex="a.*")).member_epoch

        async def assigned_after(beats: int) -> set[str]:
            nonlocal epoch
            held: set[str] = set()
            for _ in range(beats):
                reply = await client.beat(epoch)
                epoch, names = reply.member_epoch, node.broker.cluster.view.topic_names
                if reply.assignment is not None:
                    held = {names[each.topic_id] for each in reply.assignment.topic_partitions}
                await asyncio.sleep(1)
            return held

        assert await assigned_after(5) == {"ab"}
        await node.create("ac")
        assert await assigned_after(20) == {"ab", "ac"}

    on_a_node(scenario)


def test_offsets_of_a_deleted_topic_are_removed():
    async def scenario(node: SimBroker) -> None:
        await node.create("t")
        await node.create("u")
        client = await GroupClient.of(node)
        await client.commit(5, topic="t")
        await client.commit(6, topic="u")
        await node.delete("t")
        await asyncio.sleep(1)
        assert (await client.committed("t"), await client.committed("u")) == ({}, {0: 6})

    on_a_node(scenario)


def test_offsets_expire_and_with_them_the_group():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await GroupClient.of(node)
        await client.commit(5)
        await asyncio.sleep(100)
        assert await client.committed() == {0: 5}
        await asyncio.sleep(30)
        assert await client.committed() == {}
        assert (await client.call("list_groups")).groups == ()

    settings = {"offsets.retention.minutes": "2", "offsets.retention.check.interval.ms": "1000"}
    on_a_node(scenario, settings=settings)


def test_timeline_events_and_commits_are_published_once_committed():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        lines: list[tuple[str, TimelineEvent]] = []
        commits: list[tuple[str, Sequence[tuple[str, int]]]] = []
        node.broker.groups.on_timeline = lambda *line: lines.append(line)
        node.broker.groups.on_commit = lambda *commit: commits.append(commit)
        client = await stable_member(node)
        await client.commit(3)
        assert commits == [("g", (("t", 0),))]
        assert [(group, line.kind) for group, line in lines][:1] == [("g", "join")]

    on_a_node(scenario, settings=QUICK)


def test_a_disk_without_room_sends_members_away_until_there_is_some():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await stable_member(node)
        assert await client.commit(1) == {0: NONE}
        node.broker.partitions.writable = False
        assert await client.commit(2) == {0: ErrorCode.not_coordinator}
        assert await client.commit(2) == {0: ErrorCode.not_coordinator}
        node.broker.partitions.writable = True
        await asyncio.sleep(2)
        assert await client.heartbeat() is NONE
        assert await client.committed() == {0: 1}
        assert await client.commit(2) == {0: NONE}

    on_a_node(scenario, settings=QUICK)


def test_groups_go_on_when_their_topic_was_deleted():
    async def scenario(node: SimBroker) -> None:
        client = await stable_member(node)
        waiting = asyncio.ensure_future((await GroupClient.of(node)).join())
        await asyncio.sleep(1)
        await node.delete(OFFSETS_TOPIC)
        assert (await waiting).error_code is ErrorCode.not_coordinator
        assert await client.heartbeat() is ErrorCode.not_coordinator
        await GroupClient.of(node)
        assert await client.heartbeat() is ErrorCode.unknown_member_id

    on_a_node(scenario, settings=QUICK)


def test_a_wait_for_a_commit_gets_not_coordinator_when_leadership_ends():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await stable_member(node)
        assert await client.commit(1) == {0: NONE}
        groups = node.broker.groups
        driver = groups._drivers[groups.partition_of("g")]
        driver._end_offset += 1  # as if a commit had been written and replicas had not confirmed it
        reading = asyncio.ensure_future(groups.group("g"))
        await asyncio.sleep(0.1)
        assert not reading.done()
        driver.end()
        with pytest.raises(ApiError) as refused:
            await reading
        assert refused.value.code is ErrorCode.not_coordinator

    on_a_node(scenario, settings=QUICK)


def test_a_member_retries_to_fetch_its_offsets_while_its_coordinator_is_suspended():
    """librdkafka asks no more after any answer that sends it elsewhere, and reads nothing from then on."""

    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await stable_member(node)
        await client.commit(7)
        groups = node.broker.groups
        index = groups.partition_of("g")
        asked = [{"name": "t", "partition_indexes": [0]}]
        fields = {"group_id": "g", "topics": asked, "require_stable": False}
        node.partition(OFFSETS_TOPIC, index).suspend()
        assert await client.heartbeat() is ErrorCode.not_coordinator
        suspended = await client.call("offset_fetch", 7, **fields)
        assert suspended.error_code is ErrorCode.coordinator_load_in_progress
        groups._drivers[index].end()
        ended = await client.call("offset_fetch", 7, **fields)
        assert ended.error_code is ErrorCode.coordinator_load_in_progress
        await node.delete(OFFSETS_TOPIC)
        gone = await client.call("offset_fetch", 7, **fields)
        assert gone.error_code is ErrorCode.not_coordinator

    on_a_node(scenario, settings=QUICK)


def test_unreadable_records_in_the_topic_do_not_stop_the_load():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await GroupClient.of(node)
        await client.commit(7)
        index = node.broker.groups.partition_of("g")
        for key in (b"", b"\x00\x01rubbish", b"\x00\x63", b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"):
            code, _ = await node.produce(b"", name=OFFSETS_TOPIC, index=index, key=key)
            assert code == ErrorCode.invalid_topic_exception, "not for everyone to write to"
            batch = plain_batch([plain_record(0, key, b"\x00\x04")], 1, 0)
            node.partition(OFFSETS_TOPIC, index).append_own(batch)
        await node.kill()
        await node.start()
        again = await GroupClient.of(node)
        await asyncio.sleep(1)
        assert await again.committed() == {0: 7}

    on_a_node(scenario)


def test_a_record_of_a_later_release_keeps_the_groups_from_an_older_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The load is tried again, once in a minute."""

    def failures() -> int:
        return sum("written by a newer Headrace" in record.getMessage() for record in caplog.records)

    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await GroupClient.of(node)
        await client.commit(7)
        key = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
        batch = plain_batch([plain_record(0, key, b"\x00\x05later")], 1, 0)
        node.partition(OFFSETS_TOPIC, node.broker.groups.partition_of("g")).append_own(batch)
        await node.kill()
        await node.start()
        again = await GroupClient.of(node)
        await asyncio.sleep(RELOAD_NEWER_AFTER_S / 2)
        assert failures() == 1
        with pytest.raises(AssertionError, match="coordinator"):
            await again.committed()
        await asyncio.sleep(RELOAD_NEWER_AFTER_S)
        assert failures() == 2

    on_a_node(scenario)


def test_a_stopping_node_answers_all_waiting_requests():
    async def scenario(node: SimBroker) -> None:
        await stable_member(node)
        waiting = asyncio.ensure_future((await GroupClient.of(node)).join())
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await node.stop()
        assert asyncio.get_running_loop().time() - began < 3
        assert (await waiting).error_code is ErrorCode.not_coordinator

    on_a_node(scenario, settings=QUICK)


def test_the_same_seed_gives_the_same_members():
    def member_ids() -> Iterable[str]:
        found: list[str] = []

        async def scenario(node: SimBroker) -> None:
            found.append((await stable_member(node)).member_id)

        on_a_node(scenario, settings=QUICK)
        return found

    assert member_ids() == member_ids()


def test_groups_are_counted():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await stable_member(node)
        await client.commit(3)
        await (await GroupClient.of(node, "offsets only")).commit(3)
        modern = await GroupClient.of(node, "modern")
        modern.member_id = "m"
        await modern.beat(0, subscribed_topic_names=["t"])
        groups = node.broker.metrics.groups
        stable, modern_one = ("Classic", "Stable", 1), ("Consumer", "Stable", 1)
        figures = sorted(map(group_figures, node.broker.groups.groups()))
        assert figures == [("Classic", "Empty", 0), stable, modern_one]
        assert (groups.commits, groups.rebalances) == (2, {"Classic": 1, "Consumer": 1})
        text = (await MetricsExport(node.broker.metric_sources(), node.world).render()).decode()
        assert 'headrace_groups{state="Stable",type="Consumer"} 1.0' in text
        assert "headrace_group_offsets_committed_total 2.0" in text

    on_a_node(scenario, settings=QUICK)


async def alter(client: GroupClient, name: str, value: str, group: str = "g") -> ErrorCode:
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 32, "resource_name": group, "configs": [config]}
    reply = await client.call("incremental_alter_configs", resources=[resource], validate_only=False)
    return reply.responses[0].error_code


def test_a_group_may_have_settings_of_its_own():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        name = "consumer.heartbeat.interval.ms"
        client = await GroupClient.of(node)
        assert await alter(client, name, "7000") is NONE
        client.member_id = "m"
        joined = await client.beat(0, subscribed_topic_names=["t"])
        assert joined.heartbeat_interval.seconds == 7
        assert await alter(client, name, "9000") is NONE
        assert (await client.beat(joined.member_epoch)).heartbeat_interval.seconds == 9
        asked = {"resource_type": 32, "resource_name": "g", "configuration_keys": None}
        reply = await client.call(
            "describe_configs", resources=[asked], include_synonyms=True, include_documentation=False
        )
        found = {each.name: (each.value, each.config_source) for each in reply.results[0].configs}
        assert (found[name], found["consumer.session.timeout.ms"]) == (("9000", 8), ("45000", 5))
        await node.stop()
        await node.start()
        again = await GroupClient.of(node)
        await loaded(node)
        again.member_id = "m"
        assert (await again.beat(joined.member_epoch)).heartbeat_interval.seconds == 9

    on_a_node(scenario)


def test_settings_of_a_group_are_held_within_the_nodes_bounds():
    async def scenario(node: SimBroker) -> None:
        client = await GroupClient.of(node)
        assert await alter(client, "consumer.session.timeout.ms", "1000") is ErrorCode.invalid_config
        assert await alter(client, "consumer.session.timeout.ms", "61000") is ErrorCode.invalid_config
        assert await alter(client, "share.session.timeout.ms", "1") is ErrorCode.invalid_config
        assert await alter(client, "consumer.session.timeout.ms", "50000", "") is ErrorCode.invalid_request
        assert await alter(client, "consumer.session.timeout.ms", "50000", "a_/../b%é~") is NONE
        assert node.broker.cluster.view.group_configs == {
            "a_/../b%é~": {"consumer.session.timeout.ms": "50000"}
        }
        too_long = await alter(client, "consumer.session.timeout.ms", "50000", "g" * 300)
        assert too_long is ErrorCode.invalid_request

    on_a_node(scenario)


def test_asking_for_the_topic_itself_makes_it_as_the_first_group_would():
    async def scenario(node: SimBroker) -> None:
        client = GroupClient(await node.connect())
        topics = [{"name": OFFSETS_TOPIC, "topic_id": None}]
        reply = await client.call("metadata", 12, topics=topics, allow_auto_topic_creation=True)
        assert len(reply.topics[0].partitions) == 50

    on_a_node(scenario, settings={"auto.create.topics.enable": "true"})


def test_groups_are_loaded_again_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch):
    """Else their members would hear for ever that they are being loaded."""

    async def scenario(node: SimBroker) -> None:
        await stable_member(node)
        errors = [ValueError("not foreseen")]
        load = MachineLoading.load

        async def stumble(self: MachineLoading[Group], partition: Partition, thread: Thread) -> None:
            if errors and partition.log_end_offset:
                raise errors.pop()
            await load(self, partition, thread)

        monkeypatch.setattr(MachineLoading, "load", stumble)
        await node.stop()
        await node.start()
        await asyncio.sleep(RELOAD_AFTER_S)
        await loaded(node)
        assert errors == []

    on_a_node(scenario, settings=QUICK)
