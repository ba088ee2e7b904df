# SPDX-License-Identifier: Apache-2.0
"""What a coordinator refuses: the same requests to Apache Kafka and to a live node, the same error codes.

Unknown members, stale generations and epochs, illegal sessions, oversized metadata, inconsistent protocols.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups import wire as wire
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient

pytestmark = [pytest.mark.compat_jvm, pytest.mark.row("D12")]

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
SESSION_MS = 10_000
TOPIC = "refusals"
NO_MEMBER = "nobody-00000000-0000-0000-0000-000000000000"
_names = itertools.count()

Case = Callable[["Broker"], list[str]]


class Broker:
    """One of the two, asked one request at a time; groups are new for each case."""

    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap, timeout_s=30)
        self._bootstrap = bootstrap
        self.group = ""

    def close(self) -> None:
        self._client.socket.close()

    def begin(self, group: str) -> None:
        self.group = group
        while self.ask("find_coordinator", key_type=0, coordinator_keys=[group]).coordinators[0].error_code:
            pass
        while self.fetch() in (["coordinator_load_in_progress"], ["not_coordinator"]):
            pass

    def ask(self, name: str, *, version: int | None = None, **fields: Any) -> Any:
        self._client.send(wire.request(name, fields, version=version))
        frame = self._client.receive()
        assert frame is not None, f"{name} closed the connection"
        return wire.read_reply(name, frame, version=version)

    # -- what most cases need, as error names ---------------------------------------------------------------

    def join(self, member_id: str = "", *, version: int = 9, **changes: Any) -> Any:
        fields = wire.join_fields(self.group, member_id, [TOPIC], session_ms=SESSION_MS)
        return self.ask("join_group", version=version, **{**fields, **changes})

    def sync(self, member_id: str, generation: int, **changes: Any) -> str:
        fields = wire.sync_fields(self.group, member_id, generation, {})
        return str(self.ask("sync_group", **{**fields, **changes}).error_code.name)

    def heartbeat(self, member_id: str, generation: int, **changes: Any) -> str:
        fields = {"group_id": self.group, "generation_id": generation, "member_id": member_id, **changes}
        return str(self.ask("heartbeat", **fields).error_code.name)

    def commit(self, member_id: str, epoch: int, **changes: Any) -> list[str]:
        fields = wire.commit_fields(self.group, member_id, epoch, TOPIC, {0: 5, 1: 6})
        reply = self.ask("offset_commit", **{**fields, **changes})
        return [part.error_code.name for topic in reply.topics for part in topic.partitions]

    def fetch(self, **changes: Any) -> list[str]:
        asked = wire.fetch_fields(self.group, TOPIC, [0], **changes)
        (group,) = self.ask("offset_fetch", **asked).groups
        return [group.error_code.name]

    def beat(self, member_id: str, epoch: int, **changes: Any) -> Any:
        """A KIP-848 heartbeat; a whole one when it joins."""
        fields: dict[str, Any] = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            fields |= {
                "rebalance_timeout": 10_000,
                "subscribed_topic_names": [TOPIC],
                "topic_partitions": [],
            }
        return self.ask("consumer_group_heartbeat", **{**fields, **changes})

    def leave(self, *members: Mapping[str, Any], version: int = 5) -> list[str]:
        reply = self.ask("leave_group", version=version, group_id=self.group, members=list(members))
        return [reply.error_code.name, *(member.error_code.name for member in reply.members)]

    def stable(self, **changes: Any) -> tuple[str, int]:
        """A group of one member: its id and generation."""
        given = self.join(**changes).member_id
        joined = self.join(given, **changes)
        assert joined.error_code is ErrorCode.none
        share = {joined.member_id: wire.assignment({TOPIC: [0, 1]})}
        fields = wire.sync_fields(self.group, joined.member_id, joined.generation_id, share)
        fields["group_instance_id"] = changes.get("group_instance_id")
        assert self.ask("sync_group", **fields).error_code is ErrorCode.none
        return joined.member_id, joined.generation_id


# -- cases: what is asked, and the codes that come back ---------------------------------------------------


def unknown_member(broker: Broker) -> list[str]:
    _, generation = broker.stable()
    return [
        broker.join(NO_MEMBER).error_code.name,
        broker.sync(NO_MEMBER, generation),
        broker.heartbeat(NO_MEMBER, generation),
        *broker.commit(NO_MEMBER, generation),
        *broker.leave({"member_id": NO_MEMBER}),
        *broker.leave({"member_id": NO_MEMBER, "group_instance_id": "nobody"}),
    ]


def unknown_group(broker: Broker) -> list[str]:
    deleted = broker.ask("delete_groups", groups_names=[broker.group]).results[0].error_code.name
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    return [
        broker.join(NO_MEMBER).error_code.name,
        broker.sync(NO_MEMBER, 1),
        broker.heartbeat(NO_MEMBER, 1),
        *broker.commit(NO_MEMBER, 1),
        *broker.leave({"member_id": NO_MEMBER}),
        deleted,
        broker.ask("offset_delete", group_id=broker.group, topics=topics).error_code.name,
        broker.ask("describe_groups", version=6, groups=[broker.group]).groups[0].error_code.name,
        broker.ask("describe_groups", version=5, groups=[broker.group]).groups[0].group_state,
        broker.ask("consumer_group_describe", group_ids=[broker.group]).groups[0].error_code.name,
        *broker.fetch(),
        *broker.fetch(member_id=NO_MEMBER, epoch=3),
    ]


def stale_generation(broker: Broker) -> list[str]:
    member, generation = broker.stable()
    return [
        broker.sync(member, generation - 1),
        broker.sync(member, generation + 1),
        broker.heartbeat(member, generation - 1),
        broker.heartbeat(member, generation + 1),
        *broker.commit(member, generation - 1),
        *broker.commit(member, generation + 1),
        *broker.commit(member, -1),
        *broker.commit("", -1),
        *broker.commit("", generation),
    ]


def illegal_session(broker: Broker) -> list[str]:
    sessions = (-1, 0, 5_999, 6_000, 1_800_000, 1_800_001, 2_147_483_647)
    return [broker.join(session_timeout=session).error_code.name for session in sessions]


def oversized_metadata(broker: Broker) -> list[str]:
    member, generation = broker.stable()
    codes = []
    for size in (4096, 4097, 32_000):
        fields = wire.commit_fields(broker.group, member, generation, TOPIC, {0: 5}, "m" * size)
        codes += broker.commit(member, generation, topics=fields["topics"])
    mixed = wire.commit_fields(broker.group, member, generation, TOPIC, {0: 5, 1: 6})["topics"]
    mixed[0]["partitions"][0]["committed_metadata"] = "m" * 5000
    return codes + broker.commit(member, generation, topics=mixed)


def inconsistent_protocols(broker: Broker) -> list[str]:
    member, generation = broker.stable()
    other = [{"name": "sticky", "metadata": b""}]
    return [
        broker.join(protocols=other).error_code.name,
        broker.join(protocol_type="connect").error_code.name,
        broker.join(protocol_type="").error_code.name,
        broker.join(protocols=[]).error_code.name,
        broker.join(member, protocols=other, version=4).error_code.name,
        broker.sync(member, generation, protocol_name="sticky"),
        broker.sync(member, generation, protocol_type="connect"),
    ]


def static_members(broker: Broker) -> list[str]:
    member, generation = broker.stable(group_instance_id="one")
    named = {"group_instance_id": "one"}
    return [
        broker.join(NO_MEMBER, **named).error_code.name,
        broker.sync(NO_MEMBER, generation, **named),
        broker.heartbeat(NO_MEMBER, generation, **named),
        broker.heartbeat(member, generation, group_instance_id="two"),
        *broker.commit(NO_MEMBER, generation, **named),
        *broker.commit(member, generation, group_instance_id="two"),
        *broker.leave({"member_id": NO_MEMBER, **named}),
        *broker.leave({"member_id": "", "group_instance_id": "two"}),
        *broker.leave({"member_id": "", **named}),
    ]


def wrong_names(broker: Broker) -> list[str]:
    broker.group = ""
    return [
        broker.join().error_code.name,
        broker.sync(NO_MEMBER, 1),
        broker.heartbeat(NO_MEMBER, 1),
        *broker.commit("", -1),
        *broker.leave({"member_id": NO_MEMBER}),
        broker.beat(NO_MEMBER, 0).error_code.name,
        broker.ask("delete_groups", groups_names=[""]).results[0].error_code.name,
        broker.ask("describe_groups", version=5, groups=[""]).groups[0].error_code.name,
        broker.ask("find_coordinator", key_type=9, coordinator_keys=["g"]).coordinators[0].error_code.name,
    ]


def offsets_of_unknown_partitions(broker: Broker) -> list[str]:
    codes = []
    for topic, partition in ((TOPIC, 99), ("no-such-topic", 0)):
        fields = wire.commit_fields(broker.group, "", -1, topic, {partition: 1})
        codes += broker.commit("", -1, topics=fields["topics"])
    return codes


def busy_groups(broker: Broker) -> list[str]:
    member, generation = broker.stable()
    broker.commit(member, generation)
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    reply = broker.ask("offset_delete", group_id=broker.group, topics=topics)
    of_partitions = [part.error_code.name for topic in reply.topics for part in topic.partitions]
    deleted = broker.ask("delete_groups", groups_names=[broker.group]).results[0].error_code.name
    beat = broker.beat("member-of-another-protocol", 4).error_code.name
    return [reply.error_code.name, *of_partitions, deleted, beat]


def modern_members(broker: Broker) -> list[str]:
    member = "m" * 22
    joined = broker.beat(member, 0)
    epoch = joined.member_epoch
    return [
        joined.error_code.name,
        broker.beat(NO_MEMBER, epoch).error_code.name,
        broker.beat(member, epoch + 1).error_code.name,
        broker.beat(member, epoch + 7).error_code.name,
        *broker.commit(NO_MEMBER, epoch),
        *broker.commit(member, epoch - 1),
        *broker.commit(member, epoch + 1),
        *broker.commit("", -1),
        *broker.fetch(member_id=member, epoch=epoch + 1),
        *broker.fetch(member_id=NO_MEMBER, epoch=epoch),
        *broker.fetch(),
        broker.join().error_code.name,
        broker.heartbeat(member, epoch),
        broker.ask("delete_groups", groups_names=[broker.group]).results[0].error_code.name,
    ]


def malformed_heartbeats(broker: Broker) -> list[str]:
    def joining(**changes: Any) -> str:
        return str(broker.beat("m" * 22, 0, **changes).error_code.name)

    held = [{"topic_id": UUID(int=7), "partitions": [0]}]
    return [
        joining(rebalance_timeout=-1),
        joining(rebalance_timeout=0),
        joining(subscribed_topic_names=None),
        joining(topic_partitions=None),
        joining(topic_partitions=held),
        joining(server_assignor="no-such-assignor"),
        joining(server_assignor=""),
        joining(subscribed_topic_regex="("),
        joining(subscribed_topic_names=None, subscribed_topic_regex="(?=x)"),
        joining(instance_id=""),
        joining(rack_id=""),
        broker.beat("", 0, member_epoch=0).error_code.name,
        broker.beat("m" * 22, -3).error_code.name,
        broker.beat("m" * 22, -1).error_code.name,
        broker.beat("m" * 22, -2).error_code.name,
        broker.beat("m" * 22, 5).error_code.name,
    ]


CASES: list[Case] = [
    unknown_member,
    unknown_group,
    stale_generation,
    illegal_session,
    oversized_metadata,
    inconsistent_protocols,
    static_members,
    wrong_names,
    offsets_of_unknown_partitions,
    busy_groups,
    modern_members,
    malformed_heartbeats,
]


@pytest.fixture(scope="module")
def brokers(
    kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    folder = tmp_path_factory.mktemp("refusals")
    with (
        kafka_engine.start(folder / "kafka", SETTINGS) as kafka,
        NodeProcess(folder / "headrace", settings=SETTINGS) as headrace,
    ):
        for bootstrap in (kafka.bootstrap, headrace.bootstrap):
            with RawClient(bootstrap) as client:
                client.create_topic(TOPIC, 2)
        pair = Broker(kafka.bootstrap), Broker(headrace.bootstrap)
        yield pair
        for broker in pair:
            broker.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_bad_input_is_refused_as_apache_kafka_does(brokers: tuple[Broker, Broker], case: Case) -> None:
    codes = []
    for broker in brokers:
        broker.begin(f"refusals-{next(_names)}")
        codes.append(case(broker))
    theirs, ours = codes
    assert ours == theirs
