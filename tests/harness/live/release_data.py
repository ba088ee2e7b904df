# SPDX-License-Identifier: Apache-2.0
"""The data folder that a release leaves behind, for tests of later ones: topics, groups, transactions, users.

`python -m tests.harness.live.release_data` writes that of the installed release to tests/data/releases, once
for each release; those of earlier releases are never written again. With a commit as argument it writes that
of the sources as they were then: `EARLIER` has the commits after which a format changed.
Read next: tests/integration/test_upgrade.py.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.version import __version__
from tests.harness.live.earlier_release import (
    LAST_WITHOUT_LOGINS,
    LAST_WITHOUT_STORE_HISTORY,
    LAST_WITHOUT_TRANSACTIONS,
    earlier_sources,
)
from tests.harness.live.node import NodeProcess

FOLDER = Path(__file__).resolve().parents[2] / "data" / "releases"
TOPICS = {"plain": 2, "compacted": 1, "paid": 1}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP, TRANSACTIONAL_ID, USER = "readers", "payments", "alice"
EARLIER = {
    LAST_WITHOUT_LOGINS: ("plain", "compacted"),
    LAST_WITHOUT_TRANSACTIONS: ("plain", "compacted"),
    LAST_WITHOUT_STORE_HISTORY: tuple(TOPICS),
}
"""Which topics the folder of a commit has; without "paid": no transactions, and no users."""
NEVER_EXPIRE = {
    "offsets.retention.minutes": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
}
"""However long ago the folder was written."""
_SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
_TIMEOUT_S = 15.0


def write_user(bootstrap: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion(USER, credential, b"alice-secret", b"salt" * 8)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(_TIMEOUT_S)


def write_records(bootstrap: str, names: Collection[str] = TOPICS.keys()) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    policy = {"compacted": "compact"}
    topics = [
        NewTopic(
            name, TOPICS[name], 1, config={"retention.ms": "-1", "cleanup.policy": policy.get(name, "delete")}
        )
        for name in names
    ]
    for future in admin.create_topics(topics).values():
        future.result(_TIMEOUT_S)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(4):
            headers: list[tuple[str, str | bytes | None]] = [("codec", codec.encode()), ("empty", None)]
            producer.produce("plain", f"{codec} {number}" * 9, f"k{number}", number % 2, headers=headers)
            producer.produce("compacted", f"{codec} {number}", f"k{number}")
        assert producer.flush(_TIMEOUT_S) == 0


def write_group(bootstrap: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("plain", 0, 7, "half of it")], asynchronous=False)
    return consumer


def write_transactions(bootstrap: str, consumer: Consumer) -> Producer:
    """The producer has a transaction open, which the end of this process leaves so."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID}
    producer = Producer(settings)
    producer.init_transactions(_TIMEOUT_S)
    offsets = {"committed": 3, "aborted": 9, "committed later": 5}
    for state in (*offsets, "open"):
        producer.begin_transaction()
        producer.produce("paid", state, "order")
        if state in offsets:  # readers of pending ones would wait
            moved = [TopicPartition("plain", 1, offsets[state])]
            producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), _TIMEOUT_S)
        assert producer.flush(_TIMEOUT_S) == 0
        if state.startswith("committed"):
            producer.commit_transaction(_TIMEOUT_S)
        elif state == "aborted":
            producer.abort_transaction(_TIMEOUT_S)
    return producer


def observe(bootstrap: str, names: Collection[str] = TOPICS.keys()) -> dict[str, Any]:
    """What clients see of it, as values of JSON."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resources = [ConfigResource("topic", name) for name in names]
    described = admin.describe_configs(resources, request_timeout=_TIMEOUT_S)
    configs = {resource.name: future.result(_TIMEOUT_S) for resource, future in described.items()}
    seen = {
        "records": {name: _read(bootstrap, name, TOPICS[name]) for name in names},
        "group": _committed(bootstrap),
        "policies": {name: found["cleanup.policy"].value for name, found in sorted(configs.items())},
    }
    return seen | ({"iterations": _iterations(admin)} if "paid" in names else {})


def _iterations(admin: AdminClient) -> list[int]:
    users: Any = admin.describe_user_scram_credentials([USER])
    return [info.iterations for info in users[USER].result(_TIMEOUT_S).scram_credential_infos]


def _read(bootstrap: str, topic: str, partitions: int) -> list[list[Any]]:
    """Every committed record: partition, offset, key, value and headers.

    Of a compacted topic the last of each key: others may be gone once the folder is old.
    """
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "group.id": "unused"}
    consumer = Consumer({**settings, "bootstrap.servers": bootstrap, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    rows, ended = [], 0
    while ended < partitions:
        message = consumer.poll(_TIMEOUT_S)
        assert message is not None, f"{topic}: no record and no end within {_TIMEOUT_S} s"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
            continue
        received: Any = message.headers() or []
        headers = [[name, value and value.decode()] for name, value in received]
        key, value = (field and field.decode() for field in (message.key(), message.value()))
        rows.append([message.partition(), message.offset(), key, value, headers])
    consumer.close()
    rows.sort()
    return list({row[2]: row for row in rows}.values()) if topic == "compacted" else rows


def _committed(bootstrap: str) -> list[list[Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    asked = [TopicPartition("plain", number) for number in range(TOPICS["plain"])]
    found = [[each.partition, each.offset, each.metadata] for each in consumer.committed(asked, _TIMEOUT_S)]
    consumer.close()
    return found


def write_folder(name: str, topics: Collection[str], sources: Path | None) -> Path:
    """`sources`: of an earlier commit; None: those of this tree."""
    archive, seen = FOLDER / f"{name}.tar.gz", FOLDER / f"{name}.json"
    FOLDER.mkdir(exist_ok=True)
    if sources is not None:
        os.environ["PYTHONPATH"] = str(sources)
    settings = _SETTINGS if "paid" in topics else {"offsets.topic.num.partitions": "2"}
    with tempfile.TemporaryDirectory() as folder, NodeProcess(Path(folder), settings=settings) as node:
        write_records(node.bootstrap, topics)
        consumer, producer = write_group(node.bootstrap), None
        if "paid" in topics:
            write_user(node.bootstrap)
            producer = write_transactions(node.bootstrap, consumer)
        consumer.close()
        seen.write_text(json.dumps(observe(node.bootstrap, topics), indent=1) + "\n")
        node.stop()
        with tarfile.open(archive, "w:gz") as file:
            file.add(node.data, "data")
        if producer is not None:
            producer.purge()
    return archive


def main(commit: str | None = None) -> None:
    if commit is None:
        archive = write_folder(__version__, TOPICS, None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            archive = write_folder(commit, EARLIER[commit], earlier_sources(commit, Path(folder)))
    print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
