# SPDX-License-Identifier: Apache-2.0
"""`kafka-topics` and its like, ours, against live clusters: what scripts parse is what Apache Kafka prints.

Against a Headrace node in `make check`; against Apache Kafka in `make compat`, where the unmodified tools are
asked for the same and must print the same.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.cli_runner import Cli, Ended, running_cluster
from tests.compat.java_tool import JavaTool
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
FIRST_MS = 1_700_000_000_000
CELLS = re.compile(r" {2,}|\t")


class Tools:
    """`tools("topics", …)` runs `kafka-topics --bootstrap-server …` of ours."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> Ended:
        return self.cli(f"kafka-{tool}", "--bootstrap-server", self.cli.bootstrap, *arguments, stdin=stdin)

    def fill(self, topic: str, partitions: int = 2, each: int = 10) -> None:
        self("topics", "--create", "--topic", topic, "--partitions", str(partitions)).ok()
        producer = Producer({"bootstrap.servers": self.cli.bootstrap})
        for number in range(each):
            for partition in range(partitions):
                producer.produce(
                    topic,
                    f"{number}",
                    key=f"k{number}",
                    partition=partition,
                    timestamp=FIRST_MS + 1000 * number,
                )
        assert producer.flush(20) == 0

    def commit(self, group: str, topic: str, offset: int) -> None:
        reset = (
            "--reset-offsets",
            "--group",
            group,
            "--topic",
            topic,
            "--to-offset",
            str(offset),
            "--execute",
        )
        self("consumer-groups", *reset).ok()

    def committed(self, group: str) -> list[int]:
        lines = self("consumer-groups", "--describe", "--group", group).ok().out.split("\n")[2:]
        return [int(line.split()[3]) for line in lines if line]


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def tools(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with running_cluster(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as cli:
        yield Tools(cli)


def test_topics_from_create_to_delete(tools, topic):
    created = tools("topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")
    assert created.ok().out == f"Created topic {topic}.\n"
    again = tools("topics", "--create", "--topic", topic)
    assert (again.code, again.out) == (
        1,
        f"Error while executing topic command : Topic '{topic}' already exists.\n",
    )
    assert tools("topics", "--create", "--topic", topic, "--if-not-exists").ok().out == ""
    assert topic in tools("topics", "--list").ok().out.splitlines()
    assert tools("topics", "--list", "--topic", f"{topic},nothing-else").ok().out == f"{topic}\n"
    assert tools("topics", "--alter", "--topic", topic, "--partitions", "5").ok().out == ""
    head, *partitions = tools("topics", "--describe", "--topic", topic).ok().out.splitlines()
    assert re.match(
        rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 5\tReplicationFactor: 1\tConfigs: ", head
    )
    assert partitions == [
        f"\tTopic: {topic}\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        for index in range(5)
    ]
    assert tools("topics", "--delete", "--topic", topic).ok().out == ""
    gone = tools("topics", "--delete", "--topic", topic)
    assert gone.code == 1
    assert gone.out == f"Error while executing topic command : Topic '{topic}' does not exist as expected\n"
    assert tools("topics", "--delete", "--topic", topic, "--if-exists").ok().out == ""


def test_topics_settings_and_filters(tools, topic):
    settings = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact")
    tools("topics", "--create", "--topic", topic, *settings).ok()
    (head,) = tools("topics", "--describe", "--topic", topic, "--topics-with-overrides").ok().out.splitlines()
    assert "cleanup.policy=compact" in head
    assert "retention.ms=3600000" in head
    for option in ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions"):
        assert tools("topics", "--describe", "--topic", topic, f"--{option}").ok().out == ""
    at_minimum = tools("topics", "--describe", "--topic", topic, "--at-min-isr-partitions").ok().out
    assert at_minimum.startswith(f"\tTopic: {topic}\tPartition: 0\t")


def test_fewer_partitions_are_refused(tools, topic):
    tools("topics", "--create", "--topic", topic, "--partitions", "2").ok()
    refused = tools("topics", "--alter", "--topic", topic, "--partitions", "1")
    assert refused.code == 1
    assert refused.out.startswith("Error while executing topic command : ")
    assert "would not be an increase" in refused.out


def test_lines_with_keys_and_headers_come_back(tools, topic):
    tools("topics", "--create", "--topic", topic).ok()
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    written = tools(
        "console-producer", "--topic", topic, *keys, "--request-required-acks", "all", stdin="a:1\nb:2\n"
    )
    assert (written.ok().out, written.err) == ("", "")
    headers = ("--property", "parse.headers=true", "--property", "parse.key=true")
    options = ("--producer-property", "acks=1", "--producer-property", "compression.type=gzip")
    tools("console-producer", "--topic", topic, *headers, *options, stdin="h:x,i:y\tc\t3\n").ok()
    shown = (
        "--property",
        "print.key=true",
        "--property",
        "print.offset=true",
        "--property",
        "print.headers=true",
    )
    read = tools("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "3", *shown)
    assert (
        read.ok().out == "Offset:0\tNO_HEADERS\ta\t1\nOffset:1\tNO_HEADERS\tb\t2\nOffset:2\th:x,i:y\tc\t3\n"
    )
    assert read.err == "Processed a total of 3 messages\n"


def test_a_line_without_its_separator_is_refused_with_its_number(tools, topic):
    tools("topics", "--create", "--topic", topic).ok()
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    refused = tools("console-producer", "--topic", topic, *keys, stdin="a:1\nplain\n")
    assert refused.code == 1
    assert "line 2: no key separator ':' in 'plain'" in refused.err
    assert refused.out == ""


def test_reading_one_partition_from_an_offset_until_nothing_comes(tools, topic):
    tools.fill(topic)
    place = ("--topic", topic, "--partition", "1")
    read = tools("console-consumer", *place, "--offset", "7", "--timeout-ms", "1500").ok()
    assert read.out == "7\n8\n9\n"
    assert read.err == "Processed a total of 3 messages\n"
    assert tools("console-consumer", *place, "--timeout-ms", "1000").ok().out == ""
    everything = tools("console-consumer", *place, "--offset", "earliest", "--max-messages", "10").ok()
    assert everything.out.split() == [str(number) for number in range(10)]


def test_topics_are_read_by_pattern(tools, topic):
    for number in (1, 2):
        tools.fill(f"{topic}.{number}", partitions=1, each=2)
    read = tools("console-consumer", "--include", f"{topic}.*", "--from-beginning", "--max-messages", "4")
    assert sorted(read.ok().out.split()) == ["0", "0", "1", "1"]


def test_a_group_goes_on_where_it_stopped(tools, topic):
    tools.fill(topic, partitions=1)
    group = ("--topic", topic, "--group", f"g-{topic}", "--from-beginning")
    assert tools("console-consumer", *group, "--max-messages", "4").ok().out == "0\n1\n2\n3\n"
    assert tools.committed(f"g-{topic}") == [4]
    assert tools("console-consumer", *group, "--timeout-ms", "4000").ok().out == "4\n5\n6\n7\n8\n9\n"
    assert tools.committed(f"g-{topic}") == [10]


def test_ctrl_c_ends_the_consumer_and_counts(tools, topic):
    tools.fill(topic, partitions=1, each=2)
    options = ("--bootstrap-server", tools.cli.bootstrap, "--topic", topic, "--from-beginning")
    process = tools.cli.start("kafka-console-consumer", *options)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err == b"Processed a total of 2 messages\n"


def test_groups_are_listed_described_and_deleted(tools, topic):
    tools.fill(topic)
    group = f"group-of-{topic}"
    tools.commit(group, topic, 4)
    assert group in tools("consumer-groups", "--list").ok().out.splitlines()
    listed = tools("consumer-groups", "--list", "--state", "empty", "--type").ok().out.splitlines()
    assert listed[0].split() == ["GROUP", "TYPE", "STATE"]
    assert [group, "Classic", "Empty"] in [line.split() for line in listed]
    described = tools("consumer-groups", "--describe", "--group", group).ok()
    blank, head, *rows = described.out.split("\n")
    assert blank == ""
    assert head.split() == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert [row.split() for row in rows if row] == [
        [group, topic, str(partition), "4", "10", "6", "-", "-", "-"] for partition in (0, 1)
    ]
    assert f"Consumer group '{group}' has no active members." in described.err
    state = tools("consumer-groups", "--describe", "--group", group, "--state").ok().out
    assert re.search(rf"^{group} +\S+:\d+  \(1\) +- +Empty +0$", state, flags=re.MULTILINE)
    assert group in tools("consumer-groups", "--describe", "--all-groups").ok().out
    deleted = tools("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic).ok().out
    assert deleted.startswith(f"Request succeeded for deleting offsets from group {group}.\n")
    tools.commit(group, topic, 1)
    done = tools("consumer-groups", "--delete", "--group", group).ok().out
    assert done == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    failed = tools("consumer-groups", "--delete", "--group", group)
    assert failed.code == 1
    assert f"* Group '{group}' could not be deleted due to: " in failed.out
    unknown = tools("consumer-groups", "--describe", "--group", group)
    assert unknown.code == 1
    assert f"Group {group} not found." in unknown.out


STRATEGIES = {
    "earliest": (["--to-earliest"], [0, 0]),
    "latest": (["--to-latest"], [10, 10]),
    "offset": (["--to-offset", "7"], [7, 7]),
    "forward": (["--shift-by", "2"], [6, 6]),
    "back": (["--shift-by", "-3"], [1, 1]),
    "current": (["--to-current"], [4, 4]),
    "moment in UTC": (
        [
            "--to-datetime",
            datetime.fromtimestamp((FIRST_MS + 3000) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000"),
        ],
        [3, 3],
    ),
}


def test_offsets_are_reset_by_every_strategy_and_only_when_told(tools, topic):
    tools.fill(topic)
    group = f"group-of-{topic}"
    reset = ("--reset-offsets", "--group", group)
    for options, expected in STRATEGIES.values():
        tools.commit(group, topic, 4)
        for how in ((), ("--dry-run",)):
            planned = tools("consumer-groups", *reset, "--topic", topic, *options, *how).ok()
            assert [line.split() for line in planned.out.split("\n")[1:4]] == [
                ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
                *([group, topic, str(index), str(offset)] for index, offset in enumerate(expected)),
            ]
            assert ("--execute option is missing" in planned.err) == (not how)
            assert tools.committed(group) == [4, 4]
        tools("consumer-groups", *reset, "--all-topics", *options, "--execute").ok()
        assert tools.committed(group) == expected
    tools("consumer-groups", *reset, "--topic", f"{topic}:1", "--to-earliest", "--execute").ok()
    assert tools.committed(group) == [expected[0], 0]


def test_exported_offsets_are_read_again(tools, topic, tmp_path: Path):
    tools.fill(topic)
    group = f"group-of-{topic}"
    tools.commit(group, topic, 4)
    reset = ("--reset-offsets", "--group", group)
    exported = tools(
        "consumer-groups", *reset, "--all-topics", "--to-offset", "6", "--export", "--dry-run"
    ).ok()
    assert exported.out == f"{topic},0,6\n{topic},1,6\n"
    (tmp_path / "offsets.csv").write_text(exported.out)
    tools("consumer-groups", *reset, "--from-file", str(tmp_path / "offsets.csv"), "--execute").ok()
    assert tools.committed(group) == [6, 6]


@pytest.fixture
def member(tools, topic) -> Iterator[str]:
    """The name of a group with one member that owns two partitions."""
    tools.fill(topic)
    group = f"group-of-{topic}"
    tools.commit(group, topic, 4)
    consumer = Consumer(
        {"bootstrap.servers": tools.cli.bootstrap, "group.id": group, "client.id": "the-member"}
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, timeout_s=60)
    try:
        yield group
    finally:
        consumer.close()


def test_members_are_described_and_keep_their_offsets(tools, topic, member):
    rows = tools("consumer-groups", "--describe", "--group", member).ok().out.splitlines()[2:]
    assert {tuple(row.split()[-2:]) for row in rows} == {("/127.0.0.1", "the-member")}
    (row,) = tools("consumer-groups", "--describe", "--group", member, "--members").ok().out.splitlines()[2:]
    assert row.split()[0] == member
    assert row.split()[2:] == ["/127.0.0.1", "the-member", "2"]
    verbose = tools("consumer-groups", "--describe", "--group", member, "--members", "--verbose").ok().out
    assert f"{topic}:0,1" in verbose
    refused = tools(
        "consumer-groups", "--reset-offsets", "--group", member, "--topic", topic, "--to-latest", "--execute"
    )
    assert refused.code == 1
    assert "in use" in refused.out


SAME = {
    "list of topics": ("topics", "--list"),
    "a topic": ("topics", "--describe", "--topic", "TOPIC"),
    "a missing topic": ("topics", "--describe", "--topic", "TOPIC-x"),
    "an existing topic": ("topics", "--create", "--topic", "TOPIC"),
    "list of groups": ("consumer-groups", "--list", "--state", "--type"),
    "offsets": ("consumer-groups", "--describe", "--group", "GROUP"),
    "members": ("consumer-groups", "--describe", "--group", "GROUP", "--members"),
    "state": ("consumer-groups", "--describe", "--group", "GROUP", "--state"),
    "a reset": (
        *("consumer-groups", "--reset-offsets", "--group", "GROUP", "--topic", "TOPIC"),
        *("--to-latest", "--dry-run"),
    ),
    "records": (
        *("console-consumer", "--topic", "TOPIC", "--from-beginning", "--max-messages", "20"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.timestamp=true"),
        *("--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true"),
    ),
}  # fmt: skip


@pytest.mark.compat_jvm
@pytest.mark.parametrize("living", [False, True], ids=["empty group", "living group"])
def test_the_unmodified_tools_print_the_same(
    tools, kafka_engine: KafkaEngine, topic: str, living: bool, request: pytest.FixtureRequest
):
    java = JavaTool(kafka_engine, tools.cli.bootstrap)
    group = f"group-of-{topic}"
    if living:
        request.getfixturevalue("member")
    else:
        tools.fill(topic)
        tools.commit(group, topic, 4)
    for name, arguments in SAME.items():
        if living and name == "a reset":
            continue  # Apache Kafka plans none for a group with members
        tool, *options = (each.replace("TOPIC", topic).replace("GROUP", group) for each in arguments)
        theirs = java.run(tool, *options).stdout
        assert _comparable(tools(tool, *options).out, name) == _comparable(theirs, name), name


def _comparable(printed: str, name: str) -> list[list[str]]:
    """Cells of lines, without what the Java tool logs there; records of several partitions in any order."""
    lines = [CELLS.split(line.strip()) for line in printed.splitlines() if line.strip()]
    logged = (" ERROR ", "WARNING: Due to limitations in metric names")
    kept = [
        line
        for line in lines
        if not any(text in line[0] for text in logged) and not line[0].startswith("at org.")
    ]
    return sorted(kept) if name in ("records", "list of groups", "offsets", "a reset") else kept


def test_a_link_calls_its_tool(tmp_path: Path, start_node) -> None:
    """As in the image, whose links point to the installed command."""
    node: NodeProcess = start_node()
    program = tmp_path / "headrace"
    program.write_text(f"#!{sys.executable}\nfrom headrace.cli.main import main\nmain()\n", encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "kafka-topics.sh").symlink_to(program)
    done = subprocess.run(
        [
            str(tmp_path / "kafka-topics.sh"),
            "--create",
            "--topic",
            "linked",
            "--bootstrap-server",
            node.bootstrap,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "Created topic linked.\n", done.stderr
