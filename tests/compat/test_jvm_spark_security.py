# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sinks on Apache Kafka behind TLS and SASL: by the names that Java's clients use."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.java import find_java
from headrace.pipelines.spark_session.session import spark_session
from tests.compat.guarded_kafka import CERTIFICATES, MODULES, PASSWORD, USER, Guarded, guarded_kafka
from tests.harness.left_out import leave_out

pytestmark = [pytest.mark.compat_jvm, pytest.mark.filterwarnings("ignore::FutureWarning")]

TIMEOUT_S = 120
ROWS = 200
ONE_NODE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
SCRAM = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": (
        f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    ),
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
}
WRONG = f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="wrong";'


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    session = spark_session("local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_kafka(kafka_engine, tmp_path_factory.mktemp("guarded"), ONE_NODE) as node:
        yield node


@pytest.fixture
def name(kafka: Guarded, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.plain})
    for each in (topic, f"{topic}-copies"):
        admin.create_topics([NewTopic(each, 2, 1)])[each].result(30)
    return topic


def values_in(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(headrace.read(topic, bootstrap=bootstrap).read_all()["value"].to_pylist())


def test_a_stream_copies_exactly_once_over_scram_and_tls(
    spark: Any, kafka: Guarded, name: str, tmp_path: Path
) -> None:
    """The sink's own topics are made, its batches staged and its transactions run behind the login, too."""
    spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value").write.format("headrace").options(
        bootstrap=kafka.login, topic=name, **SCRAM
    ).mode("append").save()
    query = (
        spark.readStream.format("headrace")
        .options(bootstrap=kafka.login, subscribe=name, startingOffsets="earliest", group=name, **SCRAM)
        .load()
        .select("value")
        .writeStream.format("headrace")
        .options(bootstrap=kafka.login, topic=f"{name}-copies", commitMessageBytes=100, **SCRAM)
        .option("exactlyOnce", "batch")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S)
    assert values_in(kafka.plain, f"{name}-copies") == sorted(b"%d" % n for n in range(ROWS))


def test_a_certificate_given_as_text_is_shown_to_the_broker(spark: Any, kafka: Guarded, name: str) -> None:
    key, certificate = (CERTIFICATES / "client.pem").read_text().split("-----END PRIVATE KEY-----\n")
    options = {
        "bootstrap": kafka.mutual,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.certificates": (CERTIFICATES / "ca.pem").read_text(),
        "kafka.ssl.keystore.certificate.chain": certificate,
        "kafka.ssl.keystore.key": f"{key}-----END PRIVATE KEY-----",
    }
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("headrace").options(topic=name, **options).mode("append").save()
    assert spark.read.format("headrace").options(subscribe=name, **options).load().count() == ROWS


def test_a_clients_file_and_a_token_and_spark_shows_neither_password(
    spark: Any, kafka: Guarded, name: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(unsecured_token())
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path}/token\n"
        f"ssl.truststore.location={CERTIFICATES / 'ca.pem'}\n"
    )
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("headrace").options(bootstrap=kafka.login, topic=name, config=str(file)).mode(
        "append"
    ).save()
    options = {"bootstrap": kafka.login, "subscribe": name}
    assert spark.read.format("headrace").options(config=str(file), **options).load().count() == ROWS
    shown = spark.read.format("headrace").options(**options, **SCRAM).load()
    assert PASSWORD not in shown._jdf.queryExecution().toString()


def unsecured_token() -> str:
    """What Kafka's development handler takes."""
    claims = {"sub": USER, "iat": int(time.time()) - 1, "exp": int(time.time()) + 600}
    parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kafka.sasl.jaas.config": WRONG}, "refuses the SCRAM-SHA-512 login"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, r"kafka\.ssl\.truststore\.\w+ has no effect"),
        ({"kafka.ssl.truststore.location": str(CERTIFICATES / "none.pem")}, "none.pem' cannot be used"),
    ],
)
def test_security_failures_are_errors(
    spark: Any, kafka: Guarded, name: str, changed: dict[str, str], said: str
) -> None:
    options = {"bootstrap": kafka.login, "subscribe": name, **SCRAM, **changed}
    with pytest.raises(Exception, match=said):  # whatever Spark makes of it
        spark.read.format("headrace").options(**options).load().count()
