# SPDX-License-Identifier: Apache-2.0
"""`headrace groups` and `headrace plan` against live clusters, on a terminal, in a pipe and as JSON.

Run against a Headrace node in `make test`, and the same tests against Apache Kafka in `make compat`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.cli_runner import Cli, Ended, interrupt, plain, running_cluster, wait_for_line
from tests.compat.group_members import Members
from tests.harness.waiting import wait_until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
OLD_MS = 100_000


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def cli(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with running_cluster(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as cli:
        yield cli


def fill(cli: Cli, topic: str, *, partitions: int = 1, each: int = 10, age_ms: int = OLD_MS) -> None:
    """Records with a timestamp of their own, as many in each partition."""
    cli.prepare("topics", "create", topic, "-p", str(partitions))
    add(cli, topic, partitions=partitions, each=each, age_ms=age_ms)


def add(cli: Cli, topic: str, *, partitions: int = 1, each: int = 10, age_ms: int = OLD_MS) -> None:
    timestamp = int(time.time() * 1000) - age_ms
    lines = [
        {"value": str(number), "partition": partition, "timestamp": timestamp}
        for number in range(each)
        for partition in range(partitions)
    ]
    cli.prepare("produce", topic, "--json-lines", stdin="".join(json.dumps(line) + "\n" for line in lines))


def commit(cli: Cli, group: str, topic: str, *strategy: str) -> None:
    """Gives a group that nobody is in its offsets."""
    cli.prepare("groups", "reset", group, "--topic", topic, *(strategy or ("--to-earliest",)), "--execute")


def offsets(cli: Cli, group: str) -> list[int]:
    described = cli("groups", "describe", group, "--over", "0s", "--json").ok().document
    return [partition["committed"] for partition in described["partitions"]]


@contextmanager
def producing(bootstrap: str, topic: str, *, pause_s: float) -> Iterator[None]:
    end = threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        number = 0
        while not end.wait(pause_s):
            producer.produce(topic, str(number).encode(), key=str(number).encode())
            producer.poll(0)
            number += 1
        producer.flush(10)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


# -- list --------------------------------------------------------------------------------------------------


def test_groups_list(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    idle, busy = f"{topic}-idle", f"{topic}-busy"
    commit(cli, idle, topic, "--to-offset", "4")
    with Members(cli.bootstrap, busy, topic):
        rows = {row[0]: row[1:] for row in cli("groups", "list").ok().rows}
        assert rows["GROUP"] == ["PROTOCOL", "TYPE", "STATE", "MEMBERS", "LAG"]
        assert rows[idle][1:] == ["classic", "Empty", "0", "6"]
        assert rows[busy][:4] == ["consumer", "classic", "Stable", "1"]
        empty = {group["group"] for group in cli("groups", "list", "--state", "empty", "--json").document}
        assert idle in empty
        assert busy not in empty
        assert busy not in cli("groups", "list", "--type", "consumer").ok().out
        shown = cli.on_terminal("groups", "list").ok()
    assert busy in plain(shown.out)
    assert "\x1b[36m" in shown.out
    listed = {group["group"]: group for group in cli("groups", "list", "--json").ok().document}
    assert (listed[idle]["members"], listed[idle]["lag"], listed[idle]["type"]) == (0, 6, "classic")
    wrong = cli("groups", "list", "--state", "sleepy")
    assert wrong.code == 2
    assert "not one of Assigning, CompletingRebalance" in wrong.err


# -- describe ----------------------------------------------------------------------------------------------


@pytest.mark.row("D10")
def test_groups_describe_draws_four_partitions_over_three_consumers(cli: Cli) -> None:
    topic = "drawn"  # short enough for three drums side by side
    fill(cli, topic, partitions=4)
    with Members(cli.bootstrap, topic, topic, 3):
        wait_until_committed(cli, topic, [10] * 4)
        described = cli("groups", "describe", topic, "--json").ok().document
        shown = cli.on_terminal("groups", "describe", topic).ok()
        piped = cli("groups", "describe", topic).ok()
    assert (described["state"], described["type"], described["assignor"]) == ("Stable", "classic", "range")
    assert [len(member["assigned"]) for member in described["members"]] == [2, 1, 1]
    assert {member["host"] for member in described["members"]} == {"127.0.0.1"}
    assert described["lag"] == 0
    assert [p["lag_seconds"] for p in described["partitions"]] == [0.0] * 4
    assert {p["trend"] for p in described["partitions"]} == {"caught up"}
    drawing = plain(shown.out)
    assert drawing.count(",```_") == 3
    for partition in range(4):
        assert re.search(rf"\(\)=\(\S*#{partition}\(@=\(\)", drawing)
    assert re.search(r"worker#0 +worker#1 +worker#2", drawing)
    assert ["lag", "0"] in piped.rows
    assert [topic, "3", "worker#2", "10", "10", "0", "0.000", "0.000"] in [
        [*row[:3], *row[4:]] for row in piped.rows
    ]
    assert "()=(" not in piped.out


@pytest.mark.row("D14")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_describe_shows_the_current_position_beside_the_committed_one(
    cli: Cli, topic: str, protocol: str, request: pytest.FixtureRequest
) -> None:
    """Known from fetches on Headrace; Apache Kafka does not tell."""
    fill(cli, topic)
    settings: dict[str, Any] = {
        "bootstrap.servers": cli.bootstrap,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer: Any = Consumer(settings)
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.5) is not None, "a record")
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        position = None if "kafka" in request.node.callspec.id.split("-") else 10
        wait_until(lambda: described_partition(cli, topic)["position"] == position, "a position")
        partition = described_partition(cli, topic)
        shown = plain(cli.on_terminal("groups", "describe", topic, "--over", "0s").ok().out)
        piped = cli("groups", "describe", topic, "--over", "0s").ok().rows
    finally:
        consumer.close()
    assert (partition["start"], partition["committed"], partition["end"], partition["lag"]) == (0, 4, 10, 6)
    row = dict(zip(piped[-2], piped[-1], strict=True))
    assert (row["POSITION"], row["COMMITTED"]) == (str(position or "-"), "4")
    if position is None:
        assert re.search(r"0 \|=+C\.+\| 10", shown)
        assert "the current position is not known" in shown
    else:
        assert re.search(r"0 \|=+C-+P\| 10", shown)
    assert "headrace.readers" not in cli("configs", "get", "--topic", topic, "--all").ok().out


def test_every_table_fits_a_terminal_of_80_columns(cli: Cli, topic: str) -> None:
    name = f"{topic}-orders-of-all-customers-by-region.v2"
    fill(cli, name, partitions=2)
    commit(cli, name, name, "--to-offset", "4")
    commands = (
        ("topics", "list"),
        ("topics", "describe", name, "--producers"),
        ("configs", "get", "--topic", name, "--all"),
        ("groups", "list"),
        ("groups", "describe", name, "--over", "0s"),
        ("groups", "reset", name, "--to-earliest"),
        ("plan", name, "--produce-rate", "5000", "--consume-rate", "900"),
    )
    for command in commands:
        shown = plain(cli.on_terminal(*command, columns=80).ok().out).splitlines()
        tables = [line for line in shown if not re.match(r"[A-Za-z-]", line)]  # not sentences
        assert max(map(len, tables)) <= 80, "\n".join(shown)
        assert "───" in "".join(tables)


def wait_until_committed(cli: Cli, group: str, wanted: list[int]) -> None:
    wait_until(lambda: offsets(cli, group) == wanted, lambda: offsets(cli, group))


def test_groups_describe_shows_the_age_of_a_lag(cli: Cli, topic: str) -> None:
    """By when the record came, where the broker saw it come; else by the record's own timestamp."""
    fill(cli, topic)
    commit(cli, topic, topic, "--to-offset", "4")
    partition = described_partition(cli, topic)
    assert (partition["committed"], partition["end"], partition["lag"]) == (4, 10, 6)
    assert partition["clear_seconds"] is None
    piped = cli("groups", "describe", topic).ok()
    assert "the group has no members, so its lag does not shrink" in piped.err
    assert partition["lag_seconds"] == pytest.approx(OLD_MS / 1000, abs=60)
    assert partition["lag_seconds_from"] == "record timestamp"
    if "__headrace_lag" not in cli("topics", "list", "--all").ok().out:
        assert "__headrace_lag" in piped.err
        return
    time.sleep(6)  # lag is sampled every five seconds: the next sample covers the partition
    add(cli, topic)
    commit(cli, topic, topic, "--to-offset", "14")
    partition = described_partition(cli, topic)
    assert partition["lag_seconds_from"] == "samples"
    assert 0 <= partition["lag_seconds"] < OLD_MS / 1000 - 10


