# SPDX-License-Identifier: Apache-2.0
"""Addresses, Kafka's errors in words, and the stored form of key ranges."""

from __future__ import annotations

import json
import pickle

import pytest

from headrace.client.bootstrap import Address, chosen_bootstrap, parse_bootstrap
from headrace.client.errors import ClientError, as_flags
from headrace.client.kafka_errors import client_error
from headrace.client.partitioning.stored_ranges import StoredRanges, read_record
from headrace.key_ranges import parse_ranges

SOUND = {"format": 1, "kind": "range", "topic_id": "", "ranges": "A..B", "outside": "error"}


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("broker", [("broker", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:29092", [("::1", 29092)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", " , ", "host:port", "host:0", "host:65536", ":9092", "host:-1"])
def test_wrong_bootstrap_addresses(text: str) -> None:
    with pytest.raises(ClientError, match="bootstrap address"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("argument", "variable", "chosen"),
    [
        ("a:1", "b:2", "a:1"),
        (None, "b:2", "b:2"),
        (None, "", "127.0.0.1:9092"),
        (None, None, "127.0.0.1:9092"),
        ("", "b:2", ""),  # refused by parse_bootstrap, not replaced
    ],
)
def test_the_argument_then_the_variable_then_this_machine(
    argument: str | None, variable: str | None, chosen: str
) -> None:
    environment = {} if variable is None else {"HEADRACE_BOOTSTRAP": variable}
    assert chosen_bootstrap(argument, environment) == chosen


def test_an_argument_is_named_as_the_caller_writes_it() -> None:
    with pytest.raises(ClientError) as caught:
        parse_bootstrap("")
    assert str(caught.value) == 'no bootstrap address was given; give bootstrap="HOST:PORT"'
    assert as_flags(caught.value.next_step) == "give --bootstrap HOST:PORT"
    wrapped = ClientError("later", next_step=caught.value.next_step)
    for error in (wrapped, pickle.loads(pickle.dumps(wrapped))):
        assert str(error) == 'later; give bootstrap="HOST:PORT"'
        assert as_flags(error.next_step) == "give --bootstrap HOST:PORT"
    assert (as_flags("list them: headrace topics list"), as_flags(None)) == (
        "list them: headrace topics list",
        None,
    )


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


class FakeKafkaError:
    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("UNKNOWN_TOPIC_OR_PART", "x", "topic 't' does not exist; list the topics: headrace topics list"),
        ("TOPIC_ALREADY_EXISTS", "x", "topic 't' exists already; look at it: headrace topics describe t"),
        ("INVALID_CONFIG", "Broker: odd value.", "topic 't': odd value; see the settings there are"),
        ("SOMETHING_NEW", "Broker: never heard of it", "topic 't': never heard of it"),
        ("SOMETHING_NEW", "", "topic 't': SOMETHING_NEW"),
        ("_TRANSPORT", "Local: gone", "the connection to the broker was lost; start a node with"),
    ],
)
def test_errors_name_the_problem_and_the_next_command(name: str, text: str, said: str) -> None:
    error = client_error(FakeKafkaError(name, text), name="t")
    assert str(error).startswith(said)
    assert error.code == name


@pytest.mark.row("D5")
def test_stored_ranges_come_back_as_they_were() -> None:
    stored = StoredRanges(topic_id="id", ranges=parse_ranges(r"..M\,\xff,N.."), outside="nearest")
    assert read_record("t", stored.to_json()) == stored


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        json.dumps({"format": 1, "kind": "range"}).encode(),
        json.dumps(SOUND | {"kind": "hash"}).encode(),
        json.dumps(SOUND | {"ranges": "A"}).encode(),
        json.dumps(SOUND | {"ranges": 5}).encode(),
        json.dumps(SOUND | {"outside": "x"}).encode(),
    ],
)
def test_stored_ranges_of_another_program_are_refused_with_the_next_command(value: bytes) -> None:
    with pytest.raises(ClientError, match=r"are not understood .*headrace topics alter t --ranges"):
        read_record("t", value)
