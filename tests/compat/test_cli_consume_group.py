# SPDX-License-Identifier: Apache-2.0
"""`headrace consume --group` against a live cluster: members, workers, commands, dead letters.

Runs against a Headrace node in `make test`, and the same tests against Apache Kafka in `make compat`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from tests.compat.cli_runner import Cli, interrupt, plain, wait_for_line
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.row("D15")

RECORDS = "".join(f"k{number % 5}:v{number}\n" for number in range(12))
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
WAIT_S = 30


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def cli(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "headrace":
        with NodeProcess(directory, settings=SETTINGS) as node:
            yield Cli(node.bootstrap)
        return
    if missing := why_kafka_is_missing():
        leave_out("Apache Kafka", missing)
    with KafkaEngine().start(directory, SETTINGS) as node:
        yield Cli(node.bootstrap)


@pytest.fixture
def filled(cli: Cli, topic: str) -> str:
    cli.prepare("topics", "create", topic, "--partitions", "2")
    cli.prepare("produce", topic, "--key-separator", ":", stdin=RECORDS)
    return topic


def assigned_members(cli: Cli, group: str) -> int:
    """Members of the group that have partitions."""
    admin = AdminClient({"bootstrap.servers": cli.bootstrap})
    try:
        described: Any = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    except KafkaException:  # a new cluster has no coordinator yet
        return 0
    return sum(bool(member.assignment.topic_partitions) for member in described.members)


def test_a_group_goes_on_where_it_committed(cli: Cli, filled: str) -> None:
    first = cli("consume", filled, "--group", filled, "--max", "5").ok()
    rest = cli("consume", filled, "-g", filled, "--exit-at-end", "--protocol", "cooperative").ok()
    lines = first.out.splitlines() + rest.out.splitlines()
    assert len(first.out.splitlines()) == 5
    assert sorted(lines) == sorted(f"v{number}" for number in range(12)), "each once"
    assert cli("consume", filled, "-g", filled, "--exit-at-end").ok().out == ""
    other = cli("consume", filled, "-g", f"{filled}-other", "--exit-at-end", "--format", "json").ok()
    assert {document["member"] for document in other.documents} == {"c1"}
    assert len(other.documents) == 12, "another group receives all again"
    types = {group["group"]: group["type"] for group in cli("groups", "list", "--json").ok().document}
    assert (types[filled], types[f"{filled}-other"]) == ("consumer", "consumer"), "KIP-848 where it is served"


def test_several_consumers_are_members_of_their_own(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "--partitions", "2")
    process = cli.start("consume", topic, "--group", topic, "--consumers", "2", "--json")
    wait_until(lambda: assigned_members(cli, topic) == 2, "two members with partitions", timeout_s=WAIT_S)
    cli.prepare("produce", topic, "--key-separator", ":", stdin=RECORDS)
    count = iter(range(1, 13))
    lines = wait_for_line(process, lambda _: next(count) == 12)
    ended = interrupt(process)
    assert (ended.code, ended.err) == (130, "")
    documents = [json.loads(line) for line in lines]
    assert {document["value"] for document in documents} == {f"v{number}" for number in range(12)}
    owners = {(document["partition"], document["member"]) for document in documents}
    assert len(owners) == 2, "each partition has one member, and each member one partition"
    assert {member for _, member in owners} == {"c1", "c2"}


def test_a_group_reads_several_topics(cli: Cli, filled: str) -> None:
    other = f"{filled}-other"
    cli.prepare("topics", "create", other)
    cli.prepare("produce", other, stdin="more\n")
    documents = cli("consume", filled, other, "-g", filled, "--exit-at-end", "--json").ok().documents
    assert {document["topic"] for document in documents} == {filled, other}
    assert len(documents) == 13
    assert cli("consume", f"{filled},{other}", "-g", filled, "--exit-at-end").ok().out == ""
    command = ("--exec", 'echo "$HEADRACE_TOPIC"', "--exit-at-end")
    done = cli("consume", f"{filled},{other}", "-g", f"{filled}-2", *command).ok().out.splitlines()
    assert (done.count(filled), done.count(other)) == (12, 1)
    shown = plain(cli.on_terminal("consume", filled, other, "-g", f"{filled}-3", "--exit-at-end").ok().out)
    assert f"c1 was assigned {filled}#0-1 {other}#0" in shown
    assert f"c1 {other}#0:0  more" in shown
    assert f"Handled 13 records of '{filled}', '{other}' in group" in shown


def test_a_command_handles_each_record_and_failures_become_dead_letters(cli: Cli, filled: str) -> None:
    command = (
        'read value; echo "$HEADRACE_TOPIC/$HEADRACE_PARTITION/$HEADRACE_OFFSET $HEADRACE_KEY=$value"; '
        'if [ "$value" = v7 ]; then echo "no sevens" >&2; exit 3; fi'
    )
    letters = f"{filled}-dlq"
    arguments = ("--exec", command, "--retries", "1", "--dead-letter", letters, "--exit-at-end")
    ended = cli("consume", filled, "-g", filled, "--workers", "3", "--order", "key", *arguments).ok()
    lines = ended.out.splitlines()
    assert len(lines) == 13, "one of them was tried twice"
    for key in ("k0", "k1", "k2", "k3", "k4"):
        values = [int(line.rsplit("v", 1)[1]) for line in lines if f" {key}=" in line]
        assert values == sorted(values), "the order of a key"
    assert "failed (exit code 3: no sevens), attempt 1; retry in" in ended.err
    assert "attempt 2; sent to the dead-letter topic" in ended.err
    (letter,) = cli("consume", letters, "--exit-at-end", "--json").ok().documents
    headers = dict(letter["headers"])
    assert (letter["key"], letter["value"]) == ("k2", "v7")
    assert headers["headrace.topic"] == filled
    assert headers["headrace.error"] == "CommandFailed: exit code 3: no sevens"
    assert headers["headrace.attempts"] == "2"


def test_results_of_commands_as_json(cli: Cli, filled: str) -> None:
    arguments = ("--exec", "wc -c; echo $HEADRACE_ATTEMPT >&2", "--max", "2", "--json")
    documents = cli("consume", filled, "-g", filled, *arguments).ok().documents
    assert len(documents) == 2
    for document in documents:
        assert (document["exit_code"], document["attempt"], document["member"]) == (0, 1, "c1")
        assert (document["stdout"].strip(), document["stderr"]) == ("2", "1\n")


def test_without_a_dead_letter_topic_a_failure_stops_all_and_is_not_committed(cli: Cli, filled: str) -> None:
    command = 'read value; [ "$value" != v4 ]'
    ended = cli("consume", filled, "-g", filled, "--exec", command, "--retries", "0", "--order", "partition")
    assert ended.code == 1
    assert "failed once: CommandFailed: exit code 1; fix the handler" in ended.err
    rest = cli("consume", filled, "-g", filled, "--exit-at-end").ok().out.splitlines()
    assert "v4" in rest
    missing = cli(
        "consume", filled, "-g", f"{filled}-2", "--exec", "no-such-command-here", "--dead-letter", "x"
    )
    assert missing.code == 1
    assert missing.err.startswith("headrace: the command cannot be run (exit code 127)")


def test_a_terminal_shows_which_member_read_what(cli: Cli, filled: str) -> None:
    shown = plain(cli.on_terminal("consume", filled, "-g", filled, "--max", "12").ok().out)
    assert "c1 was assigned partitions 0, 1" in shown
    assert "c1 0:0  v" in shown
    assert f"Handled 12 records of '{filled}' in group '{filled}': 0 retries, 0 dead letters." in shown
    arguments = ("--exec", "cat", "--max", "1", "--consumers", "2")
    ran = plain(cli.on_terminal("consume", filled, "-g", f"{filled}-2", *arguments).ok().out)
    assert "done" in ran
    assert " ms" in ran


def test_incompatible_options_are_refused(cli: Cli, filled: str) -> None:
    for arguments, said in (
        (("-g", "g", "--partition", "0"), "use either --partition or --group"),
        (("-g", "g", "--from", "12"), "headrace groups reset g"),
        (("-g", "g", "--order", "time"), "'time' is not one of key, partition, none"),
        (("-g", "g", "--protocol", "raft"), "'raft' is not one of classic, consumer, cooperative, eager"),
        (("-g", ""), "a group needs a name"),
        (("--workers", "2"), "--workers: needs --group"),
        (("--exec", "cat"), "--exec: needs --group"),
    ):
        ended = cli("consume", filled, *arguments)
        assert ended.code == 2
        assert said in ended.err
        assert ended.err.count("\n") == 1
    nothing = cli("consume", f"{filled}-not", "-g", "g")
    assert nothing.code == 1
    assert "does not exist; list the topics" in nothing.err


def test_a_reader_who_has_enough_ends_it_quietly(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    process = cli.start("consume", topic, "--group", topic)
    cli.prepare("produce", topic, stdin="first\n")
    wait_for_line(process, lambda line: line == b"first\n")
    assert process.stdout is not None
    process.stdout.close()
    cli.prepare("produce", topic, stdin="second\n")
    assert process.wait(WAIT_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_members_that_rebalance_in_another_way_are_named(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    process: subprocess.Popen[bytes] = cli.start("consume", topic, "-g", topic, "--protocol", "eager")
    wait_until(lambda: assigned_members(cli, topic) == 1, "a member with partitions", timeout_s=WAIT_S)
    refused = cli("consume", topic, "-g", topic, "--protocol", "cooperative")
    assert interrupt(process).code == 130
    assert refused.code == 1
    assert "other members of the group rebalance in another way" in refused.err
