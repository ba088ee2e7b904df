# SPDX-License-Identifier: Apache-2.0
"""Logins are answered in the read that brought them, unless they are refused."""

from __future__ import annotations

from headrace.broker.network.connection import KafkaConnection
from headrace.broker.security.login import Login
from headrace.broker.security.mechanism import Success
from headrace.broker.security.node_login import NODE_MECHANISM
from headrace.client.sasl import NodeScram
from headrace.principal import node, user
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply, encode_request
from tests.harness.broker.fake_clients import FakeTransport
from tests.harness.broker.simulated_node import SimBroker, on_a_node

HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE


class AcceptsAll:
    """A mechanism that is content with any message."""

    slow = False

    def answer(self, message: bytes) -> Success:
        return Success(message=b"", principal=user("ann"))


class Client:
    """A connection to the node's own listener, whose bytes arrive within the call."""

    def __init__(self, member: SimBroker) -> None:
        self._listener = member.config.inter_broker_listener
        self.connection: KafkaConnection = member.broker.connections.factory(self._listener)()
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def send(self, *requests: tuple[ApiKey, dict[str, object]]) -> None:
        frames = [encode_request(key, 1, 7, "c", fields) for key, fields in requests]
        self.transport.sent.clear()
        self.transport.arrive(b"".join(frames))

    def reply(self, key: ApiKey) -> tuple[ErrorCode, bytes]:
        """Error code and message of the reply that has been sent."""
        _, reply = decode_reply(key, 1, memoryview(bytes(self.transport.sent))[4:])
        return ErrorCode(reply.error_code), bytes(getattr(reply, "auth_bytes", b""))

    def begin(self) -> None:
        self.send((HANDSHAKE, {"mechanism": NODE_MECHANISM}))
        assert self.reply(HANDSHAKE)[0] is ErrorCode.none


def test_each_step_of_a_login_is_answered_at_once() -> None:
    async def scenario(member: SimBroker) -> None:
        client, login = Client(member), member.broker.node_login
        client.send((ApiKey.API_VERSIONS, {}))
        assert client.reply(ApiKey.API_VERSIONS)[0] is ErrorCode.none
        client.begin()
        messages = NodeScram("3", login._key("3")).conversation()
        client.send((AUTHENTICATE, {"auth_bytes": next(messages)}))
        client.send((AUTHENTICATE, {"auth_bytes": messages.send(client.reply(AUTHENTICATE)[1])}))
        assert client.reply(AUTHENTICATE)[0] is ErrorCode.none
        assert client.connection.principal == node(3)

    on_a_node(scenario)


def test_a_refusal_is_delayed_and_closes_the_connection() -> None:
    async def scenario(member: SimBroker) -> None:
        client = Client(member)
        client.begin()
        client.send((AUTHENTICATE, {"auth_bytes": b"nonsense"}))
        assert not client.transport.sent
        delay_s = member.config["connection.failed.authentication.delay.ms"] / 1000
        await member.clients.tasks.sleep(delay_s / 2)
        assert not client.transport.sent
        await member.clients.tasks.sleep(delay_s)
        assert client.reply(AUTHENTICATE)[0] is ErrorCode.sasl_authentication_failed
        await member.clients.tasks.sleep(1)
        assert client.transport.ended

    on_a_node(scenario)


def test_nothing_is_handled_behind_the_login_of_a_client_in_the_place_of_a_node() -> None:
    async def scenario(member: SimBroker) -> None:
        client, connections = Client(member), member.broker.connections
        connections._admit_candidate(client.connection)
        client.connection.login = Login("TOY", AcceptsAll(), unframed=False)
        next_login = HANDSHAKE, {"mechanism": NODE_MECHANISM}
        client.send((AUTHENTICATE, {"auth_bytes": b"anything"}), next_login)
        assert client.transport.aborted
        assert client.connection.principal == user("ann")
        assert client.connection.login is None
        assert not client.transport.sent

    on_a_node(scenario)
