# SPDX-License-Identifier: Apache-2.0
"""T8 on real sockets: the network between nodes falls apart under load, and nothing acknowledged is lost.

Each node has a network namespace of its own; where these cannot be had, a proxy in front of it. Short forms
here; every shape at length is `make soak PART=T8`. With the store on the network as well it takes namespaces:
that is skipped by name without them.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from tests.harness import soak
from tests.harness.left_out import leave_out
from tests.harness.live import network_cuts
from tests.harness.live.cluster import LiveCluster, OnALan, host_name
from tests.harness.live.kill_loop import Fault, strike_under_load
from tests.harness.live.lan import OUTSIDE, Lan, why_lans_are_missing
from tests.harness.live.proxied_links import ProxiedLinks

NODES = [host_name(node_id) for node_id in range(3)]
SERVERS = ["zk1", "zk2", "zk3"]
QUICK = {
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
}
SHORT_CUT_S = 3.0
LONG_CUT_S = 6.0
CUTS_PER_SHAPE = 8
"""With the time that all take to be in sync again, a minute and more for each shape."""
_ECHO = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(({!r}, 9)); print(flush=True)\n"


@pytest.fixture
def lan() -> Iterator[Lan]:
    if reason := why_lans_are_missing():
        leave_out("networks of their own", reason)
    with Lan([*NODES, *SERVERS]) as lan:
        yield lan


@pytest.fixture
def links() -> Iterator[Lan | ProxiedLinks]:
    with ProxiedLinks(NODES) if why_lans_are_missing() else Lan(NODES) as links:
        yield links


@pytest.fixture
def cluster(tmp_path: Path, links: Lan | ProxiedLinks) -> Iterator[LiveCluster]:
    network = OnALan(links) if isinstance(links, Lan) else links
    with LiveCluster(tmp_path / "cluster", settings=QUICK, network=network) as cluster:
        yield cluster


@pytest.fixture
def proxied() -> Iterator[ProxiedLinks]:
    with ProxiedLinks(NODES) as proxied:
        yield proxied


@pytest.fixture
def on_zookeeper(
    tmp_path: Path, lan: Lan, zookeeper_servers: Callable[..., ZooKeeperEnsemble]
) -> Iterator[LiveCluster]:
    prepared = zookeeper_servers(servers=len(SERVERS), hosts=[lan.address(name) for name in SERVERS])
    placed = zip(SERVERS, prepared.servers, strict=True)
    servers = tuple(replace(server, command=lan.command(name, server.command)) for name, server in placed)
    with ZooKeeperEnsemble(servers=servers) as ensemble:
        place = f"zk://{ensemble.hosts}/headrace"
        folder = tmp_path / "cluster"
        with LiveCluster(folder, coordination=place, settings=QUICK, network=OnALan(lan)) as cluster:
            yield cluster


# -- the fault itself bites ----------------------------------------------------------------------------------


def _arrives(lan: Lan, source: str, target: str) -> bool:
    """Whether a datagram does."""
    listening = _ECHO.format(lan.address(target)) + "s.settimeout(1.5); print(s.recv(9))"
    sending = "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'here', ({!r}, 9))"
    command = lan.command(target, [sys.executable, "-c", listening])
    receiver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "\n", "it listens"
    if source == OUTSIDE:
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"here", (lan.address(target), 9))
    else:
        send = lan.command(source, [sys.executable, "-c", sending.format(lan.address(target))])
        subprocess.run(send, check=True)
    return "here" in receiver.communicate(timeout=10)[0]


def test_a_cut_loses_what_goes_one_way_and_nothing_else(lan: Lan) -> None:
    one, two, three = NODES
    lan.cut(one, two)
    lan.cut(OUTSIDE, three)
    arrived = {way: _arrives(lan, *way) for way in ((one, two), (two, one), (one, three), (OUTSIDE, three))}
    assert arrived == {(one, two): False, (two, one): True, (one, three): True, (OUTSIDE, three): False}
    lan.heal_all()
    assert _arrives(lan, one, two)
    assert _arrives(lan, OUTSIDE, three)


def test_a_proxy_holds_back_what_goes_one_way_until_mended(proxied: ProxiedLinks, tmp_path: Path) -> None:
    """Of two who call the same node: one is a peer by its client id, and its answers are cut."""
    with LiveCluster(tmp_path / "cluster", nodes=3, settings=QUICK, network=proxied) as cluster:
        member = cluster.folder.read().member(0)
        proxied.cut(NODES[0], NODES[1])
        assert _answer_of(member.host, member.port, "rdkafka") > 0
        with pytest.raises(TimeoutError):
            _answer_of(member.host, member.port, "node-1")
        proxied.heal_all()
        assert _answer_of(member.host, member.port, "node-1") > 0


def _answer_of(host: str, port: int, client_id: str) -> int:
    """The length of the answer to an ApiVersions request."""
    body = struct.pack(">hhih", 18, 0, 1, len(client_id)) + client_id.encode()
    with socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        return len(connection.recv(4))


# -- under load ----------------------------------------------------------------------------------------------


def test_t8_a_leader_cut_off_in_several_ways_loses_nothing(
    links: network_cuts.Links, cluster: LiveCluster
) -> None:
    shapes = (network_cuts.from_one_node, network_cuts.deaf, network_cuts.from_clients)
    fault = network_cuts.cut_for(links, shapes, SHORT_CUT_S)
    strike_under_load(
        cluster, faults=len(shapes), seed=soak.first_seed(), fault=fault, roles=("leader", "controller")
    ).check()


def _soak(cluster: LiveCluster, part: str, fault: Fault, faults: int = CUTS_PER_SHAPE) -> None:
    started = time.monotonic()
    roles = ("leader", "controller", "follower", "coordinator")
    report = strike_under_load(
        cluster, faults=faults, seed=soak.first_seed() + 1, fault=fault, roles=roles, pause_s=0.02
    )
    soak.write_report(part, started, report.figures())
    report.check()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", network_cuts.ON_ONE_HOST, ids=lambda shape: shape.__name__)
def test_soak_t8_shapes(links: network_cuts.Links, cluster: LiveCluster, shape: network_cuts.Shape) -> None:
    _soak(cluster, f"T8-{shape.__name__}", network_cuts.cut_for(links, [shape], LONG_CUT_S))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_t8_every_shape_through_proxies(tmp_path: Path, proxied: ProxiedLinks) -> None:
    fault = network_cuts.cut_for(proxied, network_cuts.ON_ONE_HOST, LONG_CUT_S)
    with LiveCluster(tmp_path / "cluster", settings=QUICK, network=proxied) as cluster:
        _soak(cluster, "T8-proxies", fault, faults=2 * len(network_cuts.ON_ONE_HOST))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", network_cuts.ON_SEVERAL_HOSTS, ids=lambda shape: shape.__name__)
def test_soak_t8_shapes_with_zookeeper(
    lan: Lan, on_zookeeper: LiveCluster, shape: network_cuts.Shape
) -> None:
    fault = network_cuts.cut_for(lan, [shape], LONG_CUT_S, store=SERVERS)
    _soak(on_zookeeper, f"T8-zookeeper-{shape.__name__}", fault)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_t8_a_link_that_comes_and_goes(lan: Lan, on_zookeeper: LiveCluster) -> None:
    fault = network_cuts.flap_for(lan, network_cuts.isolated, 20, store=SERVERS)
    _soak(on_zookeeper, "T8-zookeeper-flapping", fault, faults=4)
