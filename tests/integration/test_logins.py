# SPDX-License-Identifier: Apache-2.0
"""Logins by SASL on a live node, with the clients in use and with raw frames (S1, S5, S6, S7)."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramMechanism

import headrace
from headrace.client.errors import ClientError
from headrace.client.sasl import OAuthBearer, ScramSha256, ScramSha512
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.live.raw_client import RawClient
from tests.harness.live.secured_node import SecuredNode
from tests.harness.tokens import Issuer, oauth_settings
from tests.harness.waiting import poll

SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
WRONG = [("ann", "wrong"), ("nobody", "secret")]
CLOSED_WITHIN_S = 5
LOGIN_LIMIT_S = 10
BATCH = pa.record_batch({"value": [b"v"]})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("logins"), {"connections.max.reauth.ms": "3600000"}) as node:
        node.set_password("ann", "secret")
        yield node


# Clients: each writes one record and one more after each pause, or raises its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    bootstrap: str
    mechanism: str = "SCRAM-SHA-512"
    user: str = "ann"
    password: str = "secret"


Pauses = Sequence[float]
Write = Callable[[Login, str, Pauses], None]


def with_confluent(login: Login, topic: str, pauses: Pauses = ()) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": login.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )

    def refused() -> bool:
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    def write() -> None:
        delivered: list[KafkaError | None] = []
        producer.produce(topic, b"v", on_delivery=lambda error, _: delivered.append(error))
        poll(lambda: producer.poll(0.05) or delivered or refused(), timeout_s=20)
        if refused():
            producer.purge()
            producer.flush(5)
            raise KafkaException(errors[0])
        assert delivered == [None]

    write()
    for pause_s in pauses:
        time.sleep(pause_s)  # the length of a session is what is tested
        write()


def with_kafka_python(login: Login, topic: str, pauses: Pauses = ()) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=login.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=login.mechanism,
        sasl_plain_username=login.user,
        sasl_plain_password=login.password,
        max_block_ms=10_000,
        bootstrap_timeout_ms=5_000,
    )
    try:
        producer.send(topic, b"v").get(10)
        for pause_s in pauses:
            time.sleep(pause_s)  # the length of a session is what is tested
            producer.send(topic, b"v").get(10)
    finally:
        producer.close(timeout=5)


def with_aiokafka(login: Login, topic: str, pauses: Pauses = ()) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=login.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=login.mechanism,
            sasl_plain_username=login.user,
            sasl_plain_password=login.password,
        )
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"v")
            for pause_s in pauses:
                await asyncio.sleep(pause_s)
                await producer.send_and_wait(topic, b"v")
        finally:
            await producer.stop()

    asyncio.run(main())


def with_headrace(login: Login, topic: str, pauses: Pauses = ()) -> None:
    sasl = (ScramSha256 if login.mechanism == "SCRAM-SHA-256" else ScramSha512)(login.user, login.password)
    security = headrace.Security(sasl=sasl)

    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        for pause_s in pauses:
            time.sleep(pause_s)  # the length of a session is what is tested
            yield BATCH

    headrace.write(batches(), topic, bootstrap=login.bootstrap, security=security)


CLIENTS = [with_confluent, with_kafka_python, with_aiokafka, with_headrace]
REFUSALS = (KafkaException, kafka.errors.KafkaError, aiokafka.errors.KafkaError, ClientError)


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("write", CLIENTS)
def test_a_client_writes_after_its_login(node: SecuredNode, write: Write, mechanism: str, topic: str) -> None:
    with RawClient(node.open) as client:
        client.create_topic(topic)
        write(Login(bootstrap=node.secure, mechanism=mechanism), topic, ())
        assert client.end_offset(topic) == 1


@pytest.mark.parametrize("write", CLIENTS)
@pytest.mark.parametrize(("user", "password"), WRONG)
def test_a_client_is_told_that_its_login_is_wrong(
    node: SecuredNode, write: Write, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(REFUSALS) as caught:
        write(Login(bootstrap=node.secure, user=user, password=password), "t-refused", ())
    told = f"{type(caught.value).__name__} {caught.value} {caplog.text}"  # some clients only log the reason
    assert "authentication" in told.lower()


# Frames


def handshake(client: RawClient, mechanism: str, version: int = 1) -> ErrorCode:
    return client.call(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism}).error_code


def log_in(client: RawClient, user: str = "ann", password: str = "secret") -> int:
    """Session lifetime in milliseconds; AssertionError when the login is refused."""
    assert handshake(client, "SCRAM-SHA-512") is ErrorCode.none
    messages = ScramSha512(user, password).conversation()
    message = next(messages)
    while True:
        reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        assert reply.error_code is ErrorCode.none, reply.error_message
        try:
            message = messages.send(bytes(reply.auth_bytes))
        except StopIteration:
            return int(reply.session_lifetime.total_seconds() * 1000)


def ask_for_metadata(client: RawClient) -> object:
    return client.call(ApiKey.METADATA, 9, {"topics": []})


def test_a_request_before_the_login_closes_the_connection(node: SecuredNode) -> None:
    with RawClient(node.secure) as client:
        assert client.call(ApiKey.API_VERSIONS, 2, {}).error_code is ErrorCode.none
        with pytest.raises(ConnectionResetError):
            ask_for_metadata(client)
    with RawClient(node.secure) as client:
        handshake(client, "SCRAM-SHA-256")
        with pytest.raises(ConnectionResetError):
            ask_for_metadata(client)


@pytest.mark.parametrize("command", [("topics", "list"), ("groups", "list"), ("top", "--once")], ids=" ".join)
def test_a_command_without_a_login_says_that_the_listener_may_ask_for_one(
    node: SecuredNode, command: tuple[str, ...]
) -> None:
    arguments = [sys.executable, "-m", "headrace.cli.main", *command, "--bootstrap", node.secure]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "closed the connection" in done.stderr
    assert "if the listener asks for a login, give --command-config client.properties" in done.stderr


def test_a_message_of_a_login_without_its_handshake_closes_the_connection(node: SecuredNode) -> None:
    with RawClient(node.secure) as client, pytest.raises(ConnectionResetError):
        client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"n,,n=ann,r=x"})


def test_a_wrong_password_and_an_unknown_user_get_the_same_answer_and_a_closed_connection(
    node: SecuredNode,
) -> None:
    sentences, times = [], []
    for user, password in WRONG:
        with RawClient(node.secure) as client:
            started = time.monotonic()
            with pytest.raises(AssertionError) as caught:
                log_in(client, user, password)
            times.append(time.monotonic() - started)
            sentences.append(str(caught.value).splitlines()[0])
            assert client.is_closed_by_node(CLOSED_WITHIN_S)
    assert sentences[0] == sentences[1]
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in sentences[0]
    assert min(times) >= 0.1  # connection.failed.authentication.delay.ms


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "OAUTHBEARER", "", "HEADRACE"])
def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(
    node: SecuredNode, mechanism: str
) -> None:
    with RawClient(node.secure) as client:
        reply = client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
        assert reply.error_code is ErrorCode.unsupported_sasl_mechanism
        assert list(reply.mechanisms) == SCRAM
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_after_handshake_0_messages_come_as_bare_frames(node: SecuredNode) -> None:
    with RawClient(node.secure) as client:
        assert handshake(client, "SCRAM-SHA-256", version=0) is ErrorCode.none
        messages = ScramSha256("ann", "secret").conversation()
        message = next(messages)
        for last in (False, True):
            client.send(struct.pack(">i", len(message)) + message)
            answer = client.receive()
            assert answer is not None
            message = b"" if last else messages.send(answer)
        with pytest.raises(StopIteration):
            messages.send(answer)
        ask_for_metadata(client)
    with RawClient(node.secure) as client:
        handshake(client, "SCRAM-SHA-256", version=0)
        client.send(struct.pack(">i", 4) + b"n,,x")
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


def test_a_frame_before_the_login_may_have_512_kib_and_after_it_more(node: SecuredNode) -> None:
    with RawClient(node.secure) as client:
        client.send(struct.pack(">i", 512 * 1024 + 1))
        assert client.is_closed_by_node(CLOSED_WITHIN_S)
    with RawClient(node.secure) as client:
        log_in(client)
        long = client.frame(ApiKey.METADATA, 9, {"topics": [{"name": "t" * 30_000} for _ in range(20)]})
        assert len(long) > 512 * 1024
        client.send(long)
        assert client.receive() is not None


def test_a_client_has_ten_seconds_to_log_in(node: SecuredNode) -> None:
    with RawClient(node.secure) as silent, RawClient(node.secure) as slow, RawClient(node.secure) as right:
        log_in(right)
        started = time.monotonic()
        handshake(slow, "SCRAM-SHA-256")
        for client in (silent, slow):
            assert client.is_closed_by_node(LOGIN_LIMIT_S + CLOSED_WITHIN_S)
        assert time.monotonic() - started >= LOGIN_LIMIT_S - 2
        ask_for_metadata(right)


def test_a_changed_or_deleted_password_holds_for_new_logins(node: SecuredNode) -> None:
    node.set_password("bob", "old", "SCRAM-SHA-512")
    with RawClient(node.secure) as before:
        log_in(before, "bob", "old")
        node.set_password("bob", "new", "SCRAM-SHA-512")
        with RawClient(node.secure) as after:
            log_in(after, "bob", "new")
        with RawClient(node.secure) as after, pytest.raises(AssertionError):
            log_in(after, "bob", "old")
        node.set_password("bob", "new", "SCRAM-SHA-256")
        node.delete_user("bob")
        with RawClient(node.secure) as after, pytest.raises(AssertionError):
            log_in(after, "bob", "new")
        ask_for_metadata(before)


def test_users_are_described_by_kafkas_api_without_secrets(node: SecuredNode) -> None:
    node.set_password("o=brien, ü", "x", "SCRAM-SHA-256")
    admin = AdminClient({"bootstrap.servers": node.open})
    everybody = admin.describe_user_scram_credentials().result(20)
    (info,) = everybody["o=brien, ü"].scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
    with RawClient(node.secure) as client, pytest.raises(AssertionError):
        log_in(client, "o=brien, ü", "x")  # it has no SCRAM-SHA-512
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["nobody"])["nobody"].result(20)
    node.process.log_path.read_text().index("o=brien")
    assert "secret" not in node.process.log_path.read_text()


# Sessions (KIP-368)


@pytest.fixture(scope="module")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    settings = {"listener.name.secure.connections.max.reauth.ms": "3000"}
    with SecuredNode(tmp_path_factory.mktemp("sessions"), settings) as node:
        node.set_password("ann", "secret")
        node.set_password("bob", "secret")
        yield node


def test_a_session_that_is_not_renewed_ends_with_the_next_request(short_sessions: SecuredNode) -> None:
    with RawClient(short_sessions.secure) as renewed, RawClient(short_sessions.secure) as left:
        for client in (renewed, left):
            assert log_in(client) == 3000
        for _ in range(3):
            time.sleep(2)  # the length of a session is what is tested
            assert log_in(renewed) == 3000
            ask_for_metadata(renewed)
        with pytest.raises(ConnectionResetError):
            ask_for_metadata(left)


def test_a_session_is_not_renewed_by_another_user(short_sessions: SecuredNode) -> None:
    with RawClient(short_sessions.secure) as client:
        log_in(client)
        with pytest.raises(AssertionError, match="invalid credentials"):
            log_in(client, "bob")
        assert client.is_closed_by_node(CLOSED_WITHIN_S)


@pytest.mark.parametrize("write", CLIENTS)
def test_clients_go_on_beyond_the_end_of_a_session(
    short_sessions: SecuredNode, write: Write, topic: str
) -> None:
    """librdkafka logs in again on its connection; the others open a new one."""
    with RawClient(short_sessions.open) as client:
        client.create_topic(topic)
        write(Login(bootstrap=short_sessions.secure), topic, (2, 2, 5.5))
        assert client.end_offset(topic) == 4


# Tokens


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def token_node(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    directory: Path = tmp_path_factory.mktemp("tokens")
    with SecuredNode(directory, oauth_settings(issuer.write_jwks(directory / "keys.json"))) as node:
        yield node


def confluent_by_token(bootstrap: str, token: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 60),
            "log_level": 0,
        }
    )


def test_confluent_logs_in_by_a_token(token_node: SecuredNode, issuer: Issuer) -> None:
    admin = confluent_by_token(token_node.secure, issuer.token())
    admin.poll(0)
    assert admin.list_topics(timeout=10).brokers
    wrong = confluent_by_token(token_node.secure, issuer.token(aud="else"))
    wrong.poll(0)
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=3)
    assert poll(lambda: "another audience" in token_node.process.log_path.read_text())


def test_our_client_logs_in_by_a_token(token_node: SecuredNode, issuer: Issuer, topic: str) -> None:
    with RawClient(token_node.open) as client:
        client.create_topic(topic)
    right = headrace.Security(sasl=OAuthBearer(token=issuer.token))
    headrace.write(BATCH, topic, bootstrap=token_node.secure, security=right)
    wrong = headrace.Security(sasl=OAuthBearer(token=lambda: issuer.token(lifetime_s=-60)))
    with pytest.raises(ClientError, match="refuses the OAUTHBEARER login"):
        headrace.write(BATCH, topic, bootstrap=token_node.secure, security=wrong)


def test_a_session_ends_with_its_token(token_node: SecuredNode, issuer: Issuer) -> None:
    def message(lifetime_s: float) -> dict[str, bytes]:
        token = issuer.token(lifetime_s=lifetime_s)
        return {"auth_bytes": f"n,,\1auth=Bearer {token}\1\1".encode()}

    with RawClient(token_node.secure) as client:
        handshake(client, "OAUTHBEARER")
        reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, message(3))
        assert 1 < reply.session_lifetime.total_seconds() <= 3
        ask_for_metadata(client)
        time.sleep(5.5)  # until the token has expired
        with pytest.raises(ConnectionResetError):
            ask_for_metadata(client)


def test_a_wrong_token_gets_the_error_of_rfc_7628_and_then_a_refusal(token_node: SecuredNode) -> None:
    with RawClient(token_node.secure) as client:
        handshake(client, "OAUTHBEARER")
        wrong = f"n,,\1auth=Bearer {Issuer().token()}\1\1".encode()
        reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": wrong})
        assert (reply.error_code, bytes(reply.auth_bytes)) == (ErrorCode.none, b'{"status":"invalid_token"}')
        reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\1"})
        assert reply.error_code is ErrorCode.sasl_authentication_failed
        assert client.is_closed_by_node(CLOSED_WITHIN_S)