def described_partition(cli: Cli, group: str) -> Any:
    (partition,) = cli("groups", "describe", group, "--over", "0s", "--json").ok().document["partitions"]
    return partition


def test_groups_describe_estimates_when_a_lag_is_gone(cli: Cli, topic: str) -> None:
    fill(cli, topic, each=3000)
    with Members(cli.bootstrap, topic, topic, pause_s=0.005):
        deadline = time.monotonic() + 20
        while not cli("groups", "list", "--json").ok().document or not offsets(cli, topic):
            assert time.monotonic() < deadline
        described = cli("groups", "describe", topic, "--over", "4s", "--json").ok().document
        shown = plain(cli.on_terminal("groups", "describe", topic, "--over", "1s").ok().out)
    (partition,) = described["partitions"]
    assert partition["trend"] == "shrinking"
    assert 10 < partition["rate_out"] < 220
    expected = partition["lag"] / partition["rate_out"]
    assert partition["clear_seconds"] == pytest.approx(expected, rel=0.05)
    assert re.search(r"\d+\.\d s *\n", shown)


def test_groups_describe_of_the_newer_protocol(cli: Cli, topic: str) -> None:
    fill(cli, topic, partitions=2)
    with Members(cli.bootstrap, topic, topic, 2, protocol="consumer"):
        described = cli("groups", "describe", topic, "--over", "0s", "--json").ok().document
        listed = cli("groups", "list", "--type", "consumer").ok()
    assert (described["type"], described["assignor"]) == ("consumer", "uniform")
    assert described["epoch"] >= 1
    assert [len(member["assigned"]) for member in described["members"]] == [1, 1]
    assert topic in listed.out


