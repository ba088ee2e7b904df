# SPDX-License-Identifier: Apache-2.0
"""KIP-227: what the broker remembers of a reader, and when it refuses to go on."""

from __future__ import annotations

from random import Random

import pytest

from headrace.broker.partition import fetch_sessions
from headrace.broker.partition.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSessions
from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic


def request(session_id: int, epoch: int, *indexes: int, forgotten: list[int] | None = None) -> FetchRequest:
    partitions = [FetchPartition(i, -1, 100 + i, -1, -1, 1 << 20) for i in indexes]
    topics = [FetchTopic("t", None, partitions)] if partitions else []
    gone = [("t", None, forgotten)] if forgotten else []
    return FetchRequest(-1, -1, 500, 1, 1 << 20, 0, session_id, epoch, topics, gone, "", None)


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(Random(1), slots=2)


def test_a_full_fetch_without_session_creates_none(sessions: FetchSessions) -> None:
    plan = sessions.plan(request(0, FINAL_EPOCH, 0, 1), by_id=False, now=0)
    assert plan.session_id == NO_SESSION
    assert [entry.partition.index for entry in plan.entries] == [0, 1]


def test_an_incremental_fetch_reads_what_the_session_follows(sessions: FetchSessions) -> None:
    first = sessions.plan(request(0, INITIAL_EPOCH, 0, 1), by_id=False, now=0)
    second = sessions.plan(request(first.session_id, 1, 2, forgotten=[0]), by_id=False, now=0)
    assert second.incremental
    assert [entry.partition.index for entry in second.entries] == [1, 2]


def test_a_partition_that_was_served_goes_to_the_end(sessions: FetchSessions) -> None:
    plan = sessions.plan(request(0, INITIAL_EPOCH, 0, 1, 2), by_id=False, now=0)
    assert plan.session is not None
    plan.session.note_result(plan.entries[0], FetchResult(0, size=10))
    assert [entry.partition.index for entry in plan.session.entries] == [1, 2, 0]


@pytest.mark.parametrize(
    ("session_offset", "epoch", "by_id", "code"),
    [
        (1, 1, False, ErrorCode.fetch_session_id_not_found),
        (0, 2, False, ErrorCode.invalid_fetch_session_epoch),
        (0, 1, True, ErrorCode.fetch_session_topic_id_error),
    ],
)
def test_a_session_goes_on_only_where_it_stopped(
    sessions: FetchSessions, session_offset: int, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    session_id = sessions.plan(request(0, INITIAL_EPOCH, 0), by_id=False, now=0).session_id
    with pytest.raises(ApiError) as refused:
        sessions.plan(request(session_id + session_offset, epoch), by_id=by_id, now=0)
    assert refused.value.code is code


def test_a_final_fetch_ends_its_session(sessions: FetchSessions) -> None:
    session_id = sessions.plan(request(0, INITIAL_EPOCH, 0), by_id=False, now=0).session_id
    sessions.plan(request(session_id, FINAL_EPOCH, 0), by_id=False, now=0)
    with pytest.raises(ApiError):
        sessions.plan(request(session_id, 1), by_id=False, now=0)


def test_sessions_in_use_do_not_make_room_but_idle_ones_do(sessions: FetchSessions) -> None:
    for _ in range(2):
        assert sessions.plan(request(0, INITIAL_EPOCH, 0), by_id=False, now=0).session_id != NO_SESSION
    assert sessions.plan(request(0, INITIAL_EPOCH, 0), by_id=False, now=60).session_id == NO_SESSION
    assert sessions.plan(request(0, INITIAL_EPOCH, 0), by_id=False, now=121).session_id != NO_SESSION


def test_sessions_together_follow_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_ENTRIES", 10)
    sessions = FetchSessions(Random(1), slots=100)
    first = sessions.plan(request(0, INITIAL_EPOCH, *range(6)), by_id=False, now=0)
    assert first.session_id != NO_SESSION
    second = sessions.plan(request(0, INITIAL_EPOCH, *range(6)), by_id=False, now=0)
    assert second.session_id == NO_SESSION
    assert len(second.entries) == 6
    with pytest.raises(ApiError) as refused:
        sessions.plan(request(first.session_id, 1, *range(100, 110)), by_id=False, now=0)
    assert refused.value.code is ErrorCode.fetch_session_id_not_found
    for _ in range(5):  # the room of ended sessions is used again
        plan = sessions.plan(request(0, INITIAL_EPOCH, *range(9)), by_id=False, now=0)
        assert plan.session_id != NO_SESSION
        sessions.plan(request(plan.session_id, FINAL_EPOCH), by_id=False, now=0)
