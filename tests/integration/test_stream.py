# SPDX-License-Identifier: Apache-2.0
"""headrace.stream against a live node: what it hands out, when it commits, what its callbacks hear."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import headrace
from headrace.client.errors import ClientError
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.groups.stream_members import QUICK, StreamGroup
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import check_stays, wait_until

TIMEOUT_S = 20
with_both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("streams"), settings=QUICK_GROUPS) as node:
        yield node.bootstrap


@pytest.fixture
def options(quick: str) -> dict[str, Any]:
    return {"bootstrap": quick, **QUICK}


def create(bootstrap: str, topic: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    return topic


def write(bootstrap: str, topic: str, *values: bytes, **more: Any) -> None:
    headrace.write(pa.table({"value": list(values)}), topic, bootstrap=bootstrap, **more)


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()


def take(stream: Any, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        values += next(stream)["value"].to_pylist()
    return values


# -- without a group -----------------------------------------------------------------------------------


def test_without_a_group_only_what_comes_is_read(quick: str, topic: str, options: Any) -> None:
    create(quick, topic, 2)
    write(quick, topic, b"before", b"before", partitioner="round_robin")
    with headrace.stream(topic, **options) as stream:
        assert stream.poll(100) is None
        assert stream.assignment() == [(topic, 0), (topic, 1)]
        write(quick, topic, b"after")
        assert take(stream, 1) == [b"after"]
        with pytest.raises(ClientError, match="no group to commit for; give group="):
            stream.commit()


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", [b"old", b"new"]), (datetime.now(UTC) - timedelta(hours=1), [b"new"])],
    ids=["earliest", "time"],
)
def test_a_stream_starts_at_the_requested_offsets(
    quick: str, topic: str, options: Any, start: Any, expected: list[bytes]
) -> None:
    create(quick, topic)
    rows = pa.table({"value": [b"old", b"new"], "at": [1_600_000_000_000, int(time.time() * 1000)]})
    headrace.write(rows, topic, bootstrap=quick, timestamp="at")
    with headrace.stream(topic, start=start, **options) as stream:
        assert take(stream, len(expected)) == expected
        assert stream.poll(50) is None


def test_new_partitions_and_topics_of_a_pattern_are_read_from_their_beginning(
    quick: str, topic: str, options: Any
) -> None:
    create(quick, topic)
    rebalances: list[Any] = []
    with headrace.stream(re.compile(f"{topic}.*"), on_assigned=rebalances.append, **options) as stream:
        assert stream.poll(100) is None
        create(quick, topic + "-more")
        write(quick, topic + "-more", b"of the new topic")
        admin = AdminClient({"bootstrap.servers": quick})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
        write(quick, topic, *[b"of the new partition"] * 2, partitioner="round_robin")
        assert sorted(take(stream, 3)) == [b"of the new partition"] * 2 + [b"of the new topic"]
        admin.delete_topics([topic + "-more"])[topic + "-more"].result(TIMEOUT_S)
        while len(stream.assignment()) > 2:
            stream.poll(50)
    assert sorted(each for change in rebalances for each in change) == [
        (topic, 0),
        (topic, 1),
        (topic + "-more", 0),
    ]


def test_columns_types_and_rejects_are_those_of_read(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"\0\0\0\1", b"no number", b"\0\0\0\2")
    rejects = headrace.Rejects()
    columns = ["value", "offset"]
    with headrace.stream(
        topic, columns=columns, value="int32", rejects=rejects, start="earliest", **options
    ) as stream:
        assert next(stream).to_pydict() == {"value": [1, 2], "offset": [0, 2]}
        assert stream.position() == {(topic, 0): 3}
    assert rejects.to_arrow()["bytes"].to_pylist() == [b"no number"]
    with (
        headrace.stream(topic, value="int32", start="earliest", **options) as stream,
        pytest.raises(ClientError, match=r"offset 1 of partition 0.*rejects=headrace\.Rejects"),
    ):
        next(stream)


def test_a_sought_offset_is_read_next(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"a", b"b", b"c")
    with headrace.stream(topic, start="earliest", **options) as stream:
        assert take(stream, 3) == [b"a", b"b", b"c"]
        assert stream.poll(100) is None
        stream.seek({(topic, 0): 1})
        write(quick, topic, b"d")  # which answers the request that was on its way
        assert take(stream, 3) == [b"b", b"c", b"d"]
        with pytest.raises(ClientError, match="does not read partition other-0"):
            stream.seek({("other", 0): 1})


# -- commits -------------------------------------------------------------------------------------------


@with_both_protocols
def test_a_batch_is_committed_once_the_next_is_asked_for(
    quick: str, topic: str, options: Any, protocol: str
) -> None:
    create(quick, topic)
    write(quick, topic, b"first")
    options |= {"group": topic, "protocol": protocol}
    with headrace.stream(topic, **options) as stream:
        assert take(stream, 1) == [b"first"]
    with headrace.stream(topic, **options) as stream:
        assert take(stream, 1) == [b"first"], (
            "a loop that was left in the middle of a batch is not done with it"
        )
        assert stream.poll(50) is None
        write(quick, topic, b"second")
        assert take(stream, 1) == [b"second"]
    assert committed(quick, topic, topic) == 1
    with headrace.stream(topic, **options) as stream:
        assert take(stream, 1) == [b"second"]
        stream.commit()
    assert committed(quick, topic, topic) == 2


def test_commits_go_out_while_the_reader_is_busy(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"first")
    with headrace.stream(topic, group=topic, commit_interval_ms=10, **options) as stream:
        take(stream, 1)
        write(quick, topic, b"second")
        take(stream, 1)
        deadline = time.monotonic() + TIMEOUT_S
        while committed(quick, topic, topic) != 1:
            assert time.monotonic() < deadline


def test_unprocessed_records_are_not_committed(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"one")
    stream = headrace.stream(topic, group=topic, **options)
    with pytest.raises(ZeroDivisionError), stream:
        next(stream).num_rows / 0
    assert committed(quick, topic, topic) <= 0
    with headrace.stream(topic, group=topic, commit=False, **options) as stream:
        assert take(stream, 1) == [b"one"]
        assert stream.poll(50) is None
    assert committed(quick, topic, topic) <= 0


def test_a_group_without_commits_starts_at_the_given_offsets(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"before")
    options["group"] = topic
    with (
        headrace.stream(topic, start="committed", **options) as stream,
        pytest.raises(ClientError, match=f'has committed nothing for {topic}-0; .*start="earliest"'),
    ):
        next(stream)
    with headrace.stream(topic, start="latest", **options) as stream:
        while not stream.assignment():
            stream.poll(50)
        stream.poll(0)
    assert committed(quick, topic, topic) == 1, "where it stood, or others would miss what comes meanwhile"


def test_a_stream_goes_back_to_what_is_committed(quick: str, topic: str, options: Any) -> None:
    create(quick, topic, 2)
    rows = pa.table({"value": [b"a", b"b", b"c", b"d"], "partition": [0, 1, 0, 1]})
    headrace.write(rows, topic, bootstrap=quick, partition="partition")
    with headrace.stream(topic, group=topic, commit=False, **options) as stream:
        take(stream, 4)
        stream.commit({(topic, 0): 1})
        stream.rewind()
        assert stream.position() == {(topic, 0): 1, (topic, 1): 0}
        assert sorted(take(stream, 3)) == [b"b", b"c", b"d"]


# -- membership ----------------------------------------------------------------------------------------


@with_both_protocols
def test_a_slow_reader_keeps_its_partitions(quick: str, topic: str, protocol: str) -> None:
    create(quick, topic, 2)
    write(quick, topic, *[b"x"] * 8, partitioner="round_robin")
    with StreamGroup(quick, topic, topic, protocol=protocol, session_timeout_ms=600) as group:
        member = group.join("slow", heartbeat_interval_ms=100)
        member.pause_s = 2.5 if protocol == "consumer" else 1.2  # longer than the session
        group.until_read([b"x"] * 8)
        member.stop_reading()
        assert member.rebalances == [("assigned", [0, 1])]


@with_both_protocols
def test_a_reader_that_stays_away_loses_its_partitions_and_gets_others_back(
    quick: str, topic: str, protocol: str
) -> None:
    create(quick, topic, 2)
    with StreamGroup(quick, topic, topic, protocol=protocol, may_lose=True, max_pause_ms=600) as group:
        away = group.join("away")
        group.until_shared(2)
        away.pause_s = 1.3
        write(quick, topic, b"slow")
        group.until_read([b"slow"])
        group.join("there")
        group.until(
            lambda: {0, 1} == {each for kind, lost in away.rebalances if kind == "lost" for each in lost},
            "the partitions are lost",
        )
        away.pause_s = 0.0
        group.until_shared(1, 1)


@with_both_protocols
def test_a_revocation_waits_for_the_reader(quick: str, topic: str, protocol: str) -> None:
    """The second has its share only when the first is done with its batch, and nothing is read twice."""
    create(quick, topic, 2)
    with StreamGroup(quick, topic, topic, protocol=protocol) as group:
        first = group.join("first")
        group.until_shared(2)
        first.pause_s = 1.0
        write(quick, topic, *[b"x"] * 4, partitioner="round_robin")
        group.until_read([b"x"] * 2)
        group.join("second")
        group.until_shared(1, 1)
        first.pause_s = 0.0
        write(quick, topic, *[b"y"] * 4, partitioner="round_robin")
        group.until_read([b"x"] * 4 + [b"y"] * 4)
        check_stays(lambda: len(group.values()) == 8, group.values, seconds=0.2)


@with_both_protocols
def test_a_rewind_does_not_bring_back_partitions_that_are_being_revoked(
    quick: str, topic: str, options: Any, protocol: Any
) -> None:
    """As after an aborted transaction: the partition belongs to the other member from then on."""
    create(quick, topic, 2)
    mine: list[int] = []
    moved = threading.Event()
    options |= {"group": topic, "protocol": protocol, "commit": False, "columns": ["partition"]}
    if protocol == "classic":
        options["assignor"] = "cooperative-sticky"

    def give_up(partitions: list[Any]) -> None:
        if not moved.is_set():  # not again at the end, when all are given up
            first.rewind()
            moved.set()

    def read(stream: Any, found: list[int]) -> None:
        if (batch := stream.poll(50)) is not None:
            found += batch["partition"].to_pylist()

    with headrace.stream(topic, on_revoked=give_up, **options) as first:
        wait_until(lambda: read(first, mine) or len(first.assignment()) == 2, first.assignment)
        with headrace.stream(topic, **options) as second:
            others: list[int] = []
            wait_until(
                lambda: read(first, mine) or read(second, others) or len(second.assignment()) == 1,
                second.assignment,
            )
            assert moved.is_set()
            write(quick, topic, *[b"x"] * 8, partitioner="round_robin")
            wait_until(
                lambda: read(first, mine) or read(second, others) or len(mine + others) >= 8, lambda: mine
            )
            for _ in range(5):
                read(first, mine)
    assert (len(set(mine)), len(mine), len(set(others)), len(others)) == (1, 4, 1, 4)


def test_the_origin_of_a_batch_and_what_a_group_has_left(quick: str, topic: str, options: Any) -> None:
    create(quick, topic, 2)
    rows = pa.table({"value": [b"a", b"b", b"c"], "partition": [0, 1, 0]})
    headrace.write(rows, topic, bootstrap=quick, partition="partition")
    with headrace.stream(topic, group=topic, commit=False, **options) as stream:
        with pytest.raises(ClientError, match="no batch yet"):
            stream.batch_origin()
        ranges: dict[int, tuple[int, int]] = {}
        while len(ranges) < 2:
            next(stream)
            origin = stream.batch_origin()
            assert origin.topic == topic
            assert origin.member == stream.group_metadata()
            ranges |= origin.ranges
        assert ranges == {0: (0, 2), 1: (0, 1)}
        stream.commit({(topic, 0): 1})
        assert stream.committed([(topic, 0), (topic, 1)]) == {(topic, 0): 1}
        assert stream.end_offsets() == {(topic, 0): 2, (topic, 1): 1}


def test_cooperative_members_keep_what_does_not_move(quick: str, topic: str) -> None:
    create(quick, topic, 4)
    with StreamGroup(quick, topic, topic, protocol="classic", assignor="cooperative-sticky") as group:
        first = group.join("first")
        group.until_shared(4)
        group.join("second")
        group.until_shared(2, 2)
        assert first.rebalances[0] == ("assigned", [0, 1, 2, 3])
        assert [(kind, len(partitions)) for kind, partitions in first.rebalances[1:]] == [("revoked", 2)]


@with_both_protocols
def test_a_static_member_comes_back_to_its_partitions(quick: str, topic: str, protocol: str) -> None:
    create(quick, topic, 4)
    with StreamGroup(quick, topic, topic, protocol=protocol, session_timeout_ms=5000) as group:
        group.join("one", instance_id="one")
        other = group.join("two", instance_id="two")
        group.until_shared(2, 2)
        had, rebalances = set(group.members["one"].owned), len(other.rebalances)
        group.leave("one")
        group.join("one", instance_id="one")
        group.until_shared(2, 2)
        assert group.members["one"].owned == had
        assert len(other.rebalances) == rebalances, "nobody else noticed"


def test_of_two_with_one_instance_id_the_newer_takes_over(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    options |= {"group": topic, "protocol": "classic", "instance_id": "only"}
    with headrace.stream(topic, **options) as older:
        while not older.assignment():
            older.poll(50)
        with headrace.stream(topic, **options) as newer:
            while not newer.assignment():
                newer.poll(50)
            with pytest.raises(ClientError, match=r"fenced_instance_id \(another member with the same"):
                older.poll(20_000)


def test_of_two_with_one_instance_id_the_newer_waits(quick: str, topic: str, options: Any) -> None:
    """KIP-848 has it so: the older one keeps its place until it leaves or its session ends."""
    create(quick, topic)
    options |= {"group": topic, "protocol": "consumer", "instance_id": "only"}
    with headrace.stream(topic, **options) as older:
        while not older.assignment():
            older.poll(50)
        with (
            headrace.stream(topic, timeout_ms=500, **options) as impatient,
            pytest.raises(ClientError, match=f"unreleased_instance_id.*headrace groups describe {topic}"),
        ):
            next(impatient)
        newer = headrace.stream(topic, **options)
        assert newer.poll(300) is None
        assert newer.assignment() == []
    with newer:
        while not newer.assignment():
            newer.poll(50)


@with_both_protocols
def test_a_group_finds_new_partitions_and_topics(quick: str, topic: str, protocol: str) -> None:
    create(quick, topic, 2)
    with StreamGroup(quick, topic, re.compile(f"{topic}.*"), protocol=protocol) as group:
        group.join("one")
        group.join("two")
        group.until_shared(1, 1)
        admin = AdminClient({"bootstrap.servers": quick})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
        group.until_shared(2, 2)
        create(quick, topic + "-more", 2)
        group.until(lambda: sum(len(m.owned) for m in group.members.values()) == 6, "six partitions")
        write(quick, topic + "-more", b"news")
        group.until_read([b"news"])


def test_a_dropped_stream_ends_its_thread_and_leaves(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"x")
    for _ in range(2):
        stream = headrace.stream(topic, group=topic, protocol="classic", **options)
        assert take(stream, 1) == [b"x"]  # at once: the one before did not have to time out
        del stream
        gc.collect()
        assert not any(thread.name == "headrace-stream" for thread in threading.enumerate())


def test_a_program_that_ends_leaves_its_group(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"x")
    program = (
        f"import headrace; stream = headrace.stream({topic!r}, bootstrap={quick!r}, group={topic!r}, "
        "protocol='classic'); print(next(stream).num_rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    begun = time.monotonic()
    with headrace.stream(topic, group=topic, protocol="classic", **options) as stream:
        assert take(stream, 1) == [b"x"]
    assert time.monotonic() - begun < 10, "its session would have lasted 45 seconds"


def test_a_stream_may_be_closed_from_another_thread(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    stream = headrace.stream(topic, group=topic, **options)
    closer = threading.Timer(0.5, stream.close)
    closer.start()
    assert list(stream) == []
    closer.join()
    assert list(stream) == []
    with pytest.raises(ClientError, match="the stream is closed"):
        stream.poll(0)
    with pytest.raises(ClientError, match="the stream is closed"):
        stream.commit()


def test_a_callback_that_fails_ends_the_stream(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)

    def refuse(_: Any) -> None:
        raise LookupError("not mine")

    with (
        pytest.raises(LookupError, match="not mine"),
        headrace.stream(topic, group=topic, on_assigned=refuse, **options) as stream,
    ):
        next(stream)


def test_a_stream_has_group_metadata(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    write(quick, topic, b"x")
    with headrace.stream(topic, group=topic, instance_id="me", **options) as stream:
        assert stream.group_metadata().generation == -1
        take(stream, 1)
        found = stream.group_metadata()
        assert (found.group, found.instance_id) == (topic, "me")
        assert found.generation > 0
        assert found.member_id
        assert repr(stream) == f"<Stream of {topic!r}, group {topic!r}>"


# -- asyncio -------------------------------------------------------------------------------------------


def test_asyncio_streams_share_a_group(quick: str, topic: str, options: Any) -> None:
    create(quick, topic, 2)
    rebalances: list[Any] = []

    async def hear(partitions: Any) -> None:
        await asyncio.sleep(0)
        rebalances.append(partitions)

    async def read() -> list[bytes]:
        values: list[bytes] = []
        options.update(group=topic, on_assigned=hear)
        async with headrace.astream(topic, **options) as one, headrace.astream(topic, **options) as two:
            while [len(one.assignment()), len(two.assignment())] != [1, 1]:
                assert [await one.poll(20), await two.poll(20)] == [None, None]
            await asyncio.to_thread(write, quick, topic, b"a", b"b", partitioner="round_robin")
            for stream in (one, two):
                values += (await anext(stream))["value"].to_pylist()
                await stream.commit()
        return values

    assert sorted(asyncio.run(read())) == [b"a", b"b"]
    assert sorted({each for partitions in rebalances for each in partitions}) == [(topic, 0), (topic, 1)]
    assert [committed(quick, topic, topic, partition) for partition in (0, 1)] == [1, 1]


def test_a_timed_out_read_can_be_repeated(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)

    async def read() -> Any:
        async with headrace.astream(topic, group=topic, **options) as stream:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(stream), 0.2)
            await asyncio.to_thread(write, quick, topic, b"at last")
            return (await anext(stream))["value"].to_pylist()

    assert asyncio.run(read()) == [b"at last"]


def test_a_callback_that_is_cancelled_ends_the_stream(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)

    async def read() -> None:
        async with headrace.astream(
            topic, group=topic, on_assigned=lambda _: asyncio.sleep(60), **options
        ) as stream:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 1)
            with pytest.raises(ClientError, match="the stream is closed"):
                await stream.poll(0)

    asyncio.run(read())


def test_an_asyncio_stream_wants_its_context(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)

    async def read() -> None:
        stream = headrace.astream(topic, **options)
        with pytest.raises(ClientError, match="the stream is new; use it inside `async with`"):
            await anext(stream)
        async with stream:
            pass
        assert [batch async for batch in stream] == []

    asyncio.run(read())


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"topics": "not-there"}, "topic 'not-there' does not exist; list them: headrace topics list"),
        ({"topics": []}, r"\[\] names no topic; give a name"),
        ({"bootstrap": "127.0.0.1:1"}, "no Kafka broker can be reached.*refused"),
        ({"columns": ["valeu"]}, "'valeu' is not a column"),
        ({"start": "yesterday"}, "'yesterday' is not a start; use"),
        ({"start": "committed"}, "without a group nothing is committed"),
        ({"group": ""}, "the group has no name"),
        ({"group": "g", "protocol": "modern"}, "'modern' is not a group protocol"),
        ({"group": "g", "protocol": "classic", "assignor": "best"}, "'best' is not an assignor of classic"),
        ({"group": "g", "heartbeat_interval_ms": 9000}, "too rare for a session of 2000 ms"),
    ],
    ids=str,
)
def test_invalid_stream_requests_are_refused_at_once(
    quick: str, options: Any, wrong: dict[str, Any], message: str
) -> None:
    arguments = {"topics": "orders", **options, **wrong}
    if "orders" in arguments["topics"] and "bootstrap" not in wrong:
        admin = AdminClient({"bootstrap.servers": quick})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].exception(TIMEOUT_S)
    with pytest.raises(ClientError, match=message):
        headrace.stream(**arguments)
    assert not any(thread.name == "headrace-stream" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("protocol", "wrong", "message"),
    [
        ("classic", {"session_timeout_ms": 300}, "invalid_session_timeout.*does not allow this session"),
        ("consumer", {"assignor": "best"}, "unsupported_assignor.*best"),
    ],
)
def test_an_error_of_the_group_ends_the_stream(
    quick: str, topic: str, options: Any, protocol: str, wrong: Any, message: str
) -> None:
    create(quick, topic)
    options |= {"group": topic, "protocol": protocol, **wrong}
    with headrace.stream(topic, **options) as stream, pytest.raises(ClientError, match=message):
        next(stream)


def test_members_without_a_common_assignor_get_an_error(quick: str, topic: str, options: Any) -> None:
    create(quick, topic)
    options |= {"group": topic, "protocol": "classic"}
    with StreamGroup(quick, topic, topic, protocol="classic", assignor="range") as group:
        group.join("range")
        group.until_shared(1)
        with (
            headrace.stream(topic, assignor="roundrobin", **options) as stream,
            pytest.raises(
                ClientError,
                match=f"inconsistent_group_protocol.*; see what they use: headrace groups describe {topic}",
            ),
        ):
            next(stream)