def test_groups_describe_watch(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    commit(cli, topic, topic)
    process = cli.start("groups", "describe", topic, "--watch", "--json")
    first = wait_for_line(process, lambda line: b'"partitions"' in line)
    assert json.loads(first[-1])["partitions"][0]["lag"] == 10
    commit(cli, topic, topic, "--to-latest")
    wait_for_line(process, lambda line: json.loads(line)["partitions"][0]["lag"] == 0)
    assert interrupt(process).code == 130


# -- reset -------------------------------------------------------------------------------------------------


def test_groups_reset_is_a_dry_run_without_execute(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    commit(cli, topic, topic, "--to-offset", "4")
    shown = cli("groups", "reset", topic, "--to-latest").ok()
    assert shown.rows == [["TOPIC", "PARTITION", "OLD", "NEW", "CHANGE"], [topic, "0", "4", "10", "+6"]]
    assert "dry run" in shown.err
    assert offsets(cli, topic) == [4]
    done = cli("groups", "reset", topic, "--to-latest", "--execute", "--json").ok().document
    assert done == {
        "group": topic,
        "executed": True,
        "offsets": [{"topic": topic, "partition": 0, "old": 4, "new": 10, "wanted": 10}],
    }
    assert offsets(cli, topic) == [10]
    outside = plain(cli.on_terminal("groups", "reset", topic, "--to-offset", "16").ok().out)
    assert "offset 16 is not in the log, using 10" in outside


def test_groups_reset_by_every_strategy(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli.prepare("topics", "create", topic, "-p", "2")
    moments = [1_700_000_000_000 + second * 1000 for second in range(5)]
    lines = [{"value": "x", "partition": part, "timestamp": at} for at in moments for part in (0, 1)]
    cli.prepare("produce", topic, "--json-lines", stdin="".join(json.dumps(line) + "\n" for line in lines))
    commit(cli, topic, topic, "--to-offset", "2")
    file = tmp_path / "offsets.csv"
    file.write_text(cli("groups", "reset", topic, "--to-current", "--export").ok().out)
    assert file.read_text() == f"{topic},0,2\n{topic},1,2\n"
    for strategy, expected in (
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [5, 5]),
        (("--to-current",), [2, 2]),
        (("--to-offset", "99"), [5, 5]),
        (("--to-datetime", "2023-11-14T22:13:23Z"), [3, 3]),
        (("--by-duration", "PT1H"), [5, 5]),
        (("--shift-by", "-1"), [1, 1]),
        (("--shift-by", "-7", "--topic", f"{topic}:1"), [0]),
    ):
        planned = cli("groups", "reset", topic, *strategy, "--json").ok().document
        assert [change["new"] for change in planned["offsets"]] == expected, strategy
    cli.prepare("groups", "reset", topic, "--to-latest", "--execute")
    cli.prepare("groups", "reset", topic, "--from-file", str(file), "--execute")
    assert offsets(cli, topic) == [2, 2]


def test_groups_reset_refusals_say_what_to_do(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    assert "exactly one is required of --from, --to-earliest" in cli("groups", "reset", topic).err
    assert "exactly one is required" in cli("groups", "reset", topic, "--to-latest", "--to-earliest").err
    nobody = cli("groups", "reset", f"{topic}-none", "--to-latest")
    assert nobody.code == 1
    assert "does not exist; set --topic" in nobody.err
    assert "has no partition 7" in cli("groups", "reset", topic, "-t", f"{topic}:7", "--to-latest").err
    with Members(cli.bootstrap, topic, topic):
        refused = cli("groups", "reset", topic, "-t", topic, "--to-earliest", "--execute")
        dry = cli("groups", "reset", topic, "-t", topic, "--to-earliest").ok()
    assert refused.code == 1
    assert f"group '{topic}' is in use (state Stable, 1 member)" in refused.err
    assert f"headrace groups describe {topic}" in refused.err
    assert "It would be rejected now" in dry.err


# -- delete ------------------------------------------------------------------------------------------------


def test_groups_delete_names_the_target_and_asks(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    first, second = f"{topic}-1", f"{topic}-2"
    for group in (first, second):
        commit(cli, group, topic)
    refused = cli("groups", "delete", first)
    assert refused.code == 1
    assert f"delete '{first}' (Empty) at {cli.bootstrap}" in refused.err
    assert "--yes" in refused.err
    declined = cli.on_terminal("groups", "delete", first, typed="n\n")
    assert "nothing was changed" in plain(declined.out)
    assert f"Deleted '{first}'" in plain(cli.on_terminal("groups", "delete", first, typed="y\n").ok().out)
    assert cli("groups", "delete", second, "--yes", "--json").ok().document == {"deleted": [second]}
    gone = cli("groups", "describe", first)
    assert gone.err == f"headrace: group '{first}' does not exist; list the groups: headrace groups list\n"


def test_groups_delete_offsets_of_one_topic(cli: Cli, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        fill(cli, name)
        commit(cli, topic, name)
    arguments = ("groups", "delete", topic, "--topic", other, "--yes")
    assert cli(*arguments, "--json").ok().document == {"topic": other, "forgotten_partitions": {topic: 1}}
    left = cli("groups", "describe", topic, "--over", "0s", "--json").ok().document["partitions"]
    assert [partition["topic"] for partition in left] == [topic]
    assert "has committed nothing for topic" in cli(*arguments).err
    with Members(cli.bootstrap, topic, topic):
        in_use = cli("groups", "delete", topic, "--yes")
        subscribed = cli("groups", "delete", topic, "--topic", topic, "--yes")
    for ended in (in_use, subscribed):
        assert ended.code == 1
        assert "stop its consumers first" in ended.err


# -- events ------------------------------------------------------------------------------------------------


def kind_is(*kinds: str) -> Callable[[bytes], bool]:
    return lambda line: json.loads(line)["kind"] in kinds


@pytest.mark.row("D21")
def test_groups_events_show_joins_and_leaves(cli: Cli, topic: str) -> None:
    """From what Headrace wrote down, or from looking on where nothing is written down."""
    fill(cli, topic, partitions=2)
    with Members(cli.bootstrap, topic, topic):
        process = cli.start("groups", "events", topic, "--follow", "--json")
        wait_for_line(process, kind_is("join", "present"))
        with Members(cli.bootstrap, topic, topic):
            joined = wait_for_line(process, kind_is("join"))
            wait_for_line(process, kind_is("assigned"))
        left = wait_for_line(process, kind_is("leave"))
    assert json.loads(joined[-1])["details"]["client_id"] == "worker"
    assert json.loads(left[-1])["group"] == topic
    assert interrupt(process).code == 130
    written = "__headrace_events" in cli("topics", "list", "--all").ok().out
    ended = cli("groups", "events", topic, "--from", "5m")
    if written:
        check_written_events(cli, topic, ended)
    else:
        assert ended.code == 1
        assert "does not write down what happens in groups" in ended.err
        assert f"headrace groups events {topic} --follow" in ended.err


def check_written_events(cli: Cli, group: str, ended: Ended) -> None:
    kinds = [kind for _, kind, _ in ended.ok().rows]
    assert kinds.count("join") == 2
    assert {"rebalance", "assigned", "leave"} <= set(kinds)
    assert re.search(r"partitions assigned to 2 members after [\d.]+ m?s", ended.out)
    assert "worker-" in plain(cli.on_terminal("groups", "events", group).ok().out)
    nothing = cli("groups", "events", group, "--since", "1ms").ok()
    assert nothing.out == ""
    assert "try a longer time: --from 7d" in nothing.err


# -- plan --------------------------------------------------------------------------------------------------


@pytest.mark.row("D16")
def test_plan_from_a_running_topic_and_its_group(cli: Cli, topic: str) -> None:
    fill(cli, topic, partitions=2, each=2000)
    members = Members(cli.bootstrap, topic, topic, 2, pause_s=0.02)
    with members, producing(cli.bootstrap, topic, pause_s=0.005):
        time.sleep(1)  # the rates are measured when both have been at work for a while
        planned = cli("plan", topic, "--group", topic, "--over", "4s", "--json").ok().document
    produced, consumed = planned["figures"]["produce_rate"], planned["figures"]["consume_rate"]
    assert (produced["source"], consumed["source"]) == ("measured", "measured")
    assert 20 < produced["value"] < 210
    assert 5 < consumed["value"] < 55
    assert consumed["at_least"] is False, "both had more than they could do"
    assert planned["consumers"] == -(-produced["value"] // consumed["value"])
    assert planned["partitions"] >= planned["consumers_with_spare"] > planned["consumers"] - 1
    assert planned["figures"]["consumers"] == 2
    assert any("topics alter" in limit for limit in planned["limits"])


@pytest.mark.row("D16")
def test_plan_refuses_to_guess(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    silent = cli("plan", topic, "--consume-rate", "100", "--over", "600ms", "--json")
    assert (silent.code, silent.out) == (1, "")
    assert json.loads(silent.err)["code"] == "NOT_MEASURED"
    assert "--produce-rate" in json.loads(silent.err)["next"]
    unknown = cli("plan", topic, "--produce-rate", "100")
    assert unknown.code == 1
    assert "the rate of one consumer was not measured" in unknown.err
    assert f"headrace plan {topic} --group GROUP" in unknown.err
    commit(cli, topic, topic)
    idle = cli("plan", topic, "--produce-rate", "100", "--group", topic, "--over", "600ms")
    assert idle.code == 1
    assert "committed nothing within" in idle.err


def test_plan_tries_ones_own_code(cli: Cli, topic: str, monkeypatch: Any, tmp_path: Path) -> None:
    fill(cli, topic, partitions=2, each=100)
    (tmp_path / "own_code.py").write_text(
        "import time\ndef handle(record):\n    assert record.value\n    time.sleep(0.01)\n"
        "def fail(record):\n    raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    given = ("plan", topic, "--produce-rate", "1000", "--over", "2s")
    planned = cli(*given, "--handler", "own_code:handle", "--json").ok().document
    rate = planned["figures"]["consume_rate"]
    assert 10 < rate["value"] < 101
    assert "trial on" in rate["how"]
    failed = cli(*given, "--handler", "own_code:fail")
    assert failed.code == 1
    assert "ValueError: no" in failed.err
    assert "cannot be imported" in cli(*given, "--handler", "own_code:none").err
    shell = cli(*given, "--exec", "cat > /dev/null", "--records", "20", "--json").ok().document
    assert shell["consumers"] > 1
    assert "exit code 3" in cli(*given, "--exec", "exit 3").err


def test_plan_shows_figures_and_where_they_are_from(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-p", "3")
    given = ("plan", topic, "--produce-rate", "900", "--consume-rate", "300", "--session-timeout", "10s")
    rows = cli(*given).ok().rows
    assert ["all producers", "900 records/s", "given", "--produce-rate"] in rows
    assert ["session timeout", "10.0 s", "given", "--session-timeout"] in rows
    assert ["rebalance", "-", "not measured", "set --rebalance-time"] in rows
    assert ["consumers", "3", "⌈900 / 300⌉"] in rows
    shown = plain(cli.on_terminal(*given, "--node-down", "5s", "--rebalance-time", "1s").ok().out)
    assert re.search(r"5 +with a spare +60% +2,700 +20\.0 s +4,500 +12\.5 s", shown)
    assert "Bottleneck" in shown
