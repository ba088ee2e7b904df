# SPDX-License-Identifier: Apache-2.0
"""A node starts wholly or leaves nothing behind, and a stop says it was clean only when it was."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from headrace.broker.controller.config_changes import Action, Change
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ConfigError, HeadraceError, StorageError
from headrace.log.checkpoints import CLEAN_MARKER_FILE
from headrace.testing.simworld import DATA_DIRECTORY, WorkProfile
from headrace.world import write_all
from tests.harness.broker.simulated_node import (
    FETCH,
    FETCH_VERSION,
    HOST,
    PORT,
    PRODUCE,
    TOPIC,
    SimBroker,
    fetch_fields,
    on_a_node,
)

MARKER = DATA_DIRECTORY / CLEAN_MARKER_FILE


class Deaf(asyncio.Protocol):
    """Somebody else on the port."""


async def take_port(node: SimBroker) -> None:
    await node.clients.network.listen(Deaf, HOST, PORT)


def free_port(node: SimBroker) -> None:
    node.simulation.network.listeners.clear()


# Starts that fail


def test_a_port_in_use_is_one_line_and_changes_nothing_on_disk() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.start()
        await node.create()
        await node.produce(b"kept")
        await node.stop()
        await node.kill()
        await take_port(node)
        with pytest.raises(ConfigError, match="port 9092 of listener PLAINTEXT is in use") as raised:
            await node.start()
        assert "\n" not in str(raised.value)
        assert node.files.locked == set()
        assert node.files.open_files == 0
        assert node.files.exists(MARKER)
        free_port(node)
        await node.start()
        assert node.broker.checkpoints.stopped_cleanly
        assert await node.values() == [b"kept"]

    on_a_node(scenario, starts=False)


def test_a_failed_start_after_a_power_cut_keeps_the_loss_to_be_reported() -> None:
    """R20, R21: nobody heard of it yet, and the machine was not started anew since."""

    async def scenario(node: SimBroker) -> None:
        await node.start()
        node.simulation.cut_power("node")
        await take_port(node)
        for _ in range(2):
            with pytest.raises(ConfigError):
                await node.start()
            assert not node.files.exists(MARKER)
            await node.kill()
        free_port(node)
        await node.start()
        assert not node.broker.checkpoints.lossless
        await node.kill()
        await node.start()
        assert node.broker.checkpoints.lossless

    on_a_node(scenario, starts=False)


def test_a_second_listener_that_fails_takes_the_first_one_with_it() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.clients.network.listen(Deaf, HOST, 9093)
        with pytest.raises(ConfigError, match="9093"):
            await node.start()
        assert list(node.simulation.network.listeners) == [(HOST, 9093)]

    listeners = f"ONE://{HOST}:{PORT},TWO://{HOST}:9093"
    protocols = "ONE:PLAINTEXT,TWO:PLAINTEXT"
    settings = {"listeners": listeners, "listener.security.protocol.map": protocols}
    on_a_node(scenario, starts=False, settings=settings)


def test_a_directory_in_use_is_reported_in_one_line() -> None:
    async def scenario(node: SimBroker) -> None:
        lock = node.files.lock(DATA_DIRECTORY / ".lock")
        with pytest.raises(ConfigError, match="in use by another node"):
            await node.start()
        lock.release()
        await node.start()

    on_a_node(scenario, starts=False)


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("open:.properties", errno.EIO),
        ("create:.tmp", errno.ENOSPC),
        ("sync_directory", errno.EIO),
        ("unlink", errno.EROFS),
    ],
)
def test_a_disk_that_fails_during_the_start_is_reported_in_one_line(operation: str, number: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.start()
        await node.create()
        await node.stop()
        await node.kill()
        node.files.unlink(DATA_DIRECTORY / "meta.properties")
        node.files.errors[operation] = OSError(number, "no luck")
        with pytest.raises(HeadraceError) as raised:
            await node.start()
        assert "\n" not in str(raised.value)
        assert node.files.locked == set()
        assert node.simulation.network.listeners == {}

    on_a_node(scenario, starts=False)


def test_clients_that_come_before_the_node_is_ready_are_served_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = ClusterMetadata.register_node

    async def slowly(self: ClusterMetadata, **fields: Any) -> int:
        await asyncio.sleep(2)
        return await usual(self, **fields)

    monkeypatch.setattr(ClusterMetadata, "register_node", slowly)

    async def scenario(node: SimBroker) -> None:
        starting = asyncio.ensure_future(node.start())
        await asyncio.sleep(0.5)
        early = [asyncio.ensure_future(node.connect()) for _ in range(20)]
        await asyncio.sleep(1)
        assert not any(connecting.done() for connecting in early)
        await starting
        for connecting in early:
            assert (await connecting).versions

    on_a_node(scenario, starts=False)


# Stops


def test_a_stop_answers_what_is_written_and_ends_long_polls() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.create("quiet")
        await node.produce(b"first")
        waiting = await node.connect()
        asked = fetch_fields(name="quiet", max_wait_ms=60_000)
        long_poll = waiting.send(FETCH, asked, version=FETCH_VERSION)
        producer = await node.connect()
        node.simulation.machine("node").work = WorkProfile(least_ms=300, most_ms=301, slow_probability=0)
        acknowledged = producer.send(PRODUCE, node.produce_fields(b"second"), version=8)
        await asyncio.sleep(0.1)
        began = node.clients.clock.monotonic()
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(0.05)
        producer.send(PRODUCE, node.produce_fields(b"too late"), version=8)
        await stopping
        assert node.clients.clock.monotonic() - began < 10
        assert (await acknowledged).responses[0].partition_responses[0].base_offset == 1
        assert long_poll.exception() is not None
        await node.kill()
        await node.start()
        assert node.broker.checkpoints.stopped_cleanly
        assert await node.values() == [b"first", b"second"]

    on_a_node(scenario)


def test_a_stop_completes_while_producers_keep_sending() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        acknowledged: list[int] = []

        async def produce() -> None:
            connection = await node.connect()
            while connection.is_open:
                reply = await connection.call(PRODUCE, node.produce_fields(b"x"), version=8)
                acknowledged.append(reply.responses[0].partition_responses[0].base_offset)

        producers = [asyncio.ensure_future(produce()) for _ in range(8)]
        await asyncio.sleep(1)
        began = node.clients.clock.monotonic()
        await node.stop()
        assert node.clients.clock.monotonic() - began < 10
        await asyncio.gather(*producers, return_exceptions=True)
        await node.kill()
        await node.start()
        assert len(await node.values()) >= len(acknowledged) > 10
        assert sorted(acknowledged) == list(range(len(acknowledged)))

    on_a_node(scenario)


def test_a_client_that_does_not_read_does_not_hold_up_a_stop() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for _ in range(20):
            await node.produce(b"v" * 50_000)
        connection = await node.connect()
        connection.pause_reading()
        for _ in range(5):
            connection.send(FETCH, fetch_fields(), version=FETCH_VERSION)
        await asyncio.sleep(1)
        began = node.clients.clock.monotonic()
        await node.stop()
        assert node.clients.clock.monotonic() - began < 5
        assert node.files.open_files == 0

    on_a_node(scenario)


def test_a_failed_disk_is_never_marked_as_a_clean_stop() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"kept")
        node.files.errors["fsync:.log"] = OSError(errno.EIO, "Input/output error")
        await node.produce(b"lost")
        assert isinstance(node.broker.failure, StorageError)
        node.files.errors.clear()
        await node.stop()
        assert not node.files.exists(MARKER)
        assert node.files.locked == set()

    on_a_node(scenario)


def test_a_partition_that_went_offline_is_looked_at_by_the_next_start() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.create("other")
        node.partition().take_offline()
        await node.stop()
        assert not node.files.exists(MARKER)

    on_a_node(scenario)


def test_a_full_disk_at_the_stop_costs_the_mark_and_nothing_else() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"kept")
        node.files.capacity = node.files.used_bytes()
        await node.stop()
        assert not node.files.exists(MARKER)
        assert node.files.locked == set()
        node.files.capacity = 1 << 40
        await node.kill()
        await node.start()
        assert await node.values() == [b"kept"]

    on_a_node(scenario)


# Housekeeping


def test_a_partition_whose_upkeep_fails_goes_offline_and_the_others_are_kept() -> None:
    async def scenario(node: SimBroker) -> None:
        for name in ("a", "b"):
            await node.create(name, retention_ms="1000", segment_ms="10")
            for _ in range(3):
                await node.produce(b"old", name=name)
                await asyncio.sleep(0.5)

        def broken(*_: object) -> int:
            raise StorageError("this one is broken")

        node.partition("a").log.apply_retention = broken  # type: ignore[method-assign]
        await asyncio.sleep(30)
        assert not node.partition("a").online
        assert node.partition("b").online
        assert node.partition("b").log_start_offset > 0

    on_a_node(scenario, settings={"log.retention.check.interval.ms": "1000"})


def test_a_full_disk_during_upkeep_takes_nothing_offline() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        node.partition().log.apply_retention = full  # type: ignore[method-assign]
        await asyncio.sleep(30)
        assert node.partition().online

    on_a_node(scenario, settings={"log.retention.check.interval.ms": "1000"})


def test_one_partition_that_cannot_be_compacted_does_not_keep_the_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: SimBroker) -> None:
        planned: list[str] = []
        for name in ("a", "b"):
            await node.create(name, cleanup_policy="compact")
            log = node.partition(name).log

            def plan(*_: object, name: str = name) -> None:
                planned.append(name)
                if name == "a":
                    raise StorageError("cannot be read")

            log.plan_compaction = plan  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert planned.count("b") > 1
        assert node.partition("a").online

    on_a_node(scenario)
    assert "a-0: compaction failed: cannot be read" in caplog.text


def test_how_often_compaction_looks_for_work_may_be_altered_while_the_node_runs() -> None:
    async def scenario(node: SimBroker) -> None:
        looks: list[float] = []
        await node.create(cleanup_policy="compact")

        def plan(*_: object) -> None:
            looks.append(asyncio.get_running_loop().time())

        node.partition().log.plan_compaction = plan  # type: ignore[method-assign]
        sooner = Change(name="log.cleaner.backoff.ms", action=Action.SET, value="1000")
        await node.broker.controller.alter_node_configs(str(node.broker.node_id), [sooner])
        await asyncio.sleep(60)
        looks.clear()
        await asyncio.sleep(10)
        assert 9 <= len(looks) <= 11
        default = Change(name="log.cleaner.backoff.ms", action=Action.DELETE)
        await node.broker.controller.alter_node_configs(str(node.broker.node_id), [default])
        await asyncio.sleep(2)
        looks.clear()
        await asyncio.sleep(60)
        assert 3 <= len(looks) <= 4

    on_a_node(scenario)


def test_the_loop_is_probed_several_times_a_second() -> None:
    async def scenario(node: SimBroker) -> None:
        await asyncio.sleep(10)
        assert node.broker.metrics.loop.count >= 90

    on_a_node(scenario)


# What a start had to repair


def test_a_start_after_an_unclean_shutdown_says_what_it_recovered(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [line for line in caplog.messages if "the previous shutdown was unclean" in line]

    async def scenario(node: SimBroker) -> None:
        await node.create(TOPIC)
        await node.create("other")
        await node.produce(b"kept")
        assert lines() == [], "the first start"
        await node.kill()
        await node.start()
        assert len(lines()) == 1
        assert "recovered 2 logs in " in lines()[0]
        assert lines()[0].endswith("1 batch checked; nothing was truncated")
        await node.stop()
        await node.kill()
        await node.start()
        assert len(lines()) == 1, "a clean shutdown"
        await node.kill()
        torn = DATA_DIRECTORY / f"{TOPIC}-0" / "00000000000000000000.log"
        file = node.files.open(torn, "write")
        write_all(file, b"torn", file.size())
        file.close()
        await node.start()
        assert lines()[1].endswith(
            f"truncated: {TOPIC}-0 (4 bytes that were not flushed: a batch header is cut off)"
        )

    on_a_node(scenario)
