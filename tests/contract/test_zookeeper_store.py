# SPDX-License-Identifier: Apache-2.0
"""What is ZooKeeper's own: lost connections, restarts, sessions of dead processes, an ensemble."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.engines.engine import EngineError, free_ports
from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble, serves, start_zookeeper
from headrace.cluster.engines.zookeeper_jars import why_zookeeper_is_missing
from headrace.coordination.outcomes import commit_resolving_unknown
from headrace.coordination.store import (
    Applied,
    Conflict,
    Create,
    Delete,
    Session,
    SessionLost,
    Set,
    StoreWentBack,
)
from headrace.coordination.zookeeper import ZooKeeperStore
from headrace.coordination.zookeeper_security import ZooKeeperSecurity
from headrace.errors import CoordinationError, OutcomeUnknown
from headrace.realworld import RealWorld
from tests.contract.store_backends import zookeeper
from tests.harness.left_out import leave_out

TTL_MS = 10_000
OPEN = ZooKeeperSecurity()
CERTIFICATES = Path(__file__).parents[1] / "data/tls"
Open = Callable[..., Awaitable[ZooKeeperStore]]


def run(scenario: Callable[[Open], Awaitable[None]], hosts: str | None = None) -> None:
    """On a root of its own, of the shared server unless told otherwise."""
    hosts = hosts or zookeeper.hosts()
    root = zookeeper.new_root()

    async def main() -> None:
        world = RealWorld()
        async with AsyncExitStack() as closing:

            async def open_store(security: ZooKeeperSecurity = OPEN) -> ZooKeeperStore:
                store = await ZooKeeperStore.open(world, hosts, root=root, security=security)
                closing.push_async_callback(store.close)
                return store

            await scenario(open_store)
        await world.tasks.close()

    asyncio.run(main())


async def until(true: Callable[[], Awaitable[Any]], timeout_s: float = 60) -> None:
    """A store that cannot answer yet is asked again."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer: object
        try:
            answer = await true()
            if answer:
                return
        except CoordinationError as error:
            answer = error
        assert time.monotonic() < deadline, f"waited in vain; the last answer was {answer!r}"
        await asyncio.sleep(0.05)


async def applies(store: ZooKeeperStore, *operations: Any) -> bool:
    return isinstance(await commit_resolving_unknown(store, operations), Applied)


async def is_set(store: ZooKeeperStore, wanted: Set) -> bool:
    """Also when an earlier attempt was carried out and its answer lost."""
    if await applies(store, wanted):
        return True
    return (await store.view()).entries[wanted.key].value == wanted.value


@pytest.fixture
def server(zookeeper_servers: Callable[..., ZooKeeperEnsemble]) -> Iterator[ZooKeeperEnsemble]:
    with zookeeper_servers(servers=1) as server:
        yield server


@pytest.fixture
def ensemble(zookeeper_servers: Callable[..., ZooKeeperEnsemble]) -> Iterator[ZooKeeperEnsemble]:
    with zookeeper_servers(servers=3) as ensemble:
        yield ensemble


def test_a_tree_of_a_later_release_is_refused() -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        await asyncio.to_thread(store._client.set, f"{store._root}/news", b"2")
        with pytest.raises(CoordinationError, match="has format 2, written by a newer Headrace"):
            await open_store()

    run(scenario)


def test_a_store_goes_on_after_the_server_was_killed_and_started_again(server: ZooKeeperEnsemble) -> None:
    async def scenario(open_store: Open) -> None:
        store, other = await open_store(), await open_store()
        session = await store.open_session(TTL_MS)
        await store.commit([Create("/node", b"1", owner=session.id), Create("/lasting", b"1")])
        before = await store.view()
        server.kill()
        await until(lambda: disconnected(store))
        await asyncio.to_thread(server.start)
        await until(lambda: applies(store, Create("/after", b"1")))
        await until(session_renews(session))
        view = await other.view()
        assert set(view.entries) == {"/after", "/lasting", "/node"}
        assert view.entries["/node"] == before.entries["/node"]
        assert view.version > before.version

    run(scenario, server.hosts)


