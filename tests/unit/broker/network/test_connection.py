# SPDX-License-Identifier: Apache-2.0
"""Frames in, replies out: whatever the pieces in which bytes arrive, and in the order of the requests."""

from __future__ import annotations

import logging

import pytest

from headrace.broker.network.connection import FAIR_SHARE_BYTES, MOST_REQUESTS_PER_TURN
from headrace.broker.network.connections import CANDIDATE_TICKS, MOST_CANDIDATES
from headrace.principal import node, user
from tests.harness.broker.fake_clients import FakeTransport, Server, frame

# Frames


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 64, 1 << 20])
def test_frames_are_found_in_whatever_pieces_they_arrive(piece: int) -> None:
    server = Server()
    _, transport = server.connect()
    bodies = [b"a", b"bc" * 40, b"d" * 300]
    transport.arrive(b"".join(map(frame, bodies)), piece)
    assert server.seen == bodies


def test_a_frame_larger_than_every_buffer_arrives_whole() -> None:
    server = Server()
    _, transport = server.connect()
    body = bytes(range(256)) * 20_000
    transport.arrive(frame(b"x") + frame(body) + frame(b"y"), 100_000)
    while transport.arrived:
        server.world.tasks.run_soon()
        transport.arrive()
    assert server.seen == [b"x", body, b"y"]
    assert transport.sent == b"x" + body + b"y"


@pytest.mark.parametrize("length", [-1, 0, (8 << 20) + 1, 2**31 - 1])
def test_an_impossible_length_closes_the_connection(length: int) -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(length.to_bytes(4, "big", signed=True))
    assert transport.ended
    assert server.seen == []


def test_requests_before_an_invalid_frame_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"good") + b"\xff\xff\xff\xff" + frame(b"never read"))
    assert transport.sent == b"good"
    assert server.seen == [b"good"]
    assert transport.closing
    (line,) = caplog.messages
    assert "127.0.0.1:5" in line


def test_one_busy_client_lets_the_others_have_their_turn() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"x" * 100_000) * 3)
    assert not transport.reading
    assert len(transport.arrived) < 3 * 100_004 - FAIR_SHARE_BYTES
    server.world.tasks.run_soon()
    assert transport.reading


def test_many_small_requests_of_one_read_let_the_others_have_their_turn() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(b"".join(frame(b"%d" % number) for number in range(2 * MOST_REQUESTS_PER_TURN + 1)))
    assert len(server.seen) == MOST_REQUESTS_PER_TURN
    server.world.tasks.run_soon()
    assert server.seen == [b"%d" % number for number in range(2 * MOST_REQUESTS_PER_TURN + 1)]
    transport.arrive(frame(b"later"))
    assert server.seen[-1] == b"later"


# Order


def test_replies_leave_in_the_order_of_their_requests() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"later1") + frame(b"now") + frame(b"later2"))
    server.finish(1)
    assert transport.sent == b""
    server.finish(0)
    assert transport.sent == b"later1nowlater2"


def test_an_answer_given_at_once_waits_for_earlier_replies_and_is_counted() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"answer1"))
    assert transport.sent == b"answer1"
    transport.arrive(frame(b"later2") + frame(b"answer3"))
    assert transport.sent == b"answer1"
    server.finish()
    assert transport.sent == b"answer1later2answer3"
    ((_, answered),) = server.connections.metrics.requests()
    assert answered.count == 3


def test_a_blocking_request_holds_those_behind_it_and_the_reading() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"block") + frame(b"next")[:6])
    assert server.seen == [b"block"]
    assert not transport.reading
    server.finish()
    assert transport.reading
    transport.arrive(frame(b"next")[6:], 1)
    assert server.seen == [b"block", b"next"]
    assert transport.sent == b"blocknext"


def test_a_client_that_waits_is_read_so_that_its_end_is_noticed() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"block"))
    assert transport.reading


def test_many_blocking_requests_in_one_read_are_answered_one_after_the_other() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(b"".join(frame(b"block%d" % n) for n in range(50)))
    for n in range(50):
        assert server.seen[-1] == b"block%d" % n
        server.finish()
    assert transport.sent == b"".join(b"block%d" % n for n in range(50))
    assert server.connections.metrics.frames_bytes == 0


