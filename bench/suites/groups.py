# SPDX-License-Identifier: Apache-2.0
"""The suite of consumer groups: every performance target of groups as a line.

Settings are the same on both engines: the profiles of measures/groups.py. How it is judged: bench/judge.py.
"""

from __future__ import annotations

from bench.measures import group_clients, groups
from bench.model import ACK, OS, Better, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER


def _ms(figure: str, title: str, target: float) -> Line:
    return Line(figure=figure, title=title, unit="ms", better=LOWER, target=target)


def _pauses(protocol: str) -> tuple[Line, ...]:
    return (
        _ms("join_pause_ms", f"pause of a survivor when one joins, {protocol}, confluent-kafka", 1.0),
        _ms("leave_pause_ms", f"pause of a survivor when one leaves in good order, {protocol}", 1.0),
    )


def _cpu(protocol: str) -> tuple[Line, ...]:
    title = f"1,000 groups × 3 members heart-beating, {protocol}: broker CPU"
    return (Line(figure="cpu_percent", title=title, unit="% of a core", better=LOWER, target=0.7),)


_APPLICATIONS = (
    Measure(
        name="first_classic",
        run=group_clients.first_assignment_classic,
        profile=groups.COORDINATOR_PROFILE,
        lines=(_ms("p50_ms", "first assignment of a new group of 3, classic, p50", 0.7),),
    ),
    Measure(
        name="first_kip848",
        run=group_clients.first_assignment_modern,
        profile=groups.COORDINATOR_PROFILE,
        lines=(_ms("p50_ms", "first assignment of a new group of 3, KIP-848, p50", 0.7),),
    ),
    Measure(
        name="pauses_classic",
        run=group_clients.pauses_classic,
        profile=groups.COORDINATOR_PROFILE,
        lines=_pauses("classic"),
    ),
    Measure(
        name="pauses_kip848",
        run=group_clients.pauses_modern,
        profile=groups.COORDINATOR_PROFILE,
        lines=_pauses("KIP-848"),
    ),
    Measure(
        name="killed",
        run=group_clients.killed_member,
        profile=groups.COORDINATOR_PROFILE,
        warm_up=False,
        lines=(
            _ms("classic_takeover_ms", "until a SIGKILLed member's records go on, classic, session 6 s", 1.0),
            _ms("consumer_takeover_ms", "until a SIGKILLed member's records go on, KIP-848", 1.0),
        ),
    ),
)

_COORDINATOR = (
    Measure(
        name="rebalance",
        run=groups.classic_rebalance,
        profile=groups.COORDINATOR_PROFILE,
        lines=(
            _ms(
                "rebalance_ms",
                "coordinator's part of a rebalance, classic, 50 members × 500 partitions: "
                "last JoinGroup to last SyncGroup answered",
                0.5,
            ),
        ),
    ),
    Measure(
        name="target",
        run=groups.kip848_target,
        profile=groups.COORDINATOR_PROFILE,
        lines=(_ms("target_ms", "KIP-848 heartbeat to new target, 50 members × 500 partitions", 0.5),),
    ),
    Measure(
        name="commits",
        run=groups.offset_commits,
        profile=groups.COORDINATOR_PROFILE,
        lines=(
            Line(
                figure="kcommits_per_s",
                title="OffsetCommit per second, 50 members, ten partitions each",
                unit="k commits/s",
                better=HIGHER,
                target=2.0,
            ),
            Line(
                figure="kcommits_per_s_one_partition",
                title="OffsetCommit per second, 50 members, one partition each",
                unit="k commits/s",
                better=HIGHER,
            ),
        ),
    ),
    Measure(
        name="heartbeats_classic",
        run=groups.classic_heartbeats,
        profile=groups.LONG_SESSION_PROFILE,
        lines=_cpu("classic"),
    ),
    Measure(
        name="heartbeats_kip848",
        run=groups.kip848_heartbeats,
        profile=groups.LONG_SESSION_PROFILE,
        lines=_cpu("KIP-848"),
    ),
    Measure(
        name="reload",
        run=groups.reload,
        profile=None,
        variants=(OS, ACK),
        warm_up=False,
        lines=(
            Line(
                figure="reload_s",
                title="group state reload after SIGKILL, 100,000 committed offsets (own figure)",
                unit="s",
                better=LOWER,
                target=1.0,
                own=True,
            ),
        ),
    ),
)

GROUPS_SUITE = Suite(
    name="groups",
    title="Consumer groups against Apache Kafka, the same clients, settings and machine",
    measures=(*_APPLICATIONS, *_COORDINATOR),
)
