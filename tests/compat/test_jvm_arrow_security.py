# SPDX-License-Identifier: Apache-2.0
"""headrace.read, write and transaction against Apache Kafka behind TLS and every SASL mechanism we speak."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.client.sasl import AuthenticationFailed, OAuthBearer, Plain, ScramSha256, ScramSha512
from headrace.client.security import Security
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.guarded_kafka import CERTIFICATES, PASSWORD, Guarded, guarded_kafka

pytestmark = pytest.mark.compat_jvm

TABLE = pa.table({"value": [b"%d" % n for n in range(1000)]})


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_kafka(kafka_engine, tmp_path_factory.mktemp("guarded")) as node:
        yield node


@pytest.fixture
def name(kafka: Guarded, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.plain})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    return topic


def trusted(certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    if certificate is not None:
        context.load_cert_chain(CERTIFICATES / certificate)
    return context


def token(*, lifetime_s: int = 600) -> str:
    """What Kafka's development handler takes: an unsigned JSON web token."""

    def part(fields: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': 'ann', 'iat': now, 'exp': now + lifetime_s})}."


def round_trip(bootstrap: str, topic: str, security: Security) -> None:
    assert headrace.write(TABLE, topic, bootstrap=bootstrap, security=security).records == 1000
    back = headrace.read(topic, bootstrap=bootstrap, security=security).read_all()
    assert sorted(back["value"].to_pylist()) == sorted(TABLE["value"].to_pylist())


@pytest.mark.parametrize(
    "mechanism",
    [Plain("ann", PASSWORD), ScramSha256("ann", PASSWORD), ScramSha512("ann", PASSWORD), OAuthBearer(token)],
    ids=lambda mechanism: mechanism.name,
)
def test_every_mechanism_over_tls(kafka: Guarded, name: str, mechanism: Any) -> None:
    round_trip(kafka.login, name, Security(tls=trusted(), sasl=mechanism))


def test_mutual_tls(kafka: Guarded, name: str) -> None:
    round_trip(kafka.mutual, name, Security(tls=trusted("client.pem")))
    with pytest.raises(ClientError, match=r"CERTIFICATE|certificate|closed the connection"):
        round_trip(kafka.mutual, name, Security(tls=trusted()))


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (Plain("ann", "wrong"), r"localhost:\d+ refuses the PLAIN login: .*; check user, password or token"),
        (ScramSha256("ann", "wrong"), "refuses the SCRAM-SHA-256 login: .*invalid credentials"),
        (ScramSha512("nobody", PASSWORD), "refuses the SCRAM-SHA-512 login: .*invalid credentials"),
        (OAuthBearer(lambda: token(lifetime_s=-5)), "token|OAUTHBEARER login"),
    ],
    ids=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
)
def test_a_wrong_login_is_an_error_at_once(kafka: Guarded, mechanism: Any, words: str) -> None:
    started = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=words):
        headrace.read("t", bootstrap=kafka.login, security=Security(tls=trusted(), sasl=mechanism))
    assert time.monotonic() - started < 10, "no other tries"


def test_a_mechanism_that_the_listener_does_not_take(kafka: Guarded) -> None:
    with pytest.raises(AuthenticationFailed, match="does not offer SCRAM-SHA-256; it offers PLAIN"):
        headrace.read("t", bootstrap=kafka.brief, security=Security(sasl=ScramSha256("ann", PASSWORD)))
    with pytest.raises(AuthenticationFailed, match=r"refuses SASL|does not offer SASL"):
        headrace.read("t", bootstrap=kafka.plain, security=Security(sasl=Plain("ann", PASSWORD)))


def test_a_transaction_over_tls_with_scram(kafka: Guarded, name: str) -> None:
    security = Security(tls=trusted(), sasl=ScramSha512("ann", PASSWORD))
    with headrace.transaction(name, bootstrap=kafka.login, security=security) as transaction:
        transaction.write(TABLE, name)
        transaction.send_offsets({(name, 0): 5}, name)
    deadline = time.monotonic() + 15
    while headrace.read(name, bootstrap=kafka.plain).read_all().num_rows < 1000:
        assert time.monotonic() < deadline


def test_logins_that_run_out_are_renewed_while_rows_are_written(kafka: Guarded, name: str) -> None:
    """The broker hangs up on a login older than 1.5 s; each row is there once, in order."""
    security = Security(sasl=Plain("ann", PASSWORD))
    batches = 40

    def slowly() -> Iterator[Any]:
        for place in range(batches):
            time.sleep(0.1)  # rows are written for longer than a login lasts
            yield from pa.table({"value": [f"{place * 50 + n}" for n in range(50)]}).to_batches()

    with headrace.transaction(name, bootstrap=kafka.brief, security=security) as transaction:
        for batch in slowly():
            transaction.write(batch, name, partitioner="round_robin")
    everything = headrace.read(
        name, bootstrap=kafka.brief, security=security, committed_only=False, columns=["value", "partition"]
    ).read_all()
    for partition in (0, 1):
        rows = everything.filter(pc.equal(everything["partition"], partition))["value"].to_pylist()
        assert [int(value) for value in rows] == sorted(int(value) for value in rows)
    assert sorted(int(value) for value in everything["value"].to_pylist()) == list(range(50 * batches))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_of_a_group_outlives_its_logins(kafka: Guarded, name: str, protocol: Any) -> None:
    """Heartbeats, commits and fetches go on over logins that end after 1.5 s; each row is handed out once."""
    security = Security(sasl=Plain("ann", PASSWORD))
    options: Any = {"bootstrap": kafka.brief, "security": security, "group": name, "protocol": protocol}
    heard: list[Any] = []
    found: list[int] = []
    with headrace.stream(name, on_assigned=heard.append, on_revoked=heard.append, **options) as stream:
        for place in range(5):
            rows = pa.table({"value": [b"%d" % (place * 50 + n) for n in range(50)]})
            headrace.write(rows, name, bootstrap=kafka.plain, partitioner="round_robin")
            while len(found) < (place + 1) * 50:
                found += [int(value) for value in next(stream)["value"].to_pylist()]
            time.sleep(1)  # the member lives for longer than a login lasts
        assert heard == [[(name, 0), (name, 1)]]
        stream.commit()
    assert sorted(found) == list(range(250))
    with headrace.stream(name, **options) as stream:
        assert stream.poll(1000) is None, "all of it was committed"