def test_a_client_with_too_many_unanswered_requests_is_not_read_further() -> None:
    server = Server(max_pending_replies=3)
    _, transport = server.connect()
    transport.arrive(b"".join(frame(b"later%d" % i) for i in range(5)))
    assert len(server.seen) == 3
    assert not transport.reading
    server.finish()
    assert len(server.seen) == 4


def test_nothing_that_came_before_the_node_is_ready_is_lost() -> None:
    """uvloop starts reading after connection_made, whatever that said."""
    server = Server()
    server.connections.stop_requests()
    _, transport = server.connect()
    data = frame(b"early bird") + frame(b"second")
    transport.arrive(data[:3])
    transport.arrive(data[3:12])
    transport.arrive(data[12:])
    assert server.seen == []
    server.connections.start(server.handle, server.handle)
    transport.arrive()
    assert server.seen == [b"early bird", b"second"]


def test_a_node_that_stops_answers_what_it_has_begun_and_begins_nothing_more() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"later"))
    server.connections.stop_requests()
    transport.arrive(frame(b"too late"))
    server.finish()
    assert server.seen == [b"later"]
    assert transport.sent == b"later"


# A client that does not read


def test_a_client_that_does_not_read_its_replies_is_not_read_either() -> None:
    server = Server()
    _, transport = server.connect()
    transport.room = 0
    transport.arrive(frame(b"x" * 200_000) * 2)
    server.world.tasks.run_soon()
    transport.arrive(frame(b"one more"))
    assert not transport.reading
    assert b"one more" not in server.seen
    transport.client_reads()
    transport.arrive()
    assert server.seen[-1] == b"one more"
    assert len(transport.sent) == 400_008


def test_pipelined_requests_of_a_client_that_does_not_read_wait_as_bytes() -> None:
    server = Server()
    _, transport = server.connect()
    transport.room = 0
    transport.arrive(frame(b"x" * 1000) * 250)
    for _ in range(20):
        server.world.tasks.run_soon()
        transport.arrive(frame(b"x" * 1000) * 250)
    assert len(transport.buffered) < 800_000
    assert len(server.seen) < 4 * 250
    transport.client_reads()
    while transport.arrived:
        server.world.tasks.run_soon()
        transport.arrive()
    assert len(server.seen) == 21 * 250


# Memory


def test_a_claimed_length_gets_no_memory_before_its_bytes_come() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive((8 << 20).to_bytes(4, "big") + b"x")
    assert server.connections.metrics.frames_bytes <= 4 * 1024


def test_memory_for_frames_is_given_back_when_the_connection_ends() -> None:
    server = Server()
    connection, transport = server.connect()
    transport.arrive(frame(b"z" * (2 << 20))[:200_000])
    blocked, other = server.connect()
    other.arrive(frame(b"block") + frame(b"waits"))
    assert server.connections.metrics.frames_bytes > 200_000
    connection.connection_lost(None)
    blocked.connection_lost(None)
    assert server.connections.metrics.frames_bytes == 0
    assert server.connections.metrics.connections == 0