def test_an_expired_session_is_reported_after_a_lost_connection(server: ZooKeeperEnsemble) -> None:
    async def scenario(open_store: Open) -> None:
        store, other = await open_store(), await open_store()
        session = await store.open_session(TTL_MS)
        await store.commit([Create("/node", b"1", owner=session.id)])
        version = (await other.view()).version
        server.kill()
        await until(lambda: disconnected(other))
        await asyncio.to_thread(server.start)
        await until(session_renews(session))
        await until(other.view)
        assert (await other.changes(version, 50)).changed == {}
        waiting = asyncio.ensure_future(other.changes(version, 20_000))
        await asyncio.sleep(0.2)
        await session.close()
        assert (await asyncio.wait_for(waiting, 5)).changed == {"/node": None}

    run(scenario, server.hosts)


def test_a_connection_lost_in_a_commit_leaves_its_outcome_unknown_until_it_is_read(
    server: ZooKeeperEnsemble,
) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        await store.commit([Create("/n", b"0")])
        server.servers[0].pause()
        commit = asyncio.ensure_future(store.commit([Set("/n", b"1", 0)]))
        await asyncio.sleep(0.2)
        server.kill()
        with pytest.raises(OutcomeUnknown):
            await commit
        await asyncio.to_thread(server.start)
        await until(store.view)
        await until(lambda: is_set(store, Set("/n", b"1", 0)))

    run(scenario, server.hosts)


def test_without_a_server_the_error_names_the_address() -> None:
    async def main() -> None:
        (port,) = free_ports(1)
        world = RealWorld()
        with pytest.raises(CoordinationError, match=f"cannot reach ZooKeeper at 127.0.0.1:{port}"):
            await ZooKeeperStore.open(world, f"127.0.0.1:{port}", connect_timeout_ms=300)
        await world.tasks.close()

    asyncio.run(main())


def test_a_blocked_event_loop_loses_its_session_while_kazoo_runs(tmp_path: Path) -> None:
    async def scenario(open_store: Open) -> None:
        store, other = await open_store(), await open_store()
        session = await store.open_session(400)
        await store.commit([Create("/node", b"1", owner=session.id)])
        time.sleep(1.5)  # noqa: ASYNC251  the wedge
        assert "/node" not in (await other.view()).entries
        with pytest.raises(SessionLost):
            await session.renew()

    run(scenario)


def test_a_late_commit_of_an_ended_session_is_stopped_by_its_lease() -> None:
    async def scenario(open_store: Open) -> None:
        store, other = await open_store(), await open_store()
        session: Any = await store.open_session(TTL_MS)
        lease = store._tree.lease_path(session.id)
        await asyncio.to_thread(other._client.delete, lease)  # as its end would, before kazoo has heard of it
        assert not session.lost
        with pytest.raises(SessionLost):
            await store.commit([Create("/late", b"1", owner=session.id)])
        assert "/late" not in (await store.view()).entries

    run(scenario)


def test_the_entries_of_a_killed_process_go_with_its_session() -> None:
    program = """
import asyncio, sys
from headrace.coordination.store import Create
from headrace.coordination.zookeeper import ZooKeeperStore
from headrace.realworld import RealWorld

async def main():
    store = await ZooKeeperStore.open(RealWorld(), sys.argv[1], root=sys.argv[2])
    session = await store.open_session(2000)
    await store.commit([Create("/node", b"1", owner=session.id)])
    print("registered", flush=True)
    while True:
        await asyncio.sleep(0.3)
        await session.renew()

asyncio.run(main())
"""

    async def scenario(open_store: Open) -> None:
        store = await open_store()
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", program, zookeeper.hosts(), store._root], stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"registered\n"
            await asyncio.sleep(0.5)
            version = (await store.view()).version
            assert "/node" in (await store.view()).entries
        finally:
            process.kill()
            process.communicate()
        killed = time.monotonic()
        changes = await store.changes(version, 15_000)
        assert changes.changed == {"/node": None}
        assert time.monotonic() - killed < 5

    run(scenario)


def test_a_reader_far_behind_arrives_without_the_pages_it_missed() -> None:
    async def scenario(open_store: Open) -> None:
        reader, writer = await open_store(), await open_store()
        await writer.commit([Create("/n", b""), Create("/gone", b""), Create("/kept", b"")])
        before = await reader.view()
        await writer.commit([Delete("/gone", 0)])
        for turn in range(150):
            await writer.commit([Set("/n", str(turn).encode(), turn)])
        changes = await reader.changes(before.version, 1000)
        assert {key: entry and entry.value for key, entry in changes.changed.items()} == {
            "/n": b"149",
            "/gone": None,
        }

    run(scenario)


