# SPDX-License-Identifier: Apache-2.0
"""Headrace against itself: what ACLs cost, what idle connections hold, and what others notice of an attack.

Nodes are fresh in every turn, so that nothing is reused from the turn before.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from bench.attacks import abandon_handshakes, fail_logins, send_slow_frames
from bench.cell import Cell
from bench.judge import percentile
from bench.model import Figures, Profile
from bench.payloads import plain_batch
from bench.raw_client import RawConnection, produce_check, produce_pipelined, round_trips
from bench.raw_requests import metadata_request, produce_request
from bench.secured import HOST, SUPER_USER, SecuredNode, add_user
from headrace.cluster.engines.engine import RunningNode

ACLS = 1000
CONNECTIONS = 5000
ABANDONED_PER_SECOND = 500
BAD_LOGINS_PER_SECOND = 200
SLOW_SENDERS, SLOW_BYTES_PER_SECOND = 200, 1000

_OPEN = Profile(name="open", secured=True, settings={"ssl.client.auth": "requested"})
_AUTHORIZED = Profile(
    name="authorized",
    secured=True,
    settings={
        "ssl.client.auth": "requested",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": SUPER_USER,
    },
)
_SECURED = Profile(name="secured", secured=True)
_TOPIC = "orders"
_SLICES = 5
_TIMEOUT_SECONDS = 30
_MIB = 1 << 20
_WITHOUT_TOPIC = metadata_request("there-is-no-such-topic")


@contextmanager
def fresh_node(cell: Cell, profile: Profile) -> Iterator[tuple[RunningNode, SecuredNode]]:
    with cell.nodes.prepare(cell.variant, profile).launch() as node:
        yield node, cell.nodes.secured(node)


def thousand_acls(cell: Cell) -> Figures:
    """CPU per small produce request: a node without an authorizer, and one with 1,000 ACLs, in turn."""
    with ExitStack() as stack:
        probes = []
        for profile in (_OPEN, _AUTHORIZED):
            node, secured = stack.enter_context(fresh_node(cell, profile))
            _create_topic(secured, acls=thousand_bindings() if profile is _AUTHORIZED else ())
            connection = stack.enter_context(RawConnection(node.host, node.port))
            probes.append(_CpuProbe(node, connection, seconds=max(1.0 * cell.scale, 0.2)))
        for probe in probes:
            probe.one_at_a_time()
            probe.pipelined()
        single = [tuple(probe.one_at_a_time() for probe in probes) for _ in range(_SLICES)]
        pipelined = [tuple(probe.pipelined() for probe in probes) for _ in range(_SLICES)]
    return acl_figures("single", single) | acl_figures("pipelined", pipelined)


def acl_figures(name: str, slices: Sequence[tuple[float, ...]]) -> Figures:
    """From pairs of (without, with) microseconds of CPU per request."""
    return {
        f"{name}_open_us": median(without for without, _ in slices),
        f"{name}_authorized_us": median(guarded for _, guarded in slices),
        f"{name}_cost_percent": (median(guarded / without for without, guarded in slices) - 1) * 100,
    }


class _CpuProbe:
    """Small produce requests of one anonymous client; broker CPU per request in microseconds."""

    def __init__(self, node: RunningNode, connection: RawConnection, *, seconds: float) -> None:
        self._node, self._connection, self._seconds = node, connection, seconds
        self._request = produce_request(_TOPIC, {0: plain_batch(1, 100)}, acks=1)

    def one_at_a_time(self) -> float:
        before = self._node.cpu_seconds()
        times = round_trips(self._connection, [self._request], produce_check(_TOPIC), seconds=self._seconds)
        return (self._node.cpu_seconds() - before) / len(times) * 1e6

    def pipelined(self) -> float:
        before = self._node.cpu_seconds()
        count, _ = produce_pipelined(
            self._connection,
            self._request * 32,
            produce_check(_TOPIC),
            in_flight=256,
            requests_per_send=32,
            seconds=self._seconds,
        )
        return (self._node.cpu_seconds() - before) / count * 1e6


def thousand_bindings() -> list[AclBinding]:
    """One that lets the client write; the others on the same topic, on its prefixes and on other topics."""
    shapes = (
        (_TOPIC, ResourcePatternType.LITERAL),
        (_TOPIC[:3], ResourcePatternType.PREFIXED),
        ("other-{}", ResourcePatternType.LITERAL),
        ("oth-{}", ResourcePatternType.PREFIXED),
    )
    bindings = [_binding("User:ANONYMOUS", _TOPIC, ResourcePatternType.LITERAL)]
    for number in range(1, ACLS):
        name, pattern = shapes[number % len(shapes)]
        bindings.append(_binding(f"User:user-{number}", name.format(number), pattern))
    return bindings


def _binding(principal: str, topic: str, pattern: ResourcePatternType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, pattern, principal, "*", AclOperation.WRITE, AclPermissionType.ALLOW
    )


def _create_topic(secured: SecuredNode, *, acls: Sequence[AclBinding]) -> None:
    admin = AdminClient({**secured.tls_client(admin=True), "log_level": 0})
    admin.create_topics([NewTopic(_TOPIC, num_partitions=1, replication_factor=1)])[_TOPIC].result(
        _TIMEOUT_SECONDS
    )
    if acls:
        for done in admin.create_acls(list(acls)).values():
            done.result(_TIMEOUT_SECONDS)


def idle_plain(cell: Cell) -> Figures:
    """Memory that 5,000 connections hold which have sent one request and then nothing."""
    with fresh_node(cell, _SECURED) as (node, _):
        return _memory_of_connections(cell, node, node.port, None)


def idle_tls(cell: Cell) -> Figures:
    """The same over TLS."""
    with fresh_node(cell, _SECURED) as (node, secured):
        return _memory_of_connections(cell, node, secured.tls_port, secured.context())


def _memory_of_connections(
    cell: Cell, node: RunningNode, port: int, context: ssl.SSLContext | None
) -> Figures:
    count = cell.scaled(CONNECTIONS, least=50)
    with ExitStack() as stack:
        for _ in range(20):  # what the first connections load is no part of what each holds
            with RawConnection(HOST, port, buffer_bytes=512, tls=context) as connection:
                connection.call(_WITHOUT_TOPIC)
        before = node.rss_bytes()
        for _ in range(count):
            connection = stack.enter_context(RawConnection(HOST, port, buffer_bytes=512, tls=context))
            connection.call(_WITHOUT_TOPIC)
        after = node.rss_bytes()
    return {"added_mib": (after - before) / _MIB, "whole_mib": after / _MIB, "connections": count}


def under_attack(cell: Cell) -> Figures:
    """p99 of small synchronous sends over TLS while others misbehave, against the quiet p99 around them."""
    seconds = max(3.0 * cell.scale, 0.5)
    with fresh_node(cell, _SECURED) as (node, secured):
        add_user(node.bootstrap)
        _create_topic(secured, acls=())
        hello = client_hello(secured.context())
        lasting = seconds + 1
        attacks = {
            "handshakes": partial(abandon_handshakes, secured.tls_port, ABANDONED_PER_SECOND, lasting, hello),
            "logins": partial(fail_logins, secured.sasl_port, BAD_LOGINS_PER_SECOND, lasting),
            "frames": partial(send_slow_frames, node.port, SLOW_SENDERS, SLOW_BYTES_PER_SECOND, lasting),
        }
        with RawConnection(HOST, secured.tls_port, tls=secured.context()) as connection:
            probe = _LatencyProbe(connection, seconds)
            probe.run()
            quiet, times, done = probe.run(), {}, {}
            for name, attack in attacks.items():
                load: Future[int] = cell.pool.submit(attack)
                time.sleep(0.5)  # the attack is at its rate by then
                times[name] = probe.run()
                done[name] = load.result(_TIMEOUT_SECONDS)
                quiet += probe.run()
    return attack_figures(quiet, times) | {f"{name}_done": count for name, count in done.items()}


def attack_figures(quiet: Sequence[float], times: dict[str, list[float]]) -> Figures:
    """p99 of each kind and its ratio to the quiet p99."""
    quiet_p99 = percentile(quiet, 99)
    figures: Figures = {"quiet_p99_us": quiet_p99}
    for name, samples in times.items():
        figures[f"{name}_p99_us"] = percentile(samples, 99)
        figures[f"{name}_ratio"] = figures[f"{name}_p99_us"] / quiet_p99
    return figures


class _LatencyProbe:
    def __init__(self, connection: RawConnection, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._request = produce_request(_TOPIC, {0: plain_batch(1, 100)}, acks=-1)

    def run(self) -> list[float]:
        return round_trips(
            self._connection, [self._request], produce_check(_TOPIC), seconds=self._seconds, pause_ms=1.0
        )


def client_hello(context: ssl.SSLContext) -> bytes:
    """What a client sends first; replayed, so that the attack costs the attacker next to nothing."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=HOST).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise RuntimeError("a handshake ended without an answer")
