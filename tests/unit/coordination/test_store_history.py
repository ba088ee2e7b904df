# SPDX-License-Identifier: Apache-2.0
"""A store that does not continue what a node has seen of it is recognised, and no other one is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.recovery import history
from headrace.coordination.recovery.history import (
    MOST_DECLARATIONS,
    MOST_EPOCHS,
    StoreHistory,
    StorePosition,
    is_declared_newer,
    position_in,
    why_behind,
)
from headrace.errors import CoordinationError


def begun(*epochs: tuple[str, int]) -> StoreHistory:
    """Epochs by their ids and the commits before each."""
    result = StoreHistory()
    for epoch_id, commits in epochs:
        result = result.with_epoch(epoch_id, commits)
    return result


def test_a_node_without_a_memory_takes_any_store() -> None:
    assert why_behind(StoreHistory(), 0, None) is None
    assert why_behind(begun(("a", 3)), 9, None) is None


def test_the_same_store_and_a_later_one_are_taken() -> None:
    seen = position_in(begun(("a", 3)), 9)
    assert why_behind(begun(("a", 3)), 9, seen) is None
    assert why_behind(begun(("a", 3), ("b", 9)), 10, seen) is None


def test_a_copy_with_fewer_commits_is_refused_and_both_numbers_are_named() -> None:
    seen = position_in(begun(("a", 3)), 9)
    reason = why_behind(begun(("a", 3)), 8, seen)
    assert reason is not None
    assert "ends at commit 8" in reason
    assert "seen 9 commits" in reason


def test_a_copy_that_another_node_went_on_with_is_refused_however_many_commits_it_has() -> None:
    seen = position_in(begun(("a", 3)), 9)
    assert why_behind(begun(("a", 3), ("other", 8)), 1_000, seen) is not None


def test_an_epoch_of_the_same_number_and_another_id_is_refused() -> None:
    seen = position_in(begun(("a", 3), ("b", 9)), 12)
    assert why_behind(begun(("a", 3), ("other", 9)), 1_000, seen) is not None


def test_a_copy_of_before_the_first_epoch_is_refused() -> None:
    assert why_behind(StoreHistory(), 1_000, position_in(begun(("a", 3)), 9)) is not None


def test_a_copy_that_was_declared_newer_is_taken_once() -> None:
    seen = position_in(begun(("a", 3), ("b", 9)), 12)
    restored = begun(("a", 3)).with_declaration("first")
    assert is_declared_newer(restored, seen)
    assert why_behind(restored, 5, seen) is None
    after = position_in(restored.with_epoch("c", 5), 6)
    assert not is_declared_newer(restored, after)
    assert why_behind(restored, 5, after) is not None, "a copy of the restored store is old, too"


def test_what_is_kept_is_bounded_and_a_node_that_was_away_for_longer_is_not_refused() -> None:
    kept = begun(*((str(number), number) for number in range(MOST_EPOCHS + 5)))
    for number in range(MOST_DECLARATIONS + 5):
        kept = kept.with_declaration(str(number))
    assert len(kept.epochs) == MOST_EPOCHS
    assert len(kept.declarations) == MOST_DECLARATIONS
    long_away = StorePosition(epoch=2, epoch_id="1", commits=2, declarations=kept.declarations)
    assert why_behind(kept, 1_000, long_away) is None
    assert why_behind(kept, 1_000, replace(long_away, epoch=MOST_EPOCHS + 6)) is not None


def test_documents_come_back_as_they_were() -> None:
    kept = begun(("a", 3), ("b", 9)).with_declaration("d")
    assert history.decode(history.KEY, history.encode(kept)) == kept
    position = position_in(kept, 12)
    assert position is not None
    assert history.decode_position("file", history.encode_position(position)) == position


def test_a_position_with_any_bit_changed_is_not_believed() -> None:
    position = position_in(begun(("a", 3), ("b", 9)), 12)
    assert position is not None
    sound = history.encode_position(position)
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert history.decode_position("file", bytes(damaged)) == position
        except CoordinationError:
            continue


def test_a_position_of_the_first_form_is_read() -> None:
    first = b'{"format":1,"epoch":2,"epoch_id":"b","commits":12,"declarations":[]}'
    assert history.decode_position("file", first) == StorePosition(epoch=2, epoch_id="b", commits=12)


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"format":1}', b'{"format":1,"epoch":"x"}'])
def test_a_position_that_cannot_be_read_is_named(damaged: bytes) -> None:
    with pytest.raises(CoordinationError, match="the-file"):
        history.decode_position("the-file", damaged)


@dataclass(eq=False)
class Node:
    log: tuple[object, ...] = ()
    seen: StorePosition | None = None


Steps = st.lists(
    st.tuples(st.sampled_from(["start", "commit", "copy", "put back", "stop"]), st.integers(0, 3)),
    max_size=60,
)


@given(Steps)
def test_a_store_is_refused_exactly_when_it_lacks_a_commit_that_the_node_has_seen(
    steps: list[tuple[str, int]],
) -> None:
    """The store as the list of its commits: it continues what a node has seen when that is a prefix."""
    nodes = [Node() for _ in range(4)]
    log: tuple[object, ...] = ()
    kept = StoreHistory()
    copies: list[tuple[tuple[object, ...], StoreHistory]] = [(log, kept)]
    running: list[Node] = []
    for number, (step, index) in enumerate(steps):
        node = nodes[index]
        if step == "stop" and node in running:
            running = [each for each in running if each is not node]
        elif step == "copy":
            copies.append((log, kept))
        elif step == "put back":
            log, kept = copies[index % len(copies)]
            running = []
        elif step == "commit" and running:
            log = (*log, number)
        elif step == "start":
            refused = why_behind(kept, len(log), node.seen) is not None
            assert refused == (log[: len(node.log)] != node.log)
            if refused:
                continue
            kept = kept.with_epoch(str(number), len(log))
            log = (*log, number)
            running.append(node)
        for each in running:
            each.log, each.seen = log, position_in(kept, len(log))