def test_a_commit_of_many_long_keys_is_reported_as_changes() -> None:
    async def scenario(open_store: Open) -> None:
        reader, writer = await open_store(), await open_store()
        names = [f"/topics/{n:04d}-{'x' * 240}" for n in range(2500)]
        assert isinstance(await writer.commit([Create(name, b"") for name in names]), Applied)
        assert set((await reader.changes(0, 1000)).changed) == set(names)

    run(scenario)


def test_a_view_is_never_half_a_commit() -> None:
    check_that_no_view_is_half_a_commit(zookeeper.hosts())


def check_that_no_view_is_half_a_commit(hosts: str) -> None:
    async def scenario(open_store: Open) -> None:
        reader, writer = await open_store(), await open_store()
        keys = [f"/k{n}" for n in range(150)]
        await writer.commit([Create(key, b"0") for key in keys])

        async def write() -> None:
            for turn in range(40):
                assert await applies(writer, *(Set(key, str(turn).encode(), turn) for key in keys))

        writing = asyncio.ensure_future(write())
        while not writing.done():
            values = {entry.value for entry in (await reader.view()).entries.values()}
            assert len(values) == 1, values
        await writing

    run(scenario, hosts)


@pytest.mark.soak
def test_a_view_is_never_half_a_commit_on_an_ensemble(ensemble: ZooKeeperEnsemble) -> None:
    for _ in range(5):
        check_that_no_view_is_half_a_commit(ensemble.hosts)