def fill_memory(server: Server, count: int, body: bytes) -> list[FakeTransport]:
    """Clients that each have sent half of a large frame."""
    transports = [server.connect()[1] for _ in range(count)]
    for transport in transports:
        transport.arrive(frame(body)[: len(body) // 2], 100_000)
        server.world.tasks.run_soon()
        transport.arrive()
    return transports


def test_when_memory_for_frames_is_used_up_others_wait_their_turn() -> None:
    body = b"z" * (1 << 20)
    server = Server(max_frames_bytes=1 << 20)
    transports = fill_memory(server, 6, body)
    assert [transport.reading for transport in transports] != [True] * 6
    assert server.connections.metrics.frames_bytes <= 2 * len(body) + 6 * 16 * 1024
    for transport in transports:
        transport.arrived += frame(body)[len(body) // 2 :]
    for _ in range(100):
        for transport in transports:
            transport.arrive()
        server.world.tasks.run_soon()
    assert [len(seen) for seen in server.seen] == [len(body)] * 6


def test_the_next_waiter_for_memory_is_woken_when_the_first_disconnects() -> None:
    body = b"z" * (1 << 20)
    server = Server(max_frames_bytes=1 << 20)
    transports = fill_memory(server, 8, body)
    for transport in transports[:7]:
        assert transport.protocol is not None
        transport.protocol.connection_lost(None)
    server.world.tasks.run_soon()
    last = transports[7]
    for _ in range(50):
        last.arrive(frame(body)[len(body) // 2 :] if _ == 0 else b"")
        server.world.tasks.run_soon()
    assert server.seen == [body]


def test_a_client_that_is_done_gives_its_buffer_to_those_who_wait_for_memory() -> None:
    """The one that may go beyond the limit is slow; the others do not have to wait for it."""
    server = Server(max_frames_bytes=1 << 20)
    done_soon = server.connect()[1]
    done_soon.arrive(frame(b"d" * 600_000)[:400_000], 100_000)
    server.world.tasks.run_soon()
    done_soon.arrive()
    slow = server.connect()[1]
    slow.arrive(frame(b"s" * 900_000)[:500_000], 100_000)
    server.world.tasks.run_soon()
    slow.arrive()
    waiting = server.connect("127.0.0.2")[1]
    waiting.arrive(frame(b"w" * 150_000), 100_000)
    assert server.seen == []
    for _ in range(10):
        server.world.tasks.run_soon()
        done_soon.arrive(frame(b"d" * 600_000)[400_000:] if _ == 0 else b"")
        waiting.arrive()
    assert [bytes(seen[:1]) for seen in server.seen] == [b"d", b"w"]


def test_once_memory_is_used_up_little_is_read_ahead() -> None:
    server = Server(max_frames_bytes=1 << 20)
    fill_memory(server, 4, b"z" * (1 << 20))
    before = server.connections.metrics.frames_bytes
    _, transport = server.connect()
    transport.arrive(frame(b"block") + bytes(200_000))
    assert server.connections.metrics.frames_bytes - before <= 16 * 1024


def test_clients_that_stall_in_a_frame_are_closed_soon_when_others_wait_for_memory() -> None:
    server = Server(max_frames_bytes=1 << 20)
    stalled = fill_memory(server, 3, b"z" * (1 << 20))
    _, waiting = server.connect()
    waiting.arrive(frame(b"w" * 150_000), 100_000)
    server.ticks(3)
    for transport in stalled:
        if transport.ended:
            assert transport.protocol is not None
            transport.protocol.connection_lost(None)
    for _ in range(3):
        server.world.tasks.run_soon()
        waiting.arrive()
    assert [bytes(seen[:1]) for seen in server.seen] == [b"w"]
    assert not waiting.ended


def test_a_large_reply_counts_as_memory_until_the_client_has_read_it() -> None:
    server = Server(max_pending_replies=10)
    connection, transport = server.connect()
    transport.room = 0
    transport.arrive(frame(b"later"))
    server.finish(0, [bytes(1 << 20)])
    assert server.connections.metrics.frames_bytes == 1 << 20
    transport.client_reads(500_000)
    assert server.connections.metrics.frames_bytes == 1 << 20
    transport.client_reads()
    assert server.connections.metrics.frames_bytes == 0
    transport.room = 0
    transport.arrive(frame(b"later"))
    server.finish(0, [bytes(1 << 20)])
    connection.connection_lost(None)
    assert server.connections.metrics.frames_bytes == 0


def test_a_client_that_does_not_read_a_large_reply_is_closed_when_others_wait_for_memory() -> None:
    server = Server(max_frames_bytes=1 << 20)
    _, reader = server.connect()
    reader.room = 0
    reader.arrive(frame(b"later"))
    server.finish(0, [bytes(2 << 20)])
    assert server.connections.memory.used_up
    server.ticks(10)
    assert not reader.ended
    fill_memory(server, 3, b"z" * (1 << 20))
    server.ticks(4)
    assert reader.ended


# Files


def test_slices_are_released_when_the_connection_is_lost_before_they_are_sent() -> None:
    server = Server()
    connection, transport = server.connect()
    transport.arrive(frame(b"later") + frame(b"slice" * 100))
    assert server.pool.pinned_count == 1
    connection.connection_lost(None)
    assert server.pool.pinned_count == 0
    server.finish(0)
    assert transport.sent == b""


def test_a_reply_after_the_connection_was_lost_releases_its_slices() -> None:
    server = Server()
    connection, transport = server.connect()
    transport.arrive(frame(b"block"))
    connection.connection_lost(None)
    server.finish(0, server.slice_reply(b"slice" * 100))
    assert server.pool.pinned_count == 0


def test_garbage_behind_a_fetch_leaks_nothing() -> None:
    server = Server()
    connection, transport = server.connect()
    transport.room = 0
    transport.arrive(frame(b"slice" * 90_000) * 3 + b"\xff" * 8)
    server.world.tasks.run_soon()
    connection.connection_lost(None)
    assert server.pool.pinned_count == 0


# Limits and time


def test_connections_beyond_the_limit_are_refused() -> None:
    server = Server(max_connections=3, max_connections_per_ip=2)
    transports = [server.connect()[1] for _ in range(3)]
    assert [t.aborted for t in transports] == [False, False, True]
    assert server.connections.metrics.connections == 2


def test_a_flood_of_refused_connections_gives_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(max_connections=1)
    for _ in range(100):
        server.connect()
    server.ticks(1)
    (line,) = caplog.messages
    assert "refused 99 connections from 127.0.0.1" in line


def test_a_flood_of_bad_clients_gives_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(max_connections=1000, max_connections_per_ip=1000)
    for _ in range(500):
        server.connect()[1].arrive(b"\xff" * 4)
    server.ticks(1)
    assert len(caplog.messages) <= 21
    assert caplog.messages[-1] == "closed 480 more connections for the same reason"


def test_an_idle_connection_is_closed_and_one_that_waits_for_us_is_not() -> None:
    server = Server()
    _, idle = server.connect()
    _, waiting = server.connect()
    waiting.arrive(frame(b"block"))
    server.ticks(61)
    assert idle.ended
    assert not waiting.ended


def test_a_client_that_reads_a_long_reply_slowly_is_not_idle() -> None:
    server = Server()
    _, transport = server.connect()
    transport.room = 0
    transport.arrive(frame(b"block"))
    server.finish(0, server.slice_reply(bytes(30_000_000)))
    for _ in range(100):
        server.ticks(1)
        transport.client_reads(250_000)
        server.world.tasks.run_soon()
    assert not transport.ended
    server.ticks(61)
    assert transport.ended


def test_a_frame_that_is_never_finished_is_given_up() -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive(frame(b"x" * 100)[:50])
    server.ticks(31)
    assert transport.ended


def test_a_frame_that_comes_byte_by_byte_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    _, transport = server.connect()
    transport.arrive((1 << 20).to_bytes(4, "big"))
    for _ in range(40):
        transport.arrive(b"x")
        server.ticks(1)
    assert transport.ended
    assert "bytes of a frame in" in caplog.text


def test_a_large_frame_over_a_slow_line_is_not_given_up() -> None:
    server = Server()
    _, transport = server.connect()
    body = b"x" * (4 << 20)
    data = frame(body)
    for start in range(0, len(data), 20_000):
        transport.arrive(data[start : start + 20_000])
        server.ticks(1)
        server.world.tasks.run_soon()
    assert server.seen == [body]


def test_a_client_that_waits_for_memory_does_not_count_as_slow() -> None:
    body = b"z" * (1 << 20)
    server = Server(max_frames_bytes=1 << 20)
    transports = fill_memory(server, 6, body)
    waiting = [transport for transport in transports if not transport.reading]
    assert 0 < len(waiting) < 6
    server.ticks(100)
    assert not any(transport.ended for transport in waiting)
    assert all(transport.ended for transport in transports if transport not in waiting)


def test_unsent_replies_are_dropped_a_second_after_the_end() -> None:
    server = Server()
    _, transport = server.connect()
    transport.room = 0
    transport.arrive(frame(b"answered") + b"\xff" * 4)
    assert transport.closing
    assert not transport.aborted
    server.ticks(1)
    assert transport.aborted


def test_a_refused_connection_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    connection, _ = server.connect()
    connection.refuse("first")
    connection.refuse("second")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_session_ends_after_its_time_and_never_before() -> None:
    server = Server()
    connection, transport = server.connect()
    connection.logged_in(user("ann"), 2_500)
    server.ticks(3)
    assert not connection.needs_login
    server.ticks(1)
    assert connection.needs_login
    assert not transport.ended
    connection.logged_in(user("ann"), 0)
    server.ticks(30)
    assert not connection.needs_login


def test_a_connection_that_does_not_log_in_is_closed_and_has_a_limit_of_its_own() -> None:
    server = Server(max_login_frame_bytes=100)
    connection = server.connections.factory("secure", needs_login=True)()
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    transport.arrive(frame(bytes(100)))
    server.ticks(9)
    assert not transport.ended
    server.ticks(1)
    assert transport.ended
    connection = server.connections.factory("secure", needs_login=True)()
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    transport.arrive(frame(bytes(101)))
    assert transport.ended


# Throttled clients (KIP-219)


def test_a_muted_connection_sends_replies_and_starts_no_request_until_the_time_is_over() -> None:
    server = Server()
    connection, transport = server.connect()
    transport.arrive(frame(b"later"))
    connection.mute(2.0)
    assert not transport.reading
    transport.arrive(frame(b"next"))
    server.finish()
    assert transport.sent == b"later"
    assert server.seen == [b"later"]
    server.world.tasks.run_timers()
    transport.arrive()
    assert server.seen == [b"later", b"next"]
    assert transport.reading


def test_the_longest_of_several_mutes_holds() -> None:
    server = Server()
    connection, transport = server.connect()
    for seconds in (1.0, 3.0, 2.0):
        connection.mute(seconds)
    (timer,) = [timer for timer in server.world.tasks.timers if not timer.cancelled]
    assert timer.delay_s == 3.0
    server.world.tasks.run_timers()
    transport.arrive(frame(b"x"))
    assert server.seen == [b"x"]


def test_a_muted_connection_that_is_lost_leaves_no_timer() -> None:
    server = Server()
    connection, _ = server.connect()
    connection.mute(3600.0)
    connection.connection_lost(None)
    assert all(timer.cancelled for timer in server.world.tasks.timers)


def test_a_muted_connection_may_become_idle() -> None:
    server = Server(max_idle_ms=3_000)
    connection, transport = server.connect()
    connection.mute(3600.0)
    for _ in range(4):
        server.connections.next_tick()
    assert transport.ended


# Places of nodes (S3)


def full_of_clients() -> Server:
    server = Server(max_connections=3, node_listener="main")
    for _ in range(3):
        server.connect()
    return server


def test_a_node_gets_a_place_though_idle_clients_have_taken_all() -> None:
    server = full_of_clients()
    connection, transport = server.connect()
    assert not transport.ended
    connection.logged_in(node(2), 0)
    server.ticks(30)
    assert not transport.ended
    assert not connection.needs_login


def test_a_client_does_not_get_the_place_of_a_node() -> None:
    server = full_of_clients()
    connection, transport = server.connect()
    assert connection.needs_login
    connection.logged_in(user("ann"), 0)
    assert transport.ended
    _, silent = server.connect()
    server.ticks(CANDIDATE_TICKS)
    assert silent.ended


def test_the_oldest_candidate_makes_room_for_the_next() -> None:
    server = full_of_clients()
    first = server.connect()[1]
    others = [server.connect()[1] for _ in range(MOST_CANDIDATES - 1)]
    assert not first.ended
    server.connect()
    assert first.ended
    assert not any(transport.ended for transport in others)


def test_a_node_gives_its_place_back_to_the_clients() -> None:
    server = Server(max_connections=1, node_listener="main")
    peer, _ = server.connect()
    peer.logged_in(node(2), 0)
    client, transport = server.connect()
    assert not client.needs_login
    assert not transport.ended
    peer.connection_lost(None)
    client.connection_lost(None)
    again, transport = server.connect()
    assert not again.needs_login


def test_a_listener_of_clients_has_no_places_of_nodes() -> None:
    server = Server(max_connections=1, node_listener="inside")
    server.connect()
    assert server.connect()[1].ended
