# SPDX-License-Identifier: Apache-2.0
"""The exactly-once sink on Headrace and Apache Kafka, driven by hand: replays, kills, zombies, staging."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import headrace
from headrace.client.arrow.write.transaction import Transaction
from headrace.client.arrow.write.transaction_session import OutcomeUnknown
from headrace.client.errors import ClientError
from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.replays import BatchIdentity, Course
from pyspark_headrace.writing import publish, takeover
from pyspark_headrace.writing.commit_messages import InMessage, InStaging
from pyspark_headrace.writing.internal_topics import SINKS, STAGING
from pyspark_headrace.writing.ledger import Published, SinkLedger
from pyspark_headrace.writing.publish import publish_batch, publish_write
from pyspark_headrace.writing.takeover import abort_abandoned
from tests.compat import sink_driver
from tests.compat.sink_driver import MOMENTS, settings_for, task, values_of
from tests.harness.live.committed import wait_for_markers
from tests.harness.waiting import poll

PARTITIONS = 3


@pytest.fixture(
    scope="module",
    params=[
        ("headrace", 2),
        ("headrace", 1),
        pytest.param(("kafka", 2), marks=pytest.mark.compat_jvm),
        pytest.param(("kafka", 1), marks=pytest.mark.compat_jvm),
    ],
    ids=lambda given: f"{given[0]}-version-{given[1]}",
)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Under both transaction protocols."""
    engine, version = request.param
    folder = tmp_path_factory.mktemp("sink")
    if engine == "headrace":
        with HeadraceEngine().start(folder, {"headrace.transaction.version": str(version)}) as running:
            yield running
    else:
        yield from _kafka_node(request.getfixturevalue("kafka_engine"), folder, version)


def _kafka_node(engine: KafkaEngine, folder: Path, version: int) -> Iterator[RunningNode]:
    with engine.start(folder, {}) as running:
        if version == 1:
            arguments = ("downgrade", "--feature", "transaction.version=1")
            done = engine.tool(
                "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", running.bootstrap, *arguments
            )
            assert done.returncode == 0, done.output
        yield running


@pytest.fixture
def kafka(node: RunningNode) -> str:
    return node.bootstrap


