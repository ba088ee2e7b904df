# SPDX-License-Identifier: Apache-2.0
"""headrace.transaction on Apache Kafka and on Headrace, under both protocols of transactions."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.write.results import WriteFailed
from headrace.client.arrow.write.transaction_session import OutcomeUnknown, TransactionFenced
from headrace.client.connection import ConnectionLost
from headrace.client.coordinator import Coordinator
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.api_key import ApiKey
from headrace.wire.compression import Codec
from headrace.wire.records import Record, build_batch
from tests.compat.transaction_nodes import PROTOCOLS, QUICK_TIMEOUTS, transactional_node
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

KILLED = """
import os, sys, pyarrow as pa, headrace
transaction = headrace.transaction(sys.argv[2], bootstrap=sys.argv[1])
transaction.begin()
transaction.write(pa.table({"value": ["left open"] * 50}), sys.argv[3])
transaction.send_offsets({(sys.argv[3], 0): 50}, sys.argv[4])
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=PROTOCOLS)
def node(
    request: pytest.FixtureRequest, kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("transactions")
    with transactional_node(request.param, kafka_engine, folder, QUICK_TIMEOUTS) as running:
        yield running


@pytest.fixture
def kafka(node: RunningNode) -> str:
    return node.bootstrap


@pytest.fixture
def topics(kafka: str, topic: str) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": kafka})

    def create(suffix: str = "", partitions: int = 3) -> str:
        name = topic + suffix
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return create


def rows(tag: str, count: int = 30) -> Any:
    keys = [f"k{n}" for n in range(count)]
    return pa.table({"key": keys, "value": [f"{tag} {n}" for n in range(count)]})


def expected(*tags: str, count: int = 30) -> list[bytes]:
    return sorted(f"{tag} {n}".encode() for tag in tags for n in range(count))


def encoded(tag: str, codec: Codec = Codec.NONE) -> bytes:
    return bytes(build_batch([Record(n, 1, b"k", f"{tag} {n}".encode()) for n in range(30)], codec=codec))


def by_headrace(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(headrace.read(topic, bootstrap=bootstrap).read_all()["value"].to_pylist())


def by_librdkafka(bootstrap: str, topic: str, partitions: int = 3) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True}
        | {"isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(15)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message.value())
    consumer.close()
    return sorted(found)


def assert_committed(bootstrap: str, topic: str, wanted: list[bytes], *, partitions: int = 3) -> None:
    """A commit is for good when it returns; the partitions' leaders hear of it a moment later."""
    wait_until(lambda: by_headrace(bootstrap, topic) == wanted, lambda: by_headrace(bootstrap, topic))
    found = by_headrace(bootstrap, topic)
    assert found == wanted
    assert by_librdkafka(bootstrap, topic, partitions) == wanted


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    (answer,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
    return int(answer.result(30).topic_partitions[0].offset)


def test_readers_of_committed_records_see_exactly_the_committed(kafka: str, topics: Any) -> None:
    one, two = topics("-one"), topics("-two", 1)
    transaction = headrace.transaction(one, bootstrap=kafka)
    for tag, end in (("a", "commit"), ("b", "abort"), ("c", "commit"), ("d", "abort"), ("e", "commit")):
        transaction.begin()
        transaction.write(rows(tag), one, key="key", compression="lz4")
        transaction.write(rows(tag + "2"), two, batch_bytes=200)
        transaction.write(rows(tag + "3"), one)
        getattr(transaction, end)()
    transaction.begin()
    transaction.write(rows("open"), one)
    assert_committed(kafka, one, expected("a", "a3", "c", "c3", "e", "e3"))
    assert_committed(kafka, two, expected("a2", "c2", "e2"), partitions=1)
    transaction.close()
    everything = headrace.read(two, bootstrap=kafka, committed_only=False).read_all()
    assert everything.num_rows == 150


def test_a_block_commits_at_its_end_and_aborts_when_it_raises(kafka: str, topics: Any) -> None:
    name = topics()
    with headrace.transaction(name, bootstrap=kafka) as transaction:
        delivered = transaction.write(rows("kept"), name)
        assert delivered.records == 30
    with pytest.raises(ZeroDivisionError):
        write_and_raise(kafka, name)
    with headrace.transaction(name, bootstrap=kafka):
        pass  # nothing written: nothing to commit
    assert_committed(kafka, name, expected("kept"))


def write_and_raise(bootstrap: str, topic: str) -> None:
    with headrace.transaction(topic, bootstrap=bootstrap) as transaction:
        transaction.write(rows("dropped"), topic)
        raise ZeroDivisionError


def test_one_write_as_a_transaction(kafka: str, topics: Any) -> None:
    name = topics()
    headrace.write(rows("plain"), name, bootstrap=kafka, transactional_id=name)
    asyncio.run(headrace.awrite(rows("async"), name, bootstrap=kafka, transactional_id=name))
    bad = pa.table({"value": [*(f"bad {n}" for n in range(30)), "x" * 2_000_000]})
    with pytest.raises(WriteFailed, match="row 30"):
        headrace.write(bad, name, bootstrap=kafka, transactional_id=name, batch_bytes=100)
    with pytest.raises(WriteFailed, match="row 30"):
        asyncio.run(headrace.awrite(bad, name, bootstrap=kafka, transactional_id=name, batch_bytes=100))
    assert_committed(kafka, name, expected("plain", "async"))


def test_a_groups_progress_is_part_of_it(kafka: str, topics: Any) -> None:
    name = topics()
    transaction = headrace.transaction(name, bootstrap=kafka)
    for offset, end, seen in ((10, "commit", 10), (20, "abort", 10), (30, "commit", 30)):
        transaction.begin()
        transaction.write(rows(f"at {offset}"), name)
        transaction.send_offsets({(name, 0): offset, (name, 1): offset + 1}, name)
        getattr(transaction, end)()
        assert committed_offset(kafka, name, name) == seen
    transaction.begin()
    transaction.send_offsets({(name, 0): 31}, name)
    transaction.commit()  # progress alone is a transaction too
    transaction.close()
    assert (committed_offset(kafka, name, name), committed_offset(kafka, name, name, 1)) == (31, 31)


def test_a_member_that_is_not_in_the_group_is_refused(kafka: str, topics: Any) -> None:
    name = topics()
    transaction = headrace.transaction(name, bootstrap=kafka)
    transaction.begin()
    transaction.write(rows("zombie"), name)
    stranger = GroupMetadata(group=name, generation=5, member_id="nobody", instance_id=None)
    with pytest.raises(ClientError, match="the group removed this member"):
        transaction.send_offsets({(name, 0): 3}, stranger)
    with pytest.raises(ClientError, match="cannot commit: the open transaction failed"):
        transaction.commit()
    transaction.abort()
    transaction.begin()
    transaction.write(rows("honest"), name)
    transaction.commit()
    transaction.close()
    assert_committed(kafka, name, expected("honest"))


def test_transactions_of_asyncio(kafka: str, topics: Any) -> None:
    name = topics()

    async def main() -> None:
        async with headrace.atransaction(name, bootstrap=kafka) as transaction:
            delivered = await transaction.write(rows("block"), name, key="key")
            assert delivered.records == 30
            await transaction.send_offsets({(name, 0): 10}, name)
        transaction = headrace.atransaction(name, bootstrap=kafka)
        for tag, end in (("a", transaction.commit), ("b", transaction.abort), ("c", transaction.commit)):
            await transaction.begin()
            await transaction.write(rows(tag), name)
            await transaction.append_batches(name, 1, [encoded(tag + "2")])
            await end()
        await transaction.begin()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await transaction.write(rows("cancelled"), name)
        await transaction.close()
        older = headrace.atransaction(name, bootstrap=kafka)
        await older.begin()
        await older.write(rows("older"), name)
        async with headrace.atransaction(name, bootstrap=kafka):
            with pytest.raises(TransactionFenced):
                await older.commit()
        await older.close()

    asyncio.run(main())
    assert_committed(kafka, name, expected("block", "a", "a2", "c", "c2"))
    assert committed_offset(kafka, name, name) == 10


def test_offsets_of_a_topic_that_is_not_there(kafka: str, topics: Any) -> None:
    with headrace.transaction(topics(), bootstrap=kafka) as transaction:
        with pytest.raises(ClientError, match="use topics and partitions that exist"):
            transaction.send_offsets({("no-such-topic", 0): 3}, "somebody")
        transaction.abort()


@pytest.mark.parametrize("noticed", ["write", "send_offsets", "commit"])
def test_a_newer_writer_fences_off_the_older(kafka: str, topics: Any, noticed: str) -> None:
    name = topics()
    older = headrace.transaction(name, bootstrap=kafka)
    older.begin()
    older.write(rows("older"), name)
    newer = headrace.transaction(name, bootstrap=kafka)
    late = {
        "write": lambda: older.write(rows("late"), name),
        "send_offsets": lambda: older.send_offsets({(name, 0): 5}, name),
        "commit": older.commit,
    }
    with pytest.raises(TransactionFenced, match="taken over by another writer"):
        late[noticed]()
    with pytest.raises(ClientError, match=r"cannot begin a transaction: .*open it again"):
        older.begin()
    older.close()
    newer.begin()
    newer.write(rows("newer"), name)
    newer.commit()
    newer.close()
    assert_committed(kafka, name, expected("newer"))


def test_a_commit_whose_reply_was_lost_before_a_newer_writer_came_is_unknown(
    kafka: str, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was carried out, and the retry is refused as fenced: nobody may say that nothing was committed."""
    name = topics()
    call = Coordinator.call
    newer: list[Any] = []

    async def lose_the_reply(self: Coordinator, api_key: int, *arguments: Any, **more: Any) -> Any:
        reply = await call(self, api_key, *arguments, **more)
        if api_key == ApiKey.END_TXN and not newer:
            newer.append(await asyncio.to_thread(headrace.transaction, name, bootstrap=kafka))
            raise ConnectionLost("the reply was lost")
        return reply

    older = headrace.transaction(name, bootstrap=kafka)
    older.begin()
    older.write(rows("older"), name)
    monkeypatch.setattr(Coordinator, "call", lose_the_reply)
    with pytest.raises(OutcomeUnknown, match="is not known") as raised:
        older.commit()
    assert raised.value.fenced
    for each in (older, *newer):
        each.close()
    assert_committed(kafka, name, expected("older"))


def test_a_transaction_that_is_open_for_too_long_is_aborted(kafka: str, topics: Any) -> None:
    name = topics()
    transaction = headrace.transaction(name, bootstrap=kafka, transaction_timeout_ms=300)
    transaction.begin()
    transaction.write(rows("slow"), name)
    time.sleep(2)  # longer than the transaction may be open
    with pytest.raises(TransactionFenced, match="open for longer than 300 ms and was aborted"):
        transaction.commit()
    transaction.close()
    assert_committed(kafka, name, [])


def test_after_refused_rows_only_an_abort_helps_and_the_next_goes_well(kafka: str, topics: Any) -> None:
    name = topics(partitions=1)
    transaction = headrace.transaction(name, bootstrap=kafka)
    for attempt in range(2):
        transaction.begin()
        transaction.write(rows(f"doomed {attempt}"), name)
        with pytest.raises(WriteFailed, match="row 1:"):
            transaction.write(pa.table({"value": ["small", "x" * 2_000_000, "small"]}), name, batch_bytes=80)
        with pytest.raises(ClientError, match=r"cannot write: .* \(partition 0 refused row 1: .*call abort"):
            transaction.write(rows("more"), name)
        with pytest.raises(ClientError, match="cannot commit: the open transaction failed"):
            transaction.commit()
        transaction.abort()
        transaction.begin()
        transaction.write(rows(f"good {attempt}"), name)
        transaction.commit()
    transaction.close()
    assert_committed(kafka, name, expected("good 0", "good 1"), partitions=1)


def test_a_writer_killed_in_the_middle_leaves_nothing(kafka: str, topics: Any) -> None:
    name = topics()
    arguments = [sys.executable, "-c", KILLED, kafka, name, name, name]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.send_signal(signal.SIGKILL)
    with headrace.transaction(name, bootstrap=kafka) as transaction:
        transaction.write(rows("after"), name)
    assert_committed(kafka, name, expected("after"))
    assert committed_offset(kafka, name, name) < 0


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_that_were_encoded_elsewhere(kafka: str, topics: Any, codec: Codec) -> None:
    name = topics()

    def batch(tag: str) -> bytes:
        return encoded(tag, codec)

    transaction = headrace.transaction(name, bootstrap=kafka)
    for tag, end in (("a", "commit"), ("b", "abort"), ("c", "commit")):
        transaction.begin()
        delivered = transaction.append_batches(name, 1, [batch(tag), batch(tag + "2") + batch(tag + "3")])
        assert (delivered.records, list(delivered.partitions)) == (90, [1])
        transaction.append_batches(name, 2, [batch(tag + "4")])
        transaction.write(rows(tag + "5"), name, key="key")
        getattr(transaction, end)()
    transaction.begin()
    with pytest.raises(ClientError, match="has no partition 3; it has 3"):
        transaction.append_batches(name, 3, [batch("x")])
    transaction.close()
    tags = [f"{first}{second}" for first in "ac" for second in ("", "2", "3", "4", "5")]
    assert_committed(kafka, name, expected(*tags))


def test_calls_out_of_order_are_refused_with_a_message(kafka: str, topics: Any) -> None:
    name = topics()
    transaction = headrace.transaction(name, bootstrap=kafka)
    for call in (transaction.commit, transaction.abort, lambda: transaction.write(rows("x"), name)):
        with pytest.raises(ClientError, match="no transaction was begun; call begin"):
            call()
    transaction.begin()
    with pytest.raises(ClientError, match="a transaction is open; commit or abort it first"):
        transaction.begin()
    with pytest.raises(ClientError, match="acks= is decided by the transaction"):
        transaction.write(rows("x"), name, acks=1)
    assert repr(transaction) == f"headrace.transaction({name!r}: a transaction is open)"
    transaction.close()
    with pytest.raises(ClientError, match="cannot be used any more"):
        transaction.begin()
    with pytest.raises(ClientError, match=r"give less than the broker's transaction.max.timeout.ms"):
        headrace.transaction(name, bootstrap=kafka, transaction_timeout_ms=10**9)


def test_the_examples_of_the_guide(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    new = [NewTopic(name, 1, 1) for name in ("orders", "audit", "incoming", "outgoing", "large")]
    for created in admin.create_topics(new).values():
        created.result(30)
    text = (Path(__file__).parents[2] / "docs/arrow.md").read_text()
    stream, block, transform = re.findall(r"^```py\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    orders = pa.table({"customer": ["ann"], "value": ["3 pears"]})
    names = {"KAFKA": kafka, "headrace": headrace, "orders": orders, "audit": rows("seen")}
    headrace.write(rows("copied"), "incoming", bootstrap=kafka)
    copying = threading.Thread(target=exec, args=(compile(stream, "docs/arrow.md", "exec"), names))
    copying.start()
    assert_committed(kafka, "outgoing", expected("copied"), partitions=1)
    names["batches"].close()
    copying.join(30)
    assert not copying.is_alive(), "it ends when the stream does"
    assert committed_offset(kafka, "copiers", "incoming") == 30
    exec(compile(block, "docs/arrow.md", "exec"), names)
    assert_committed(kafka, "audit", expected("seen"), partitions=1)
    assert committed_offset(kafka, "copiers", "incoming") == 1000
    headrace.write(rows("larger"), "incoming", bootstrap=kafka)
    exec(compile(transform, "docs/arrow.md", "exec"), names)
    assert (names["done"].read, names["done"].written) == (60, 0)
    headrace.write(rows("the largest"), "incoming", bootstrap=kafka)
    exec(compile(transform, "docs/arrow.md", "exec"), names)
    assert (names["done"].read, names["done"].written) == (30, 30)
    assert_committed(kafka, "large", expected("the largest"), partitions=1)


def test_a_restarted_broker_goes_on_with_the_open_transaction(node: RunningNode, topics: Any) -> None:
    """Last: it stops the node that the others use, and starts it again."""
    name = topics()
    transaction = headrace.transaction(name, bootstrap=node.bootstrap)
    transaction.begin()
    transaction.write(rows("before"), name)
    node.kill()
    with node.prepared.launch() as again:
        transaction.write(rows("after"), name)
        transaction.send_offsets({(name, 0): 60}, name)
        transaction.commit()
        transaction.close()
        assert_committed(again.bootstrap, name, expected("before", "after"))
        assert committed_offset(again.bootstrap, name, name) == 60
