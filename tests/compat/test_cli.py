# SPDX-License-Identifier: Apache-2.0
"""Every command of the CLI against a live cluster, on a terminal, in a pipe and as JSON.

Runs against a Headrace node in `make test`, and the same tests against Apache Kafka in `make compat`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from tests.compat.cli_runner import Cli, interrupt, plain, running_cluster, wait_for_line

HOSTILE = b"\x1b[31mred\x07"


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def cli(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with running_cluster(request.param, tmp_path_factory.mktemp(request.param)) as cli:
        yield cli


# -- topics ------------------------------------------------------------------------------------------------


@pytest.mark.row("D3")
@pytest.mark.row("D18")
def test_topics_create_with_and_without_a_number_of_partitions(cli: Cli, topic: str) -> None:
    created = cli("topics", "create", topic).ok()
    assert created.out == f"Created topic '{topic}' with 1 partition, replication factor 1.\n"
    arguments = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=90000")
    assert cli("topics", "create", f"{topic}-3", *arguments, "--json").ok().document == {
        "topic": f"{topic}-3",
        "created": True,
        "partitions": 3,
        "replication_factor": 1,
    }
    shown = cli.on_terminal("topics", "create", f"{topic}-4", "-p", "4").ok()
    assert plain(shown.out) == f"Created topic '{topic}-4' with 4 partitions, replication factor 1.\n"


def test_topics_create_refusals_say_what_to_do(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    again = cli("topics", "create", topic)
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        f"headrace: topic '{topic}' exists already; look at it: headrace topics describe {topic}\n"
    )
    assert cli("topics", "create", topic, "--if-not-exists", "--json").ok().document["created"] is False
    assert "cannot be a topic's name" in cli("topics", "create", "no good").err
    assert "replication" in cli("topics", "create", f"{topic}-r", "-r", "9").err
    assert "headrace configs get" in cli("topics", "create", f"{topic}-c", "-c", "no.such=1").err
    valid = cli("topics", "create", f"{topic}-v", "--validate-only", "--json").ok()
    assert valid.document == {"topic": f"{topic}-v", "valid": True}
    assert cli("topics", "describe", f"{topic}-v").code == 1


def test_topics_list(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-p", "2")
    rows = cli("topics", "list").ok().rows
    assert rows[0] == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [topic, "2", "1"] in rows
    listed = {entry["name"]: entry for entry in cli("topics", "list", "--json").ok().document}
    assert listed[topic] == {"name": topic, "partitions": 2, "replication_factor": 1, "internal": False}
    shown = cli.on_terminal("topics", "list").ok()
    assert topic in plain(shown.out)
    assert "\x1b[36m" in shown.out


def test_topics_describe(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-p", "2", "-c", "retention.ms=90000")
    cli.prepare("produce", topic, "--partition", "1", stdin="a\nb\n")
    described = cli("topics", "describe", topic, "--producers", "--json").ok().document
    assert described["topic"] == topic
    assert re.fullmatch(r"[\w-]{22}", described["topic_id"])
    assert described["configs"] == {"retention.ms": "90000"}
    assert [(each["partition"], each["end_offset"]) for each in described["partitions"]] == [(0, 0), (1, 2)]
    leader = described["partitions"][0]["leader"]
    assert described["partitions"][0]["replicas"] == [leader]
    assert described["partitions"][1]["size_bytes"] > 60
    assert [each["partition"] for each in described["producers"]] == [1]
    assert described["producers"][0]["last_sequence"] == 1
    out = cli("topics", "describe", topic).ok().out
    assert f"topic\t{topic}\n" in out
    assert "config retention.ms\t90000\n" in out
    assert re.search(rf"^1\t{leader}\t{leader}\t{leader}\t0\t2\t\d+$", out, flags=re.MULTILINE)
    shown = plain(cli.on_terminal("topics", "describe", topic, "--producers").ok().out)
    assert "PARTITION" in shown
    assert "LAST SEQUENCE" in shown
    assert re.search(r"\d+ B\b", shown)


def test_a_topic_that_is_not_there(cli: Cli, topic: str) -> None:
    for command in (
        ("topics", "describe", topic),
        ("topics", "alter", topic, "--partitions", "2"),
        ("topics", "delete", topic, "--yes"),
        ("consume", topic),
        ("configs", "get", "--topic", topic),
        ("configs", "set", "--topic", topic, "retention.ms=5"),
    ):
        ended = cli(*command)
        assert ended.code == 1
        assert ended.err.startswith(f"headrace: topic '{topic}' does not exist; list the topics: headrace")
    assert topic not in cli("topics", "list").ok().out, "looking at it must not create it"


def test_topics_alter(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-c", "retention.ms=90000")
    changes = ("-p", "3", "-c", "segment.bytes=2000000", "--unset", "retention.ms")
    altered = cli("topics", "alter", topic, *changes)
    assert altered.ok().out == f"Altered topic '{topic}': 3 partitions, replication factor 1.\n"
    assert cli("topics", "describe", topic, "--json").document["configs"] == {"segment.bytes": "2000000"}
    fewer = cli("topics", "alter", topic, "--partitions", "2", "--json")
    assert fewer.code == 1
    assert json.loads(fewer.err)["code"] == "INVALID_PARTITIONS"
    checked = cli("topics", "alter", topic, "-p", "4", "--validate-only", "--json").ok()
    assert checked.document == {"topic": topic, "valid": True}
    assert cli("topics", "alter", topic, "-p", "5", "--json").ok().document["partitions"] == 5
    shown = cli.on_terminal("topics", "alter", topic, "-c", "retention.ms=5000").ok()
    assert f"Altered topic '{topic}'" in plain(shown.out)


def test_topics_delete_names_the_target_and_asks(cli: Cli, topic: str) -> None:
    for name in (topic, f"{topic}-2", f"{topic}-3"):
        cli.prepare("topics", "create", name)
    refused = cli("topics", "delete", topic)
    assert refused.code == 1
    assert f"delete '{topic}' (1 partition, replication factor 1) at {cli.bootstrap}" in refused.err
    assert "--yes" in refused.err
    declined = cli.on_terminal("topics", "delete", topic, typed="n\n")
    assert declined.code == 1
    assert f"delete '{topic}'" in plain(declined.out)
    assert "nothing was changed" in plain(declined.out)
    cli.prepare("topics", "describe", topic)
    assert f"Deleted '{topic}'" in plain(cli.on_terminal("topics", "delete", topic, typed="y\n").ok().out)
    both = cli("topics", "delete", f"{topic}-2", f"{topic}-3", "--yes", "--json").ok()
    assert both.document == {"deleted": [f"{topic}-2", f"{topic}-3"]}
    assert topic not in cli("topics", "list").ok().out


# -- produce and consume -----------------------------------------------------------------------------------


@pytest.mark.row("D6")
@pytest.mark.row("D17")
def test_the_send_returns_partition_and_offset(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-p", "2")
    sent = cli("produce", topic, "--partition", "1", "-v", stdin="a\nb\nc\n").ok()
    assert sent.rows == [["1", "0", "-"], ["1", "1", "-"], ["1", "2", "-"]]
    assert re.fullmatch(rf"Sent 3 records to '{topic}' in \d+\.\d s; 0 failed\.\n", sent.err)
    events = cli("produce", topic, "--partition", "1", "-v", "--json", stdin="d\n").ok().documents
    assert events[0] == {"event": "delivered", "record": 1, "key": None, "partition": 1, "offset": 3}
    assert (events[1]["event"], events[1]["sent"], events[1]["failed"]) == ("summary", 1, 0)
    summary = cli("produce", topic, "--json", stdin="").ok().document
    assert (summary["sent"], summary["failed"]) == (0, 0)
    shown = cli.on_terminal("produce", topic, "--partition", "0", "-k", "k1", "-v", piped=b"x\n").ok()
    assert "partition 0  offset 0  key k1" in plain(shown.out)
    assert "\x1b[" in shown.out


@pytest.mark.row("D7")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(cli: Cli, topic: str, acks: str) -> None:
    cli.prepare("topics", "create", topic)
    sent = cli("produce", topic, "--acks", acks, "-v", stdin="a\nb\n").ok()
    offsets = ["-", "-"] if acks == "0" else ["0", "1"]
    assert sent.rows == [["0", offset, "-"] for offset in offsets], "with acks=0 nobody says the offset"
    assert cli("consume", topic, "--max", "2").ok().out == "a\nb\n"


@pytest.mark.row("D2")
def test_keys_headers_timestamps_and_tombstones_survive(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    lines = [
        {"key": "YOLO", "value": "foo", "timestamp": 1477225951750, "headers": {"a": "é", "b": None}},
        {"key": None, "value": None, "headers": [["x", "1"], ["x", "2"]]},
        {"key": "", "value": {"base64": "/wA="}, "partition": 0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    cli.prepare("produce", topic, "--json-lines", stdin=text)
    cli.prepare("produce", topic, "--key", "k", "-H", "n=1", "-H", "n=2", stdin="v\n")
    first, second, third, fourth = cli("consume", topic, "--exit-at-end", "--json").ok().documents
    assert (first["key"], first["value"], first["timestamp"]) == ("YOLO", "foo", "2016-10-23T12:32:31.750Z")
    assert (first["timestamp_type"], first["headers"]) == ("create", [["a", "é"], ["b", None]])
    assert (second["key"], second["value"], second["headers"]) == (None, None, [["x", "1"], ["x", "2"]])
    assert (third["key"], third["value"]) == ("", {"base64": "/wA="})
    assert (fourth["key"], fourth["headers"], fourth["offset"]) == ("k", [["n", "1"], ["n", "2"]], 3)


def test_what_consume_prints_as_json_can_be_produced_again(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    cli.prepare("topics", "create", f"{topic}-copy")
    cli.prepare("produce", topic, "-K", ":", stdin=b"k:\xff\nz:\n")
    printed = cli("consume", topic, "--exit-at-end", "--json").ok().out
    cli.prepare("produce", f"{topic}-copy", "--json-lines", stdin=printed)
    copied = cli("consume", f"{topic}-copy", "--exit-at-end", "--json").ok().out
    assert copied == printed.replace(topic, f"{topic}-copy")


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_file_is_sent_and_read_back_whole(cli: Cli, topic: str, compression: str, tmp_path: Path) -> None:
    cli.prepare("topics", "create", topic)
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(2000)))
    cli.prepare("produce", topic, "--file", str(file), "--compression", compression)
    assert cli("consume", topic, "--exit-at-end").ok().out == file.read_text()


def test_a_file_shows_progress_on_a_terminal_only(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli.prepare("topics", "create", topic)
    file = tmp_path / "lines.txt"
    file.write_text("x\n" * 20)
    shown = cli.on_terminal("produce", topic, "--file", str(file), "--rate", "12").ok()
    assert "sending" in shown.out
    assert f"Sent 20 records to '{topic}'" in plain(shown.out)
    assert "sending" not in cli("produce", topic, "--file", str(file)).ok().err
    missing = cli("produce", topic, "--file", str(tmp_path / "none"))
    assert missing.err == f"headrace: cannot read {tmp_path / 'none'}: No such file or directory\n"


def test_the_rate_is_a_limit(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    summary = cli("produce", topic, "--rate", "50", "--json", stdin="x\n" * 41).ok().document
    assert summary["sent"] == 41
    assert summary["seconds"] >= 0.8


def test_a_bad_line_stops_with_its_number_and_what_was_sent_before(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    ended = cli("produce", topic, "-K", ":", stdin="a:1\nb:2\nc\nd:4\n")
    assert ended.code == 1
    assert f"Sent 2 records to '{topic}'" in ended.err
    assert ended.err.endswith("headrace: line 3: no key separator ':' in the line\n")
    outside = cli("produce", topic, stdin='{"partition": 7}\n').ok()
    assert outside.code == 0, "without --json-lines it is only text"
    ended = cli("produce", topic, "--json-lines", stdin='{"partition": 7}\n')
    assert "line 1: partition 7 does not exist: the topic has 1, numbered 0 to 0" in ended.err


def test_a_refused_record_is_a_failure_with_the_next_command(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-c", "max.message.bytes=500")
    ended = cli("produce", topic, stdin="small\n" + "x" * 2000 + "\nsmall\n")
    assert ended.code == 1
    assert "record 2 failed: the record is larger than topic" in ended.err
    assert f"headrace configs set --topic {topic} max.message.bytes=BYTES" in ended.err
    assert "Sent 2 records" in ended.err
    assert "1 failed" in ended.err


def test_a_topic_is_created_by_the_broker_when_it_may(cli: Cli, topic: str) -> None:
    sent = cli("produce", topic, "-v", stdin="first\n").ok()
    assert sent.rows == [["0", "0", "-"]]
    assert sent.err.startswith(f"Created topic '{topic}' with 1 partition.\n")
    assert "Created" not in cli("produce", topic, stdin="second\n").ok().err
    assert cli("produce", f"{topic}-2", "--json", stdin="x\n").ok().document["created"] is True


@pytest.mark.row("D1")
def test_two_consumers_have_independent_positions(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    cli.prepare("produce", topic, stdin="".join(f"{number}\n" for number in range(6)))
    assert cli("consume", topic, "--from", "2", "--max", "2").ok().out == "2\n3\n"
    assert cli("consume", topic, "--from", "3", "--max", "1").ok().out == "3\n"
    assert cli("consume", topic, "--from", "-1", "--exit-at-end").ok().out == "5\n"
    assert cli("consume", topic, "--from", "end", "--exit-at-end").ok().out == ""
    beyond = cli("consume", topic, "--from", "7")
    assert beyond.code == 1
    assert "has no offset 7: its offsets are 0 to 6 in partition 0" in beyond.err


def test_consume_from_a_moment(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    lines = [{"value": str(second), "timestamp": 1_700_000_000_000 + second * 1000} for second in range(5)]
    cli.prepare("produce", topic, "--json-lines", stdin="\n".join(map(json.dumps, lines)) + "\n")
    assert cli("consume", topic, "--from", "2023-11-14T22:13:23Z", "--exit-at-end").ok().out == "3\n4\n"
    assert cli("consume", topic, "--from", "@1700000001500", "--max", "1").ok().out == "2\n"
    assert cli("consume", topic, "--from", "1h", "--exit-at-end").ok().out == ""


def test_consume_chosen_partitions(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-p", "3")
    for partition in "012":
        cli.prepare("produce", topic, "--partition", partition, stdin=f"in {partition}\n")
    read = cli("consume", topic, "-p", "0", "-p", "2", "--exit-at-end").ok()
    assert sorted(read.out.splitlines()) == ["in 0", "in 2"]
    ended = cli("consume", topic, "--partition", "3")
    assert ended.err == f"headrace: topic '{topic}' has no partition 3: it has 3, numbered 0 to 2\n"


def test_consume_several_topics(cli: Cli, topic: str) -> None:
    other = f"{topic}-other"
    cli.prepare("topics", "create", topic, "-p", "2")
    cli.prepare("topics", "create", other)
    cli.prepare("produce", topic, "--partition", "1", "-K", ":", stdin="k:one\n")
    cli.prepare("produce", other, stdin="two\n")
    for named in ((topic, other), (f"{topic},{other}",), (topic, f"{topic},{other}")):
        assert sorted(cli("consume", *named, "--exit-at-end").ok().out.splitlines()) == ["one", "two"]
    documents = cli("consume", topic, other, "--exit-at-end", "--json").ok().documents
    assert {document["topic"]: document["value"] for document in documents} == {topic: "one", other: "two"}
    rows = sorted(cli("consume", topic, other, "--exit-at-end", "-v").ok().rows)
    assert [row[:3] for row in rows] == [[topic, "1", "0"], [other, "0", "0"]]
    shown = plain(cli.on_terminal("consume", f"{topic},{other}", "--exit-at-end").ok().out)
    assert f"{topic}#1:0  one" in shown
    assert f"Read 2 records of '{topic}', '{other}'." in shown
    missing = cli("consume", topic, f"{topic}-missing")
    assert missing.code == 1
    assert f"'{topic}-missing'" in missing.err
    assert cli("consume", ",").code == 2


def test_consume_formats_in_a_pipe(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    cli.prepare("produce", topic, "-K", ":", "-H", "h=1", stdin=b"k:" + HOSTILE + b"\xff\tx\n")
    raw = cli("consume", topic, "--exit-at-end").ok()
    assert raw.out.encode(errors="surrogateescape") == HOSTILE + b"\xff\tx\n", "a pipe gets the bytes"
    ((partition, offset, _, key, headers, value),) = cli("consume", topic, "--exit-at-end", "-v").ok().rows
    assert (partition, offset, key, headers) == ("0", "0", "k", "h=1")
    assert value == "\\x1b[31mred\\x07\\xff\\tx", "columns stay columns"
    hexed = cli("consume", topic, "--exit-at-end", "--format", "hex").ok()
    assert bytes.fromhex(hexed.out) == HOSTILE + b"\xff\tx"
    hex_row = cli("consume", topic, "--exit-at-end", "--format", "hex", "-v").ok().rows[0]
    assert hex_row[3] == b"k".hex()


def test_nothing_in_a_record_reaches_the_terminal_as_a_command(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    cli.prepare("produce", topic, "-K", ":", stdin=HOSTILE + b":" + HOSTILE + b"\xc2\x9b2J[bold]\n")
    for options in ((), ("-v",), ("--json",), ("--format", "hex")):
        shown = cli.on_terminal("consume", topic, "--exit-at-end", *options).ok()
        assert "\x1b[31m" not in shown.out
        assert "\x07" not in shown.out
        assert "\x9b" not in shown.out
    assert "\\x1b[31mred\\x07\\x9b2J[bold]" in plain(cli.on_terminal("consume", topic, "--max", "1").out)


def test_consume_follows_and_stops_cleanly_on_ctrl_c(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    process = cli.start("consume", topic)
    try:
        cli.prepare("produce", topic, stdin="one\ntwo\n")
        assert wait_for_line(process, lambda line: line == b"two\n") == [b"one\n", b"two\n"]
        ended = interrupt(process)
    finally:
        process.kill()
    assert ended.code == 130
    assert ended.err == ""


def test_a_reader_that_has_enough_ends_consume_quietly(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    cli.prepare("produce", topic, stdin="x" * 100 + "\n" + "y\n" * 50_000)
    process = cli.start("consume", topic)
    try:
        wait_for_line(process, lambda line: True)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
    finally:
        process.kill()


def test_produce_stops_cleanly_on_ctrl_c_and_says_what_it_sent(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    process = cli.start("produce", topic, "-v", stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_for_line(process, lambda line: line == b"0\t0\t-\n")
        ended = interrupt(process)
    finally:
        process.kill()
    assert ended.code == 130
    assert f"Sent 1 record to '{topic}'" in ended.err


# -- partitioners ------------------------------------------------------------------------------------------


@pytest.mark.row("D5")
def test_keys_go_to_the_drawn_ranges_and_every_producer_agrees(cli: Cli, topic: str) -> None:
    created = cli("topics", "create", topic, "--partitions", "2", "--ranges", "AAAA..MZZZ,NAAA..ZZZZ").ok()
    assert created.out == f"Created topic '{topic}' with 2 partitions, replication factor 1.\n"
    lines = "YOLO:foo\nHELLO:bar\nMZZZ-1:baz\nNAAA:qux\n"
    for options in (("--partitioner", "range"), ()):
        sent = cli("produce", topic, "-K", ":", "-v", "--json", *options, stdin=lines).ok().documents[:-1]
        places = {event["record"]: event["partition"] for event in sent}
        assert places == {1: 1, 2: 0, 3: 0, 4: 1}, "also without --partitioner: the ranges are the topic's"
    rows = pa.table({"key": ["YOLO", "HELLO", "MZZZ-1", "NAAA"] * 3, "value": [""] * 12})
    delivered = headrace.write(rows, topic, bootstrap=cli.bootstrap, key="key")
    assert {place: each.records for place, each in delivered.partitions.items()} == {0: 6, 1: 6}
    kept = headrace.read(topic, bootstrap=cli.bootstrap, columns=["partition", "key"]).read_all().to_pylist()
    assert {row["partition"] for row in kept if row["key"] in (b"YOLO", b"NAAA")} == {1}
    described = cli("topics", "describe", topic, "--json").ok().document
    assert (described["ranges"], described["outside"]) == ("AAAA..MZZZ,NAAA..ZZZZ", "error")
    assert "key ranges\tAAAA..MZZZ,NAAA..ZZZZ\n" in cli("topics", "describe", topic).ok().out
    assert "AAAA..MZZZ,NAAA..ZZZZ" in plain(cli.on_terminal("topics", "describe", topic).ok().out)


@pytest.mark.row("D5")
def test_keys_that_have_no_place_are_refused_or_go_to_the_nearest(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "--partitions", "2", "--ranges", "AAAA..MZZZ,NAAA..ZZZZ")
    outside = cli("produce", topic, "-K", ":", stdin="zz:1\n")
    assert outside.code == 1
    assert "line 1: key 'zz' is outside every range (AAAA..MZZZ, NAAA..ZZZZ)" in outside.err
    assert "without a key has no place" in cli("produce", topic, stdin="x\n").err
    cli.prepare("topics", "alter", topic, "--outside", "nearest")
    assert cli("produce", topic, "-K", ":", "-v", stdin="zz:1\n").ok().rows == [["1", "0", "zz"]]
    assert cli("produce", topic, "--partition", "0", "-v", stdin="x\n").ok().rows == [["0", "0", "-"]]


@pytest.mark.row("D5")
def test_new_partitions_of_a_range_topic_need_new_ranges(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "--partitions", "2", "--ranges", "A..M,N..Z")
    refused = cli("topics", "alter", topic, "--partitions", "3")
    assert refused.code == 1
    assert "is partitioned by key range (A..M,N..Z): 3 partitions need 3 ranges" in refused.err
    wrong = cli("topics", "alter", topic, "--partitions", "3", "--ranges", "A..M,N..Z")
    assert "2 key ranges for 3 partitions" in wrong.err
    cli.prepare("topics", "alter", topic, "--partitions", "3", "--ranges", "A..H,I..P,Q..Z")
    assert cli("produce", topic, "-K", ":", "-v", stdin="YOLO:1\n").ok().rows == [["2", "0", "YOLO"]]


@pytest.mark.row("D5")
def test_ranges_are_learned_from_a_sample(cli: Cli, topic: str, tmp_path: Path) -> None:
    sample = tmp_path / "keys"
    sample.write_text("".join(f"{number:03d}\n" for number in range(300)))
    cli.prepare("topics", "create", topic, "--partitions", "3", "--ranges-from", str(sample))
    assert cli("topics", "describe", topic, "--json").document["ranges"] == "..0,1..1,2.."
    lines = "".join(f"{number:03d}:x\n" for number in range(300))
    events = cli("produce", topic, "-K", ":", "-v", "--json", stdin=lines).ok().documents[:-1]
    assert sorted(event["partition"] for event in events) == [0] * 100 + [1] * 100 + [2] * 100


@pytest.mark.row("D5")
def test_a_recreated_topic_does_not_inherit_ranges(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "--partitions", "2", "--ranges", "A..M,N..Z")
    cli.prepare("topics", "delete", topic, "--yes")
    cli.prepare("topics", "create", topic, "--partitions", "2")
    assert cli("topics", "describe", topic, "--json").document["ranges"] is None
    ended = cli("produce", topic, "--partitioner", "range", stdin="x\n")
    assert f"topic '{topic}' has no key ranges; set them: headrace topics alter {topic}" in ended.err


@pytest.mark.row("D4")
def test_same_key_same_partition_and_sticky_spreads(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic, "-p", "4")
    lines = "".join(f"key-{number % 10}:{'x' * 50}\n" for number in range(2000))
    events = cli("produce", topic, "-K", ":", "-v", "--json", stdin=lines).ok().documents[:-1]
    places: dict[int, set[int]] = {}
    for event in events:
        places.setdefault((event["record"] - 1) % 10, set()).add(event["partition"])
    assert all(len(partitions) == 1 for partitions in places.values())
    arguments = ("-K", ":", "--partitioner", "sticky", "-v")
    rows = cli("produce", topic, *arguments, stdin=lines * 5).ok().rows
    assert {partition for partition, _, _ in rows} == {"0", "1", "2", "3"}


# -- configs -----------------------------------------------------------------------------------------------


def test_configs_of_a_topic(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    changed = cli("configs", "set", "--topic", topic, "retention.ms=70000", "segment.bytes=3000000").ok()
    assert changed.out == f"Set retention.ms=70000, segment.bytes=3000000 for topic {topic}.\n"
    rows = cli("configs", "get", "--topic", topic, "retention.ms").ok().rows
    assert rows == [["SETTING", "VALUE", "FROM"], ["retention.ms", "70000", "topic"]]
    unset = cli("configs", "set", "--topic", topic, "--unset", "segment.bytes", "--json").ok()
    assert unset.document == {"topic": topic, "set": {}, "unset": ["segment.bytes"]}
    document = cli("configs", "get", "--topic", topic, "--json").ok().document
    values = {value["name"]: value["value"] for value in document["configs"] if value["source"] == "topic"}
    assert values == {"retention.ms": "70000"}
    everything = cli("configs", "get", "--topic", topic, "--all", "--json").ok().document["configs"]
    assert {"cleanup.policy", "segment.bytes", "max.message.bytes"} <= {value["name"] for value in everything}
    shown = cli.on_terminal("configs", "get", "--topic", topic).ok()
    assert "more have their default value; --all shows them" in plain(shown.out)
    assert "\x1b[36m" in shown.out


def test_quotas_are_set_listed_and_removed(cli: Cli, topic: str) -> None:
    whose = ("--user", topic, "--client-id", "app")
    changed = cli("quotas", "set", *whose, "producer_byte_rate=1024", "request_percentage=12.5").ok()
    assert changed.out.endswith(f"request_percentage=12.5 for user {topic}, client-id app.\n")
    rows = cli("quotas", "list", *whose).ok().rows
    assert rows[0] == ["USER", "CLIENT ID", "IP", "QUOTA", "VALUE"]
    assert rows[1:] == [
        [topic, "app", "-", "producer_byte_rate", "1024"],
        [topic, "app", "-", "request_percentage", "12.5"],
    ]
    cli("quotas", "remove", *whose, "request_percentage").ok()
    found = cli("quotas", "list", "--json").ok().document
    mine = [each for each in found if each.get("user") == topic]
    assert mine == [{"user": topic, "client_id": "app", "quotas": {"producer_byte_rate": 1024.0}}]
    removed = cli("quotas", "remove", *whose, "--json").ok().document
    assert removed == {"user": topic, "client_id": "app", "removed": ["producer_byte_rate"]}
    assert "has no quotas" in cli("quotas", "remove", *whose).err


def test_quotas_that_make_no_sense_are_refused_with_the_reason(cli: Cli) -> None:
    assert "whose quotas?" in cli("quotas", "set", "producer_byte_rate=1").err
    assert "is not a number" in cli("quotas", "set", "--user", "a", "producer_byte_rate=fast").err
    assert "not both" in cli("quotas", "set", "--user", "a", "--default-user", "producer_byte_rate=1").err
    assert "cannot be combined" in cli("quotas", "set", "--user", "a", "--ip", "10.0.0.1", "x=1").err
    assert "no_such_rate" in cli("quotas", "set", "--user", "a", "no_such_rate=1").err


def test_configs_that_are_wrong_are_refused_with_the_reason(cli: Cli, topic: str) -> None:
    cli.prepare("topics", "create", topic)
    for change in ("retention.ms=soon", "no.such.setting=1"):
        ended = cli("configs", "set", "--topic", topic, change)
        assert ended.code == 1
        assert change.partition("=")[0] in ended.err
        assert "headrace configs get" in ended.err
    ended = cli("configs", "get", "--topic", topic, "no.such.setting")
    assert f"topic {topic} has no setting 'no.such.setting'" in ended.err


def test_configs_of_a_node(cli: Cli) -> None:
    rows = cli("configs", "get", "--node", "1", "node.id", "num.partitions").ok().rows
    assert [(row[0], row[1]) for row in rows[1:]] == [("node.id", "1"), ("num.partitions", "1")]
    ended = cli("configs", "get", "--node", "77")
    assert ended.err == "headrace: node 77 is not in the cluster; its nodes are 1\n"


# -- log ---------------------------------------------------------------------------------------------------


def test_log_dump_reads_a_live_nodes_files(cli: Cli, topic: str) -> None:
    assert cli.data is not None
    cli.prepare("topics", "create", topic)
    cli.prepare("produce", topic, "-K", ":", "-z", "zstd", stdin=b"k:" + HOSTILE + b"y" * 300 + b"\nk2:v2\n")
    partition = cli.data / f"{topic}-0"
    (segment,) = partition.glob("*.log")
    rows = cli("log", "dump", str(segment), "--records").ok().rows
    assert rows[0] == [str(segment)]
    assert rows[2][1:3] == ["0-1", "2"]
    assert rows[2][4] == "zstd"
    assert rows[2][-1] == "ok"
    records = [row[3:] for row in rows if row[0] == "record"]
    assert records == [["k", "-", "\\x1b[31mred\\x07" + "y" * 300], ["k2", "-", "v2"]]
    events = cli("log", "dump", str(partition), "--batches", "--json").ok().documents
    assert [event["event"] for event in events] == ["batch", "segment", "summary"]
    assert events[0]["crc_ok"] is True
    shown = cli.on_terminal("log", "dump", str(segment), "--records").ok()
    assert "no errors" in shown.out
    assert "\x1b[31mred" not in shown.out
    assert "no errors" in cli("log", "dump", str(cli.data)).ok().out
