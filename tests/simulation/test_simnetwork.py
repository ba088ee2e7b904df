# SPDX-License-Identifier: Apache-2.0
"""The simulated network: ordered streams, and each of its faults bites."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.testing.simnetwork import NetworkProfile, SimTransport
from headrace.testing.simworld import Simulation, SimWorld


class Recorder(asyncio.Protocol):
    """Keeps what arrives and what happens."""

    def __init__(self) -> None:
        self.transport: SimTransport
        self.received = bytearray()
        self.chunks: list[int] = []
        self.events: list[str] = []
        self.lost: Exception | str | None = "not lost"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.chunks.append(len(data))

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


class BufferedRecorder(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self._buffer = bytearray(100)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]


class Pair:
    """A connected client and server, each in a process of its own."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.server_world: SimWorld = simulation.start_process("server")
        self.client_world: SimWorld = simulation.start_process("client")
        self.server = Recorder()
        self.client = Recorder()

    async def connect(self, server: Callable[[], asyncio.BaseProtocol] | None = None) -> Pair:
        factory = server or (lambda: self.server)
        listener = await self.server_world.network.listen(factory, "127.0.0.1", 0)
        await self.client_world.network.connect(lambda: self.client, "127.0.0.1", listener.port)
        await asyncio.sleep(0.01)
        return self


def simulate(
    scenario: Callable[[Pair], Coroutine[Any, Any, None]], seed: int = 1, **profile: Any
) -> Simulation:
    with Simulation(seed, network=NetworkProfile(**profile)) as simulation:
        simulation.run(scenario(Pair(simulation)))
    return simulation


DATA = bytes(range(256)) * 2000


def test_bytes_arrive_whole_and_in_order_in_odd_chunks() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        for start in range(0, len(DATA), 10_000):
            pair.client.transport.write(DATA[start : start + 10_000])
        await asyncio.sleep(10)
        assert pair.server.received == DATA
        assert len(set(pair.server.chunks)) > 5

    for seed in range(5):
        simulate(scenario, seed=seed, split_probability=0.5)


def test_buffered_protocols_are_fed_through_their_buffer() -> None:
    async def scenario(pair: Pair) -> None:
        buffered = BufferedRecorder()
        await pair.connect(lambda: buffered)
        pair.client.transport.write(DATA)
        await asyncio.sleep(10)
        assert buffered.received == DATA

    simulate(scenario)


def test_delay_delays() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        pair.client.transport.write(b"x")
        await asyncio.sleep(0.099)
        assert not pair.server.received
        await asyncio.sleep(0.102)
        assert pair.server.received == b"x"

    simulate(scenario, least_delay_ms=100, most_delay_ms=200)


def test_a_reader_that_does_not_read_makes_the_writer_wait() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        pair.server.transport.pause_reading()
        pair.client.transport.write(DATA)
        await asyncio.sleep(10)
        assert pair.client.events == ["pause"]
        assert len(DATA) - 2000 < pair.client.transport.get_write_buffer_size() + 1000 < len(DATA) + 1
        pair.server.transport.resume_reading()
        await asyncio.sleep(10)
        assert pair.client.events == ["pause", "resume"]
        assert pair.server.received == DATA

    simulate(scenario, window_bytes=1000)


def test_a_reset_loses_both_ends_and_what_was_under_way() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        pair.server.transport.pause_reading()
        pair.client.transport.write(DATA)
        await asyncio.sleep(1)
        pair.client.transport.reset()
        await asyncio.sleep(1)
        assert isinstance(pair.client.lost, ConnectionResetError)
        assert isinstance(pair.server.lost, ConnectionResetError)
        assert len(pair.server.received) < len(DATA)

    simulate(scenario)


def test_closing_sends_what_was_written_first() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        pair.client.transport.write(DATA)
        pair.client.transport.close()
        await asyncio.sleep(10)
        assert pair.server.received == DATA
        assert pair.server.lost is None
        assert pair.client.lost is None

    simulate(scenario)


def test_a_killed_process_resets_its_connections_and_stops_listening() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        port = next(iter(pair.simulation.network.listeners))[1]
        pair.simulation.kill(pair.server_world)
        await asyncio.sleep(1)
        assert isinstance(pair.client.lost, ConnectionResetError)
        assert pair.server.lost == "not lost"
        with pytest.raises(ConnectionRefusedError):
            await pair.client_world.network.connect(Recorder, "127.0.0.1", port)

    simulate(scenario)


def test_a_buffer_changed_before_it_was_sent_arrives_changed() -> None:
    """R30: the broker must not reuse what a transport still holds; the simulation shows it when it does."""

    async def scenario(pair: Pair) -> None:
        await pair.connect()
        buffer = bytearray(b"good")
        pair.client.transport.write(buffer)
        buffer[:] = b"evil"
        await asyncio.sleep(1)
        assert pair.server.received == b"evil"

    simulate(scenario)


def test_two_listeners_on_one_address_are_refused() -> None:
    async def scenario(pair: Pair) -> None:
        listener = await pair.server_world.network.listen(Recorder, "127.0.0.1", 0)
        with pytest.raises(OSError, match="in use"):
            await pair.client_world.network.listen(Recorder, "127.0.0.1", listener.port)
        listener.close()
        await pair.client_world.network.listen(Recorder, "127.0.0.1", listener.port)

    simulate(scenario)


def test_a_cut_holds_back_one_way_and_what_was_sent_arrives_after_it() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        network = pair.simulation.network
        network.cut("client", "server")
        pair.client.transport.write(b"one")
        pair.server.transport.write(b"other way")
        await asyncio.sleep(5)
        assert (pair.server.received, pair.client.received) == (b"", b"other way")
        network.mend("client", "server")
        pair.client.transport.write(b"two")
        await asyncio.sleep(0.1)
        assert pair.server.received == b"onetwo"

    simulate(scenario)


def test_the_end_of_a_process_behind_a_network_cut_is_not_noticed() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        pair.simulation.network.cut("server", "client")
        pair.simulation.kill(pair.server_world)
        await asyncio.sleep(5)
        assert pair.client.lost == "not lost"
        pair.simulation.network.mend_all()
        await asyncio.sleep(0.1)
        assert isinstance(pair.client.lost, ConnectionResetError)

    simulate(scenario)


def test_a_connection_opens_only_when_both_ways_are_open() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.server_world.network.listen(lambda: pair.server, "server", 9092)
        network = pair.simulation.network
        network.cut("server", "client")
        network.cut("server", "client")
        opening = asyncio.ensure_future(
            pair.client_world.network.connect(lambda: pair.client, "server", 9092)
        )
        network.mend("server", "client")
        await asyncio.sleep(5)
        assert not opening.done()
        network.mend("server", "client")
        await asyncio.sleep(0.1)
        assert opening.done()

    simulate(scenario)


def test_lost_packets_come_later() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        pair.simulation.network.profile = NetworkProfile(loss_probability=1.0)
        pair.client.transport.write(b"one")
        await asyncio.sleep(0.19)
        assert not pair.server.received
        await asyncio.sleep(0.1)
        assert pair.server.received == b"one"

    simulate(scenario)