@pytest.fixture
def output(kafka: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


def read(bootstrap: str, topic: str, **options: Any) -> list[str]:
    found = headrace.read(topic, bootstrap=bootstrap, value="string", **options).read_all()
    return [str(value) for value in found["value"].to_pylist()]


def published(query: str, number: int) -> Published:
    """By a sink that does not know its checkpoint."""
    return Published(query=query, batch=BatchIdentity(number=number))


def assert_published(bootstrap: str, topic: str, *batches: int, count: int = 40) -> None:
    """A commit is for good when it returns; the partitions' leaders hear of it a moment later."""
    wanted = sorted(value for batch in batches for value in values_of(batch, count))
    found = poll(lambda: read(bootstrap, topic), lambda found: len(found) >= len(wanted), timeout_s=15)
    assert sorted(found) == wanted


@contextmanager
def driver(bootstrap: str, topic: str, batch: int, moment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has reached the moment in the publication of a batch, and waits there."""
    program = [sys.executable, sink_driver.__file__, bootstrap, topic, str(batch), moment]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n", process.stderr and process.stderr.read()
        try:
            yield process
        finally:
            process.kill()


def test_a_batch_that_comes_again_is_not_written_again(kafka: str, output: str) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    for batch in (0, 1, 1, 2, 2):
        publish_batch([task(settings, values_of(batch))], settings, batch)
    assert_published(kafka, output, 0, 1, 2)


def test_a_batch_of_an_older_checkpoint_is_refused(kafka: str, output: str, tmp_path: Path) -> None:
    settings = settings_for(kafka, output, sink_id=output, checkpoint=str(tmp_path))
    entries = tmp_path / "offsets"
    entries.mkdir()
    for batch in (0, 1):
        (entries / str(batch)).write_text(f"v1\n{batch}")
        for _ in range(2):
            publish_batch([task(settings, values_of(batch))], settings, batch)
    with pytest.raises(ClientError, match="goes on with batch 0"):
        publish_batch([task(settings, values_of(0))], settings, 0)
    (entries / "1").write_text("v1\nother offsets")
    with pytest.raises(ClientError, match="offsets differ"):
        publish_batch([task(settings, values_of(2))], settings, 1)
    (entries / "1").unlink()
    with pytest.raises(ClientError, match="could not be read"):
        publish_batch([task(settings, values_of(1))], settings, 1)
    trusting = replace(settings, replay_check="number")
    publish_batch([task(settings, values_of(1))], trusting, 1)
    assert_published(kafka, output, 0, 1)


def test_an_older_checkpoint_is_refused_at_a_batch_without_rows(
    kafka: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise smaller batches without rows could lead past the last number, and write rows twice."""
    settings = settings_for(kafka, output, sink_id=output, checkpoint=str(tmp_path))
    (tmp_path / "offsets").mkdir()
    for batch in range(3):
        (tmp_path / f"offsets/{batch}").write_text(f"v1\n{{}}\n{batch}")
        publish_batch([task(settings, [] if batch == 1 else values_of(batch))], settings, batch)
    monkeypatch.setattr(publish, "_course", Course())  # as in another driver
    with pytest.raises(ClientError, match="goes on with batch 1"):
        publish_batch([task(settings, [])], settings, 1)
    (tmp_path / "offsets/2").write_text("v1\n{}\nelsewhere")
    with pytest.raises(ClientError, match="offsets differ"):
        publish_batch([task(settings, [])], settings, 2)
    (tmp_path / "offsets/2").write_text("v1\n{}\n1")
    publish_batch([task(settings, [])], settings, 2)
    publish_batch([task(settings, values_of(3))], settings, 3)
    assert_published(kafka, output, 0, 2, 3)


def test_other_slices_of_a_replay_do_not_show(kafka: str, output: str) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    values = values_of(0)
    publish_batch([task(settings, values[:25]), task(settings, []), task(settings, values[25:])], settings, 0)
    publish_batch([task(settings, values[first::7]) for first in range(7)], settings, 0)
    assert_published(kafka, output, 0)


def test_only_messages_that_spark_hands_over_are_published(kafka: str, output: str) -> None:
    """Attempts that failed after they had encoded, and speculative copies of tasks, leave no trace."""
    settings = settings_for(kafka, output, sink_id=output, message_bytes=500)
    values = values_of(0)
    attempts = [task(settings, values) for _ in range(3)]
    assert all(isinstance(run, InStaging) for attempt in attempts for run in attempt.runs)
    publish_batch([attempts[1]], settings, 0)
    assert_published(kafka, output, 0)
    assert len(read(kafka, output, committed_only=False)) == len(values)


@pytest.mark.parametrize(("compression", "message_bytes"), [("none", 60_000), ("zstd", 500)])
def test_rows_that_are_too_many_for_messages_come_by_the_staging_topic(
    kafka: str, output: str, compression: str, message_bytes: int
) -> None:
    """Tasks write there at the same time; every key keeps its order."""
    settings = settings_for(
        kafka, output, sink_id=output, message_bytes=message_bytes, compression=compression
    )
    values = values_of(0, 40_000)
    with ThreadPoolExecutor(4) as tasks:
        messages = list(tasks.map(lambda first: task(settings, values[first::4]), range(4)))
    assert {type(run) for message in messages for run in message.runs} == {InStaging}
    publish_batch(messages, settings, 0)
    publish_batch(messages, settings, 0)
    assert_published(kafka, output, 0, count=40_000)
    for partition in range(PARTITIONS):
        found = read(kafka, output, partitions=[partition])
        of_task = [[value for value in found if int(value[-6:]) % 4 == first] for first in range(4)]
        assert all(part == sorted(part) for part in of_task)
    admin = AdminClient({"bootstrap.servers": kafka})
    resource = ConfigResource(ConfigResource.Type.TOPIC, STAGING.name)
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(30)["retention.ms"].value == str(24 * 3600 * 1000)


def test_staged_rows_that_are_gone_are_missed_before_anything_shows(kafka: str, output: str) -> None:
    settings = settings_for(kafka, output, sink_id=output, message_bytes=1)
    message = task(settings, values_of(0))
    admin = AdminClient({"bootstrap.servers": kafka})
    places = {(run.staging_partition, run.end) for run in message.runs if isinstance(run, InStaging)}
    cut = [TopicPartition(STAGING.name, *place) for place in sorted(places)]
    for done in admin.delete_records(cut[-1:]).values():
        done.result(30)
    with pytest.raises(ClientError, match=r"are no longer in .*: .*out_of_range"):
        publish_batch([task(settings, values_of(0)[:5]), message], settings, 0)
    assert read(kafka, output) == []
    publish_batch([task(settings, values_of(0))], settings, 0)
    assert_published(kafka, output, 0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_driver_killed_at_any_moment(kafka: str, output: str, moment: str) -> None:
    """Its query starts again from the checkpoint: the same batch comes again, then the next."""
    settings = settings_for(kafka, output, sink_id=output)
    with driver(kafka, output, 0, moment):
        pass
    for batch in (0, 1):
        publish_batch([task(settings, values_of(batch), query=output)], settings, batch)
    assert_published(kafka, output, 0, 1)


def test_a_new_driver_aborts_what_a_dead_one_left_open(
    kafka: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has anything to publish; its predecessor's timeout is five minutes."""
    settings, connections = settings_for(kafka, output, sink_id=output), pooled_client(kafka)
    with driver(kafka, output, 0, "number"):
        pass
    assert not abort_abandoned(settings, connections, driver_started_ms=1), "it may be of a newer driver"
    monkeypatch.setattr(takeover, "_looked_at", set())
    began = time.monotonic()
    assert abort_abandoned(settings, connections, driver_started_ms=time.time_ns() // 1_000_000)
    wait_for_markers(kafka, output)
    print(f"aborted after {time.monotonic() - began:.3f} s")
    assert not abort_abandoned(settings, connections, driver_started_ms=1), "looked for once"
    for batch in (0, 1):
        publish_batch([task(settings, values_of(batch), query=output)], settings, batch)
    assert_published(kafka, output, 0, 1)


def test_a_sink_without_an_open_transaction_is_left_alone(kafka: str, output: str) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    now_ms = time.time_ns() // 1_000_000
    assert not abort_abandoned(settings, pooled_client(kafka), driver_started_ms=now_ms)
    publish_batch([task(settings, values_of(0))], settings, 0)
    assert not abort_abandoned(settings, pooled_client(kafka), driver_started_ms=now_ms)
    assert_published(kafka, output, 0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_paused_driver_that_wakes_up_after_its_successor_went_on(
    kafka: str, output: str, moment: str
) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    with driver(kafka, output, 0, moment) as paused:
        for batch in (0, 1):
            publish_batch([task(settings, values_of(batch), query=output)], settings, batch)
        said, complaint = paused.communicate("\n", timeout=60)
    if moment == "before":
        assert "has batch 1 of this query, but the checkpoint goes on with batch 0" in complaint
    elif moment == "committed":
        assert said == "published\n", complaint
    else:
        assert f"sink '{output}' was taken over by another driver" in complaint
    publish_batch([task(settings, values_of(2), query=output)], settings, 2)
    assert_published(kafka, output, 0, 1, 2)


def test_a_replay_does_not_fence_the_running_query(
    kafka: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    publish_batch([task(settings, values_of(0))], settings, 0)
    commit = Transaction.commit

    def replay_meanwhile(transaction: Transaction) -> None:
        publish_batch([task(settings, values_of(0))], settings, 0)
        commit(transaction)

    monkeypatch.setattr(Transaction, "commit", replay_meanwhile)
    publish_batch([task(settings, values_of(1))], settings, 1)
    assert_published(kafka, output, 0, 1)


@pytest.mark.parametrize("reached", [True, False], ids=["committed", "not-committed"])
def test_a_commit_whose_outcome_is_not_known_is_looked_up(
    kafka: str, output: str, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    commit, answers = Transaction.commit, [False]

    def unanswered(transaction: Transaction) -> None:
        answered = answers.pop() if answers else True
        if answered or reached:
            commit(transaction)
        if not answered:
            raise OutcomeUnknown("nobody answers")

    monkeypatch.setattr(Transaction, "commit", unanswered)
    publish_batch([task(settings, values_of(0))], settings, 0)
    assert answers == []
    assert_published(kafka, output, 0)


@pytest.mark.parametrize("reached", [True, False], ids=["committed", "not-committed"])
def test_a_driver_that_was_fenced_in_its_commit_does_not_fence_the_newer_one(
    kafka: str, output: str, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    settings = settings_for(kafka, output, sink_id=output)
    commit, opened = Transaction.commit, []

    def fenced(transaction: Transaction) -> None:
        opened.append(transaction)
        if reached:
            commit(transaction)
        else:
            transaction.abort()
        raise OutcomeUnknown("the reply was lost", code="PRODUCER_FENCED")

    monkeypatch.setattr(Transaction, "commit", fenced)
    if reached:
        publish_batch([task(settings, values_of(0))], settings, 0)
        assert_published(kafka, output, 0)
    else:
        with pytest.raises(ClientError, match="was taken over by another driver"):
            publish_batch([task(settings, values_of(0))], settings, 0)
    assert len(opened) == 1


@pytest.mark.parametrize("ended", ["committed", "killed"])
def test_the_open_transaction_of_another_sink_is_not_waited_for(kafka: str, output: str, ended: str) -> None:
    """It hides from readers what was committed after it, which must not be taken for missing."""
    settings = settings_for(kafka, output, sink_id=output)
    ledger = SinkLedger(output, pooled_client(kafka), timeout_ms=30_000)
    with closing(Transaction(f"other-{output}", bootstrap=kafka)) as other:
        with driver(kafka, output, 0, "opened" if ended == "committed" else "number") as first:
            other.begin()
            other.append_batches(
                SINKS.name,
                ledger.partition,
                [ledger.entry(published("x", 99))],
            )
            if ended == "committed":
                assert first.communicate("\n", timeout=60)[0] == "published\n"
        assert ledger.last() == (published(output, 0) if ended == "committed" else None)
        for batch in (0, 1, 1):
            publish_batch([task(settings, values_of(batch), query=output)], settings, batch)
        assert ledger.last() == published(output, 1)
        other.abort()
    assert ledger.last() == published(output, 1)
    assert_published(kafka, output, 0, 1)


def test_a_sink_is_found_however_much_others_wrote_after_it(kafka: str, output: str) -> None:
    ledger = SinkLedger(output, pooled_client(kafka), timeout_ms=30_000)
    neighbours = (f"{output}-{number}" for number in range(10_000))
    same_partition = (SinkLedger(name, pooled_client(kafka), timeout_ms=30_000) for name in neighbours)
    neighbour = next(each for each in same_partition if each.partition == ledger.partition)
    with Transaction(output, bootstrap=kafka) as transaction:
        entries = [ledger.entry(published("q", 7))]
        entries += [neighbour.entry(published("n", batch)) for batch in range(700)]
        transaction.append_batches(SINKS.name, ledger.partition, entries)
    assert ledger.last() == published("q", 7)
    assert neighbour.last() == published("n", 699)


def test_another_query_under_the_same_name_counts_from_its_own_beginning(kafka: str, output: str) -> None:
    """Its checkpoint was deleted: batch 0 is not the batch 0 of before."""
    settings = settings_for(kafka, output, sink_id=output)
    publish_batch([task(settings, values_of(0), "first")], settings, 0)
    publish_batch([task(settings, values_of(1), "first")], settings, 1)
    publish_batch([task(settings, values_of(2), "second")], settings, 0)
    publish_batch([task(settings, values_of(2), "second")], settings, 0)
    assert_published(kafka, output, 0, 1, 2)


def test_a_write_is_whole_or_not_there(kafka: str, output: str) -> None:
    settings = settings_for(kafka, output)
    publish_write([task(settings, values_of(0)[:20]), task(settings, values_of(0)[20:])], settings)
    bad = InMessage(topic=output, partition=PARTITIONS, batches=task(settings, ["lost"]).runs[0].batches)
    message = task(settings, values_of(1))
    with pytest.raises(ClientError, match=f"has no partition {PARTITIONS}"):
        publish_write([replace(message, runs=(*message.runs, bad))], settings)
    assert_published(kafka, output, 0)


def test_a_write_with_a_number_is_recognised(kafka: str, output: str) -> None:
    def write(batch: int) -> None:
        settings = settings_for(kafka, output, exactly_once="batch", sink_id=output, batch_id=batch)
        publish_write([task(settings, values_of(batch))], settings)

    for batch in (0, 1, 1):
        write(batch)
    with pytest.raises(ClientError, match="has batchId 1 already"):
        write(0)
    assert_published(kafka, output, 0, 1)


def test_a_batch_without_rows_sends_no_request(output: str) -> None:
    settings = settings_for("127.0.0.1:1", output)
    publish_batch([], settings, 0)
    publish_write([None], settings)


def test_a_sink_without_a_name_is_refused(kafka: str, output: str) -> None:
    settings = settings_for(kafka, output)
    with pytest.raises(ClientError, match=r'name the sink: .option\("sinkId"'):
        publish_batch([task(settings, values_of(0), query="")], settings, 0)


def test_a_broker_that_is_killed_in_the_middle_and_comes_back(
    node: RunningNode, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last: it stops the node that the others use."""
    settings = settings_for(node.bootstrap, output, sink_id=output, message_bytes=500, timeout_ms=60_000)
    entry = SinkLedger.entry

    with ExitStack() as restarted:

        def restart_after_rows(ledger: SinkLedger, published: Published) -> bytes:
            monkeypatch.undo()
            node.kill()
            restarted.enter_context(node.prepared.launch())
            return entry(ledger, published)

        monkeypatch.setattr(SinkLedger, "entry", restart_after_rows)
        for batch in (0, 0, 1):
            publish_batch([task(settings, values_of(batch))], settings, batch)
        assert SinkLedger.entry is entry, "it was restarted"
        assert_published(node.bootstrap, output, 0, 1)
