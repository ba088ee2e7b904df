# SPDX-License-Identifier: Apache-2.0
"""Nodes prove who they are to each other, in open clusters too (S3)."""

from __future__ import annotations

from random import Random

import pytest

from headrace.broker.security.node_login import NODE_MECHANISM, NodeLogin, is_from_node
from headrace.client.sasl import AuthenticationFailed
from headrace.principal import ANONYMOUS, Principal, node, user
from headrace.types import EVENTS_TOPIC, ClusterView
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import HOST, PORT, TOPIC, SimBroker, on_a_node
from tests.harness.broker.three_nodes import NODES, SimTrio, on_three_nodes
from tests.harness.simulation.clients import log_in_as_node, open_connection

REQUIRED = ClusterView(version=1, cluster_id="c", node_login_required=True)
UPGRADING = ClusterView(version=1, cluster_id="c")


@pytest.mark.parametrize(
    ("principal", "node_id", "required", "expected"),
    [
        (node(3), 3, True, True),
        (node(3), None, True, True),
        (node(3), 4, True, False),
        (node(3), 4, False, False),
        (ANONYMOUS, 3, True, False),
        (ANONYMOUS, None, True, False),
        (user("3"), 3, True, False),
        (ANONYMOUS, 3, False, True),
    ],
)
def test_only_a_node_that_logged_in_acts_as_that_node(
    principal: Principal, node_id: int | None, required: bool, expected: bool
) -> None:
    assert is_from_node(REQUIRED if required else UPGRADING, principal, node_id) is expected


def test_a_wrong_secret_is_refused_and_the_connection_closed() -> None:
    async def scenario(member: SimBroker) -> None:
        connection = await member.connect()
        with pytest.raises(AuthenticationFailed, match="refuses the HEADRACE-NODE-SCRAM"):
            await NodeLogin(node_id=1, secret=lambda: b"guessed", random=Random(1)).authenticate(connection)
        await connection.ended()

    on_a_node(scenario)


def test_the_mechanism_of_nodes_is_not_offered_to_clients() -> None:
    async def scenario(member: SimBroker) -> None:
        connection = await member.connect()
        reply = await connection.call(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        assert reply.error_code is ErrorCode.illegal_sasl_state
        assert NODE_MECHANISM not in reply.mechanisms

    on_a_node(scenario)


def test_a_login_is_required_once_every_node_logs_in() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        assert all(member.broker.cluster.view.node_login_required for member in trio.up)

    on_three_nodes(scenario)


def test_requests_of_nodes_are_refused_without_a_login() -> None:
    """A client without any secret could end a partition's replication with two requests."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        leader, follower = trio.leader, trio.followers[0]
        view = leader.broker.cluster.view
        controller = trio.members[view.controller_id]
        connection = await controller.connect()
        alter = {
            "broker_id": follower.node_id,
            "broker_epoch": view.nodes[follower.node_id].epoch,
            "topics": [],
        }
        reply = await connection.call(ApiKey.ALTER_PARTITION, alter)
        assert reply.error_code is ErrorCode.cluster_authorization_failed
        beat = {"broker_id": view.controller_id, "broker_epoch": view.nodes[view.controller_id].epoch}
        beat |= {"current_metadata_offset": 0, "want_fence": False, "want_shut_down": False}
        reply = await connection.call(ApiKey.BROKER_HEARTBEAT, beat)
        assert reply.error_code is ErrorCode.cluster_authorization_failed
        envelope = {"request_data": b"", "request_principal": b"User:admin", "client_host_address": b""}
        reply = await connection.call(ApiKey.ENVELOPE, envelope)
        assert reply.error_code is ErrorCode.cluster_authorization_failed

    on_three_nodes(scenario)


def test_a_node_does_not_act_for_another_node() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        controller = trio.members[trio.leader.broker.cluster.view.controller_id]
        claimed, other = NODES[:2]
        connection = await controller.connect()
        await log_in_as_node(connection, other, controller.broker.cluster)
        epoch = controller.broker.cluster.view.nodes[claimed].epoch
        alter = {"broker_id": claimed, "broker_epoch": epoch, "topics": []}
        reply = await connection.call(ApiKey.ALTER_PARTITION, alter)
        assert reply.error_code is ErrorCode.cluster_authorization_failed

    on_three_nodes(scenario)


def test_ends_of_epochs_as_a_replica_need_the_login_of_that_replica() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        connection = await trio.leader.connect()
        partition = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}
        topics = [{"topic": TOPIC, "partitions": [partition]}]
        fields = {"replica_id": trio.followers[0].node_id, "topics": topics}
        reply = await connection.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, fields)
        assert reply.topics[0].partitions[0].error_code is ErrorCode.cluster_authorization_failed

    on_three_nodes(scenario)


def test_a_consumer_that_calls_itself_a_replica_is_told_the_offsets_of_a_consumer() -> None:
    """kafka-python leaves the replica's id at 0."""

    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        connection = await trio.leader.connect()
        partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        for replica_id in (0, trio.followers[0].node_id):
            fields = {"replica_id": replica_id, "isolation_level": 0, "topics": topics}
            found = (await connection.call(ApiKey.LIST_OFFSETS, fields)).topics[0].partitions[0]
            assert (found.error_code, found.offset) == (ErrorCode.none, 0)

    on_three_nodes(scenario)


def test_a_client_id_gives_no_right_to_write_internal_topics() -> None:
    async def scenario(member: SimBroker) -> None:
        assert await member.create(EVENTS_TOPIC) == ErrorCode.none
        for client_id in ("__admin_client", "node-1"):
            connection = await open_connection(member.clients, HOST, PORT, client_id)
            fields = member.produce_fields(b"forged", name=EVENTS_TOPIC)
            reply = await connection.call(ApiKey.PRODUCE, fields, version=8)
            refused = reply.responses[0].partition_responses[0]
            assert refused.error_code is ErrorCode.invalid_topic_exception
        assert member.partition(EVENTS_TOPIC).log_end_offset == 0

    on_a_node(scenario)