@pytest.mark.soak
def test_the_ensemble_outlives_each_of_its_servers(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario(open_store: Open) -> None:
        store, other = await open_store(), await open_store()
        session = await store.open_session(15_000)
        await store.commit([Create("/node", b"1", owner=session.id), Create("/n", b"start")])
        for turn, server in enumerate(ensemble.servers):
            server.kill()
            version = (await eventually(other.view)).entries["/n"].version
            await until(lambda turn=turn, version=version: applies(store, Set("/n", b"%d" % turn, version)))
            await until(session_renews(session))
            await asyncio.to_thread(server.start)
            view = await eventually(other.view)
            assert view.entries["/n"].value == b"%d" % turn
            assert view.entries["/node"].owner == session.id

    run(scenario, ensemble.hosts)


@pytest.mark.soak
def test_without_a_quorum_writes_are_refused_and_sessions_may_have_expired(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def scenario(open_store: Open) -> None:
        store, other = await open_store(), await open_store()
        session = await store.open_session(6000)
        await store.commit([Create("/node", b"1", owner=session.id), Create("/n", b"0")])
        epoch = (await store.view()).entries["/node"].created
        for server in ensemble.servers[:2]:
            server.kill()
        await until(lambda: disconnected(store))
        with pytest.raises(CoordinationError):
            await store.commit([Set("/n", b"1", 0)])
        await until(lambda: may_have_expired(session))
        await until(lambda: lost(session))
        for server in ensemble.servers[:2]:
            server.launch()
        await until(lambda: applies(store, Set("/n", b"2", 0)), 60)
        await until(lambda: gone(other, "/node"), 60)
        again = await store.open_session(6000)
        assert await applies(store, Create("/node", b"2", owner=again.id))
        assert (await other.view()).entries["/node"].created > epoch

    run(scenario, ensemble.hosts)


@pytest.mark.soak
def test_twenty_thousand_topics_are_read_in_a_moment_and_followed_at_once() -> None:
    async def scenario(open_store: Open) -> None:
        writer = await open_store()
        for first in range(0, 20_000, 500):
            await writer.commit([Create(f"/topics/t-{first + n}", bytes(150)) for n in range(500)])
        started = time.monotonic()
        reader = await open_store()
        assert time.monotonic() - started < 3
        version = (await reader.view()).version
        started = time.monotonic()
        assert await writer.commit([Set("/topics/t-7", b"x", 1)]) == Conflict("/topics/t-7")
        await writer.commit([Set("/topics/t-7", b"x", 0)])
        assert set((await reader.changes(version, 5000)).changed) == {"/topics/t-7"}
        assert time.monotonic() - started < 0.5

    run(scenario)


async def disconnected(store: ZooKeeperStore) -> bool:
    return not store._client.connected


async def gone(store: ZooKeeperStore, key: str) -> bool:
    return key not in (await store.view()).entries


async def lost(session: Session) -> bool:
    return session.lost


async def may_have_expired(session: Session) -> bool:
    return session.may_have_expired


def session_renews(session: Session) -> Callable[[], Awaitable[bool]]:
    async def renews() -> bool:
        await session.renew()
        return True

    return renews


async def eventually(view: Callable[[], Awaitable[Any]]) -> Any:
    found: list[Any] = []

    async def ask() -> bool:
        found.append(await view())
        return True

    await until(ask)
    return found[-1]


def test_one_server_is_started_on_a_given_port_and_ended(tmp_path: Path) -> None:
    if reason := why_zookeeper_is_missing():
        leave_out("ZooKeeper", reason)
    (port,) = free_ports(1)
    with start_zookeeper(tmp_path, port=port) as server:
        assert server.address == f"127.0.0.1:{port}"
        assert serves(port)
        with pytest.raises(EngineError, match=r"serves on .* already"), start_zookeeper(tmp_path, port=port):
            pass
    assert not serves(port)


LOGIN = ZooKeeperSecurity(user="headrace", password="secret", set_acl=True)


def test_entries_with_access_lists_are_for_the_login_only() -> None:
    """S11: also those of a start before the setting."""

    async def scenario(open_store: Open) -> None:
        before = await open_store()
        assert await applies(before, Create("/early", b"1"))
        nodes = await open_store(LOGIN)
        assert await applies(nodes, Create("/late", b"2"))
        session = await nodes.open_session(TTL_MS)
        assert await applies(nodes, Create("/own", b"3", owner=session.id))
        assert {"/early", "/late", "/own"} <= set((await nodes.view()).entries)
        for stranger in (ZooKeeperSecurity(), ZooKeeperSecurity(user="headrace", password="guessed")):
            with pytest.raises(CoordinationError, match="NoAuth"):
                await open_store(stranger)

    run(scenario)


def test_a_store_that_is_open_to_all_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(open_store: Open) -> None:
        await open_store()
        assert "open to everybody who reaches it" in caplog.text
        caplog.clear()
        await open_store(LOGIN)
        assert "open to everybody" not in caplog.text

    run(scenario)


@pytest.fixture
def tls_port(zookeeper_servers: Callable[..., ZooKeeperEnsemble]) -> Iterator[int]:
    (port,) = free_ports(1)
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "ssl.keyStore.type": "PEM",
        "ssl.keyStore.location": str(CERTIFICATES / "server.pem"),
        "ssl.trustStore.type": "PEM",
        "ssl.trustStore.location": str(CERTIFICATES / "ca.pem"),
    }
    with zookeeper_servers(servers=1, settings=settings):
        yield port


def test_a_store_speaks_tls_with_a_certificate_of_its_own(tls_port: int) -> None:
    """S11. ZooKeeper asks for the certificate of its client, and the client checks the server's."""
    security = ZooKeeperSecurity(
        tls=True, authorities=str(CERTIFICATES / "ca.pem"), certificate=str(CERTIFICATES / "client.pem")
    )

    async def scenario(open_store: Open) -> None:
        store = await open_store(security)
        assert await applies(store, Create("/key", b"value"))
        assert (await store.view()).entries["/key"].value == b"value"

    run(scenario, hosts=f"127.0.0.1:{tls_port}")


def test_fewer_commits_than_were_read_before_are_refused_in_every_call() -> None:
    """As of servers that were restored from an old snapshot; with them: test_store_restore.py."""

    async def scenario(open_store: Open) -> None:
        store = await open_store()
        await store.commit([Create("/a", b"1")])
        version = (await store.view()).version
        store._tree._known_commits += 5  # as if five more had been read before
        calls: list[Callable[[], Awaitable[object]]] = [
            store.view,
            lambda: store.changes(version, 100),
            lambda: store.commit([]),
            lambda: store.commit([Create("/b", b"1")]),
            lambda: store.open_session(TTL_MS),
        ]
        for call in calls:
            with pytest.raises(StoreWentBack, match="older snapshot"):
                await call()
        store._tree._known_commits -= 5
        assert "/b" not in (await store.view()).entries

    run(scenario)
