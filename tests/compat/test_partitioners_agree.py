# SPDX-License-Identifier: Apache-2.0
"""One key, one partition: from our code, from confluent-kafka and from the Java client (D4)."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from headrace.client.partitioning.partitioners import hash_partition, murmur2
from headrace.client.tools.admin import Admin
from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from tests.harness.left_out import leave_out

COUNT = 100_000
PARTITIONS = 12

JAVA = """
import java.io.*;
import java.util.*;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class Murmur {
    public static void main(String[] arguments) throws IOException {
        int partitions = Integer.parseInt(arguments[0]);
        BufferedReader keys = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out));
        for (String line; (line = keys.readLine()) != null; ) {
            byte[] key = HexFormat.of().parseHex(line);
            out.println(Utils.murmur2(key) + " " + BuiltInPartitioner.partitionForKey(key, partitions));
        }
        out.flush();
    }
}
"""


def random_keys() -> list[bytes]:
    """Of every length from nothing to 40 bytes; printed by the seed when a run fails."""
    seed = int(os.environ.get("HEADRACE_TEST_SEED", "20260131"))
    random = Random(seed)
    return [random.randbytes(random.randrange(41)) for _ in range(COUNT)]


@pytest.mark.row("D4")
def test_confluent_kafka_sends_100000_keys_where_we_would(bootstrap: str, topic: str) -> None:
    Admin(bootstrap).create_topic(topic, partitions=PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": COUNT + 1,
            "linger.ms": 20,
        }
    )
    wrong: list[tuple[bytes, int, int]] = []
    delivered = 0

    def check(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1
        key, partition = message.key(), message.partition()  # type: ignore[attr-defined]
        if partition != hash_partition(key, PARTITIONS):
            wrong.append((key, partition, hash_partition(key, PARTITIONS)))

    for number, key in enumerate(random_keys()):
        producer.produce(topic, key=key, value=b"", on_delivery=check)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert delivered == COUNT
    assert wrong == []


@pytest.mark.row("D4")
@pytest.mark.compat_jvm
def test_the_java_client_hashes_100000_keys_as_we_do(tmp_path: Path) -> None:
    missing = why_kafka_is_missing()
    if missing:
        leave_out("Apache Kafka", missing)
    source = tmp_path / "Murmur.java"
    source.write_text(JAVA)
    keys = random_keys()
    text = "".join(key.hex() + "\n" for key in keys)
    try:
        done = KafkaEngine().tool(str(source), str(PARTITIONS), stdin=text)
    except EngineError as error:
        leave_out("Apache Kafka", str(error))
    if "jdk.compiler" in done.stderr:
        leave_out("Java programs", "this Java cannot compile: install a JDK")
    assert done.returncode == 0, done.output
    vectors = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert vectors == [(murmur2(key), hash_partition(key, PARTITIONS)) for key in keys]
