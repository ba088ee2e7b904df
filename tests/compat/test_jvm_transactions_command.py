# SPDX-License-Identifier: Apache-2.0
"""`headrace transactions` beside Kafka's own tool, on Apache Kafka and Headrace, under both protocols.

Transactions are left open by confluent-kafka. Those that hang are written by plain Produce requests, as if an
old client's arrived after the end of its transaction: the broker does not verify them here.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.bootstrap import parse_bootstrap
from headrace.client.connection import Connection
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.compat.cli_runner import Cli, Ended, plain
from tests.compat.java_tool import JavaTool
from tests.compat.transaction_nodes import PROTOCOLS, QUICK_TIMEOUTS, transactional_node
from tests.harness.waiting import poll, wait_until

pytestmark = pytest.mark.compat_jvm

SETTINGS = {"transaction.partition.verification.enable": "false", **QUICK_TIMEOUTS}
UNVERIFIED_PRODUCE = 11
NOT_THERE_YET = (ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower)
HOUR_MS = 3_600_000
UNKNOWN_PRODUCER = 4_242_000_000
KILLED = """
import sys
from confluent_kafka import Producer
settings = {"transactional.id": sys.argv[2], "transaction.timeout.ms": 8000}
producer = Producer({"bootstrap.servers": sys.argv[1], **settings})
producer.init_transactions()
producer.begin_transaction()
producer.produce(sys.argv[3], b"left open", partition=0)
producer.flush()
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=PROTOCOLS)
def kafka(
    request: pytest.FixtureRequest, kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("transactions")
    with transactional_node(request.param, kafka_engine, folder, SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def cli(kafka: str) -> Cli:
    return Cli(kafka)


@pytest.fixture
def java(kafka_engine: KafkaEngine, kafka: str) -> JavaTool:
    return JavaTool(kafka_engine, kafka)


@pytest.fixture
def orders(kafka: str, topic: str) -> str:
    """A topic of three partitions."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    return topic


@pytest.fixture
def producer(kafka: str) -> Iterator[Callable[..., Producer]]:
    """Producers with a transactional id; what they leave open is ended after the test."""
    opened: list[Producer] = []

    def open_one(transactional_id: str, timeout_ms: int = 600_000) -> Producer:
        settings = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        found = Producer({"bootstrap.servers": kafka, **settings})
        found.init_transactions(30)
        opened.append(found)
        return found

    yield open_one
    for each in opened:
        each.purge()


def leave_open(producer: Producer, topic: str, *partitions: int) -> None:
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"open", partition=partition)
    assert producer.flush(30) == 0


def write_and_commit(producer: Producer, topic: str, partition: int) -> None:
    leave_open(producer, topic, partition)
    producer.commit_transaction(30)


def write_plain(kafka: str, topic: str, partition: int, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def write_hanging(
    kafka: str, topic: str, partition: int, *, age_ms: int = HOUR_MS, producer_id: int = UNKNOWN_PRODUCER
) -> None:
    """A transactional batch that no coordinator knows of."""
    stamp = int(time.time() * 1000) - age_ms
    batch = build_batch(
        [Record(0, stamp, None, b"hanging", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    fields = {
        "transactional_id": "whoever",
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}],
    }

    async def send() -> ErrorCode:
        address = parse_bootstrap(kafka)[0]
        connection = await Connection.open(address.host, address.port)
        try:
            reply = await connection.call(ApiKey.PRODUCE, fields, version=UNVERIFIED_PRODUCE)
        finally:
            await connection.close()
        return ErrorCode(int(reply.responses[0].partition_responses[0].error_code))

    # A new topic takes the broker a moment.
    code = poll(lambda: asyncio.run(send()), lambda found: found not in NOT_THERE_YET)
    assert code is ErrorCode.none


def committed_values(kafka: str, topic: str, partition: int) -> list[bytes]:
    """What a read_committed consumer gets up to the last stable offset."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                return values
            values.append(message.value())
    finally:
        consumer.close()


def committed_end(kafka: str, topic: str, partition: int) -> int:
    """The last stable offset."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "reader"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
    finally:
        consumer.close()


def java_rows(text: str) -> list[list[str]]:
    """The columns of Kafka's tool, without its header."""
    return [line.split() for line in text.strip().splitlines()[1:]]


def refusal(ended: Ended) -> str:
    assert (ended.code, ended.out) == (1, ""), ended
    assert ended.err.count("\n") == 1
    return ended.err


# -- list and describe -------------------------------------------------------------------------------------


def test_list_shows_what_kafkas_tool_shows(
    kafka: str, cli: Cli, java: JavaTool, orders: str, producer: Callable[..., Producer]
) -> None:
    leave_open(producer(f"{orders}-open"), orders, 0)
    done = producer(f"{orders}-done")
    write_and_commit(done, orders, 1)
    wait_until(lambda: "CompleteCommit" in cli("transactions", "list", "--id", f"{orders}-done").ok().out)
    rows = cli("transactions", "list", "--id", f"{re.escape(orders)}-.*").ok().rows
    assert rows[0] == ["TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"]
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [
        (f"{orders}-done", "1", "CompleteCommit"),
        (f"{orders}-open", "1", "Ongoing"),
    ]
    theirs = java("transactions", "list", "--transactional-id-pattern", f"{re.escape(orders)}-.*")
    assert sorted(java_rows(theirs)) == rows[1:]
    cli("transactions", "terminate", "--id", f"{orders}-open", "--yes").ok()


def test_list_by_state_producer_and_age(cli: Cli, orders: str, producer: Callable[..., Producer]) -> None:
    name = f"{orders}-open"
    leave_open(producer(name), orders, 0)
    (entry,) = cli("transactions", "list", "--id", name, "--state", "ongoing", "--json").ok().document
    assert entry == {
        "transactional_id": name,
        "coordinator": 1,
        "producer_id": entry["producer_id"],
        "state": "Ongoing",
    }
    wanted = ("--producer-id", str(entry["producer_id"]), "--json")
    assert cli("transactions", "list", *wanted).ok().document == [entry]
    assert cli("transactions", "list", *wanted, "--state", "Empty").ok().document == []
    assert cli("transactions", "list", *wanted, "--longer-than", "1h").ok().document == []
    wait_until(
        lambda: cli("transactions", "list", *wanted, "--longer-than", "100ms").ok().document == [entry]
    )
    shown = cli.on_terminal("transactions", "list", "--id", name).ok().out
    assert "TRANSACTIONAL ID" in plain(shown)
    assert "\x1b[36m" in shown
    assert (
        "There are no such transactions" in cli.on_terminal("transactions", "list", "--id", "nobody").ok().out
    )
    assert "'*' is not a regular expression" in refusal(cli("transactions", "list", "--id", "*"))
    cli("transactions", "terminate", "--id", name, "--yes").ok()


def test_describe_shows_what_kafkas_tool_shows(
    cli: Cli, java: JavaTool, orders: str, producer: Callable[..., Producer]
) -> None:
    name = f"{orders}-open"
    leave_open(producer(name), orders, 2, 0)
    found = cli("transactions", "describe", "--id", name, "--json").ok().document
    (theirs,) = java_rows(java("transactions", "describe", "--transactional-id", name))
    coordinator, id_, producer_id, epoch, state, timeout_ms, start_ms, _, partitions = theirs
    assert found["transactional_id"] == id_ == name
    assert [str(found[key]) for key in ("coordinator", "producer_id", "producer_epoch", "timeout_ms")] == [
        coordinator,
        producer_id,
        epoch,
        timeout_ms,
    ]
    assert found["state"] == state == "Ongoing"
    assert found["started"].endswith(f"{start_ms[-3:]}Z")
    assert 0 <= found["age_seconds"] < 60
    assert found["partitions"] == [[orders, 0], [orders, 2]]
    assert sorted(partitions.split(",")) == [f"{orders}-0", f"{orders}-2"]
    out = cli("transactions", "describe", "--id", name).ok().out
    assert "state\tOngoing\n" in out
    assert "time-out\t600.000\n" in out
    assert out.endswith(f"\nTOPIC\tPARTITION\n{orders}\t0\n{orders}\t2\n")
    assert "10 min 0 s" in plain(cli.on_terminal("transactions", "describe", "--id", name).ok().out)
    cli("transactions", "terminate", "--id", name, "--yes").ok()


def test_an_id_that_is_not_there_is_not_created(cli: Cli, topic: str) -> None:
    for command in ("describe", "terminate", "fence"):
        said = refusal(cli("transactions", command, "--id", topic))
        assert said == (
            f"headrace: no coordinator knows transactional id '{topic}'; "
            "list those there are: headrace transactions list\n"
        )
    assert cli("transactions", "list", "--id", topic, "--json").ok().document == []


# -- terminate and fence -----------------------------------------------------------------------------------


def test_terminate_ends_the_transaction_and_fences_its_producer(
    kafka: str, cli: Cli, orders: str, producer: Callable[..., Producer]
) -> None:
    name = f"{orders}-open"
    mine = producer(name)
    leave_open(mine, orders, 0)
    write_plain(kafka, orders, 0, b"behind it")
    assert committed_values(kafka, orders, 0) == []
    assert "add --yes" in refusal(cli("transactions", "terminate", "--id", name))
    assert cli("transactions", "list", "--id", name, "--json").ok().document[0]["state"] == "Ongoing"
    ended = cli("transactions", "terminate", "--id", name, "--yes").ok()
    assert ended.out == f"Aborted the transaction of '{name}' in 1 partition.\n"
    assert committed_values(kafka, orders, 0) == [b"behind it"]
    with pytest.raises(KafkaException, match=r"fenced|epoch|abortable|fatal"):
        mine.commit_transaction(30)
    again = refusal(cli("transactions", "terminate", "--id", name, "--yes"))
    assert f"'{name}' has no ongoing transaction" in again
    assert f"headrace transactions fence --id {name}" in again


def test_kafkas_tool_terminates_and_shows_producers(
    kafka: str, java: JavaTool, orders: str, producer: Callable[..., Producer]
) -> None:
    name = f"{orders}-open"
    mine = producer(name)
    leave_open(mine, orders, 0)
    (row,) = java_rows(java("transactions", "describe-producers", "--topic", orders, "--partition", "0"))
    assert row[-1] == "0", "the offset that its open transaction starts at"
    java("transactions", "forceTerminateTransaction", "--transactionalId", name)
    wait_until(lambda: committed_end(kafka, orders, 0) > 0, "the marker is there")
    with pytest.raises(KafkaException):
        mine.commit_transaction(30)
    (row,) = java_rows(java("transactions", "describe-producers", "--topic", orders, "--partition", "0"))
    assert row[-1] == "None"


def test_fence_refuses_running_producers(
    kafka: str, cli: Cli, orders: str, producer: Callable[..., Producer]
) -> None:
    names = [f"{orders}-a", f"{orders}-b"]
    idle, busy = (producer(name) for name in names)
    write_and_commit(idle, orders, 0)
    leave_open(busy, orders, 1)
    both = ("--id", names[0], "--id", names[1])
    assert "add --yes" in refusal(cli("transactions", "fence", *both))
    fenced = cli("transactions", "fence", *both, "--yes", "--json").ok().document["fenced"]
    assert [each["transactional_id"] for each in fenced] == names
    assert committed_values(kafka, orders, 1) == []
    with pytest.raises(KafkaException):
        busy.commit_transaction(30)
    with pytest.raises(KafkaException):
        write_and_commit(idle, orders, 0)
    assert committed_values(kafka, orders, 0) == [b"open"]
    successor = producer(names[0])
    write_and_commit(successor, orders, 2)
    assert committed_values(kafka, orders, 2) == [b"open"]


# -- hanging transactions ----------------------------------------------------------------------------------


def test_find_hanging_finds_what_kafkas_tool_finds(
    kafka: str, cli: Cli, java: JavaTool, orders: str, producer: Callable[..., Producer]
) -> None:
    write_plain(kafka, orders, 1, b"a", b"b")
    write_hanging(kafka, orders, 1)
    write_hanging(kafka, orders, 2, age_ms=60_000, producer_id=UNKNOWN_PRODUCER + 1)
    name = f"{orders}-old"
    old = producer(name)
    old.begin_transaction()
    old.produce(orders, b"slow", partition=0, timestamp=int(time.time() * 1000) - HOUR_MS)
    assert old.flush(30) == 0

    ended = cli("transactions", "find-hanging", "--topic", orders).ok()
    theirs = java_rows(java("transactions", "find-hanging", "--topic", orders))
    assert len(theirs) == 1
    assert ended.rows[0][:3] == ["TOPIC", "PARTITION", "PRODUCER ID"]
    assert ended.rows[0][3:] == ["EPOCH", "COORDINATOR EPOCH", "START OFFSET", "LAST RECORD", "AGE"]
    assert [row[:6] for row in ended.rows[1:]] == [row[:6] for row in theirs]
    assert ended.rows[1][:6] == [orders, "1", str(UNKNOWN_PRODUCER), "0", "-1", "2"]
    assert f"1 more open for as long do not hang, their coordinators end them: '{name}'" in ended.err

    both = ("--max-transaction-timeout", "30s", "--json")
    found = cli("transactions", "find-hanging", "--topic", orders, *both).ok().document
    assert [(each["partition"], each["start_offset"], each["verdict"]) for each in found] == [
        (1, 2, "hanging"),
        (2, 0, "hanging"),
    ]
    on_broker = cli("transactions", "find-hanging", "--broker", "1", *both).ok().document
    assert [each for each in on_broker if each["topic"] == orders] == found
    one = cli("transactions", "find-hanging", "--topic", orders, "--partition", "2", *both).ok().document
    assert one == found[1:]
    shown = plain(cli.on_terminal("transactions", "find-hanging", "--topic", orders).ok().out)
    assert f"headrace transactions abort --topic {orders} --partition 1 --start-offset 2" in shown
    for each in found:
        place = ("--partition", str(each["partition"]), "--start-offset", str(each["start_offset"]))
        cli("transactions", "abort", "--topic", orders, *place, "--yes").ok()
    assert cli("transactions", "find-hanging", "--topic", orders, *both).ok().document == []
    assert (
        "No transaction hangs" in cli.on_terminal("transactions", "find-hanging", "--topic", orders).ok().out
    )
    cli("transactions", "terminate", "--id", name, "--yes").ok()


def test_explain_names_who_holds_readers_back_and_the_command_that_helps(
    kafka: str, cli: Cli, orders: str, producer: Callable[..., Producer]
) -> None:
    name = f"{orders}-open"
    write_plain(kafka, orders, 0, b"before")
    leave_open(producer(name), orders, 0)
    write_hanging(kafka, orders, 1)
    for partition in range(3):
        write_plain(kafka, orders, partition, b"behind it")

    found = cli("transactions", "explain", orders, "--json").ok().document
    assert found["topic"] == orders
    held, hanging, free = found["partitions"]
    ends = ("last_stable_offset", "high_watermark", "waiting")
    assert [[each[key] for key in ends] for each in found["partitions"]] == [[1, 3, 2], [0, 2, 2], [1, 1, 0]]
    (by,) = held["transactions"]
    assert (by["verdict"], by["start_offset"]) == ("ongoing", 1)
    assert (by["transaction"]["transactional_id"], by["transaction"]["state"]) == (name, "Ongoing")
    assert by["transaction"]["producer_id"] == by["producer_id"]
    assert by["transaction"]["ends_by"] > by["transaction"]["started"]
    assert re.search(
        rf"'{name}' .* is open since .*; its time-out of 10 min 0 s ends it in (9|10) min", held["reason"]
    )
    (lost,) = hanging["transactions"]
    assert (lost["verdict"], lost["transaction"]) == ("hanging", None)
    assert "no coordinator knows it" in hanging["reason"]
    assert "no time-out ends it" in hanging["reason"]
    assert (free["reason"], free["next"], free["transactions"]) == (None, None, [])

    rows = cli("transactions", "explain", orders).ok().rows
    assert rows[0][:6] == [
        "PARTITION",
        "LAST STABLE",
        "HIGH WATERMARK",
        "WAITING",
        "TRANSACTIONAL ID",
        "VERDICT",
    ]
    assert [row[:6] for row in rows[1:]] == [
        ["0", "1", "3", "2", name, "ongoing"],
        ["1", "0", "2", "2", "-", "hanging"],
        ["2", "1", "1", "0", "-", "-"],
    ]
    shown = plain(cli.on_terminal("transactions", "explain", orders).ok().out)
    for each in (held, hanging):
        assert f"next: {each['next']}" in shown
        cli(*each["next"].split()[1:], "--yes").ok()
    for partition, values in enumerate([[b"before", b"behind it"], [b"behind it"], [b"behind it"]]):
        assert committed_values(kafka, orders, partition) == values
    after = cli("transactions", "explain", orders).ok()
    assert [row[3] for row in after.rows[1:]] == ["0", "0", "0"]
    assert after.err == f"No transaction holds back read_committed readers of topic '{orders}'.\n"


def test_the_transaction_of_a_killed_producer_is_explained_until_its_time_out_ends_it(
    kafka: str, cli: Cli, orders: str
) -> None:
    name = f"{orders}-killed"
    arguments = [sys.executable, "-c", KILLED, kafka, name, orders]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    (wait, *_) = cli("transactions", "explain", orders, "--json").ok().document["partitions"]
    assert f"'{name}'" in wait["reason"]
    assert "its time-out of 8.0 s" in wait["reason"]
    assert wait["next"] == f"headrace transactions terminate --id {name}"

    def free() -> bool:
        return cli("transactions", "explain", orders, "--json").ok().document["partitions"][0]["waiting"] == 0

    wait_until(free, timeout_s=30)
    assert committed_values(kafka, orders, 0) == []


# -- abort -------------------------------------------------------------------------------------------------


def test_abort_refuses_what_a_coordinator_will_end(
    cli: Cli, orders: str, producer: Callable[..., Producer]
) -> None:
    name = f"{orders}-open"
    mine = producer(name)
    leave_open(mine, orders, 0)
    place = ("--topic", orders, "--partition", "0")
    said = refusal(cli("transactions", "abort", *place, "--start-offset", "0", "--yes"))
    assert f"the coordinator of '{name}' knows it (Ongoing)" in said
    assert f"headrace transactions terminate --id {name}" in said
    mine.commit_transaction(30)
    gone = refusal(cli("transactions", "abort", *place, "--start-offset", "7", "--yes"))
    assert f"no transaction is open in {orders}-0 that starts at offset 7" in gone
    assert f"headrace transactions explain {orders}" in gone
    missing = refusal(
        cli("transactions", "abort", "--topic", orders, "--partition", "9", "--start-offset", "0")
    )
    assert f"topic '{orders}' has no partition 9: it has 3" in missing
    nowhere = refusal(
        cli("transactions", "abort", "--topic", "gone", "--partition", "0", "--start-offset", "0")
    )
    assert "topic 'gone' does not exist" in nowhere


def test_abort_asks_first_and_ends_a_hanging_transaction(kafka: str, cli: Cli, orders: str) -> None:
    write_hanging(kafka, orders, 0, age_ms=0)
    write_plain(kafka, orders, 0, b"behind it")
    place = ("transactions", "abort", "--topic", orders, "--partition", "0", "--start-offset", "0")
    asked = refusal(cli(*place))
    assert f"abort the transaction of producer id {UNKNOWN_PRODUCER}, epoch 0 in partition 0" in asked
    assert "nothing was changed" in cli.on_terminal(*place, typed="n\n").out
    assert committed_values(kafka, orders, 0) == []
    assert cli.on_terminal(*place, typed="y\n").ok().out.endswith(f"in partition 0 of topic '{orders}'.\n")
    assert committed_values(kafka, orders, 0) == [b"behind it"]


def test_abort_by_producer_as_kafkas_tool(kafka: str, cli: Cli, java: JavaTool, orders: str) -> None:
    for partition in (0, 1):
        write_hanging(kafka, orders, partition, age_ms=0)
        write_plain(kafka, orders, partition, b"behind it")
    place = ("transactions", "abort", "--topic", orders, "--partition", "0")
    wrong = ("--producer-id", str(UNKNOWN_PRODUCER), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert cli(*place, *wrong, "--yes", "--json").ok().document == {
        "topic": orders,
        "partition": 0,
        "producer_id": UNKNOWN_PRODUCER,
        "producer_epoch": 0,
        "coordinator_epoch": -1,
        "aborted": True,
    }
    java("transactions", "abort", "--topic", orders, "--partition", "1", "--start-offset", "0")
    for partition in (0, 1):
        assert committed_values(kafka, orders, partition) == [b"behind it"]


def test_names_of_strangers_cannot_control_the_terminal(
    cli: Cli, orders: str, producer: Callable[..., Producer]
) -> None:
    name = f"{orders}-\x1b[31mred\x07"
    leave_open(producer(name), orders, 0)
    for command in (("list",), ("describe", "--id", name), ("explain", orders), ("terminate", "--id", name)):
        ended = cli("transactions", *command)
        assert "\x1b[31m" not in ended.out + ended.err
        assert "\\x1b[31mred\\x07" in ended.out + ended.err
    assert "\x1b[31mred" not in cli.on_terminal("transactions", "explain", orders).ok().out
    cli("transactions", "terminate", "--id", name, "--yes").ok()
