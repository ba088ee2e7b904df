"""What members of classic groups tell each other: read back by us and by the broker; garbage is refused."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.group_calls import read_assignment
from headrace.client.membership.consumer_bytes import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.errors import DecodeError
from headrace.machines import consumer_protocol

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 1000), unique=True, max_size=5), max_size=4)
GENERATIONS = st.integers(-1, (1 << 31) - 1)


@given(st.lists(NAMES, unique=True, max_size=5), PARTITIONS, GENERATIONS)
def test_subscriptions_are_read_back(topics: list[str], owned: dict[str, list[int]], generation: int) -> None:
    data = encode_subscription(Subscription(tuple(topics), owned, generation))
    assert decode_subscription(data) == (tuple(topics), owned, generation)
    theirs = consumer_protocol.read_subscription(data)
    assert theirs is not None
    assert theirs.topics == tuple(topics)
    assert theirs.owned == {name: tuple(numbers) for name, numbers in owned.items()}


@given(PARTITIONS)
def test_assignments_are_read_back(partitions: dict[str, list[int]]) -> None:
    data = encode_assignment(partitions)
    expected = sorted((name, number) for name, numbers in partitions.items() for number in numbers)
    assert list(read_assignment(data)) == expected
    assert sorted(consumer_protocol.assigned_partitions(data)) == sorted(partitions)


@given(st.binary(max_size=60))
def test_garbage_raises_one_error(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode_subscription(data)


@given(NAMES, PARTITIONS, GENERATIONS, st.data())
def test_cut_subscriptions_raise_one_error(
    topic: str, owned: dict[str, list[int]], generation: int, data: st.DataObject
) -> None:
    whole = encode_subscription(Subscription((topic,), owned, generation))
    needed = len(whole) - 2  # what follows is the rack, which nobody reads
    cut = data.draw(st.integers(0, needed - 1))
    try:
        decode_subscription(whole[:cut])
    except DecodeError:
        return
    raise AssertionError(f"{cut} of {needed} bytes were enough")


def test_older_versions_are_read() -> None:
    name = struct.pack(">h", 1) + b"t"
    topics = struct.pack(">i", 1) + name
    owned = struct.pack(">i", 1) + name + struct.pack(">ii", 1, 7)
    no_user_data, generation_as_user_data = struct.pack(">i", -1), struct.pack(">ii", 4, 12)
    first = struct.pack(">h", 0) + topics + no_user_data
    second = struct.pack(">h", 1) + topics + generation_as_user_data + owned
    newer = struct.pack(">h", 9) + topics + no_user_data + owned + struct.pack(">i", 5) + b"and more"
    assert decode_subscription(first) == (("t",), {}, -1)
    assert decode_subscription(second) == (("t",), {"t": [7]}, 12)
    assert decode_subscription(newer) == (("t",), {"t": [7]}, 5)
