# SPDX-License-Identifier: Apache-2.0
"""The suite of security: what TLS, logins and ACLs cost, and what others notice of an attack.

The same certificates, user and settings on both engines (bench/secured.py). How it is judged: bench/judge.py.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.cell import Cell
from bench.measures import security, security_own
from bench.model import KAFKA, OS, Better, Figures, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER
BOTH = (KAFKA, OS)


def _throughput(title: str, target: float | None, cpu_target: float | None) -> tuple[Line, ...]:
    return (
        Line(figure="mb_per_s", title=title, unit="MB/s", better=HIGHER, target=target),
        Line(
            figure="cpu_s_per_gb", title=f"{title}: broker CPU", unit="s/GB", better=LOWER, target=cpu_target
        ),
    )


def _latency(percent: int) -> Line:
    title = f"synchronous produce, SASL_SSL, confluent-kafka, p{percent}"
    return Line(figure=f"p{percent}_us", title=title, unit="µs", better=LOWER, target=1.0)


def _cpu_of_each(title: str, target: float) -> tuple[Line, ...]:
    return (Line(figure="cpu_us", title=f"broker CPU per {title}", unit="µs", better=LOWER, target=target),)


def _own(figure: str, title: str, unit: str, target: float | None) -> Line:
    return Line(
        figure=figure, title=f"{title} (own figure)", unit=unit, better=LOWER, target=target, own=True
    )


def _idle(title: str, target: float) -> tuple[Line, ...]:
    return (
        _own("added_mib", f"5,000 idle connections, {title}: memory they add", "MiB", target),
        _own("whole_mib", f"5,000 idle connections, {title}: memory of the node", "MiB", None),
    )


def _attack(figure: str, title: str) -> Line:
    return _own(figure, f"p99 of others under {title}", "× quiet p99", 2.0)


def _compared(name: str, run: Callable[[Cell], Figures], lines: tuple[Line, ...]) -> Measure:
    return Measure(name=name, run=run, lines=lines, profile=security.PROFILE, variants=BOTH)


def _alone(name: str, run: Callable[[Cell], Figures], lines: tuple[Line, ...]) -> Measure:
    return Measure(name=name, run=run, lines=lines, profile=None, variants=(OS,), warm_up=False)


_COMPARED = (
    _compared("tls_fetch", security.tls_fetch, _throughput("fetch, TLS, 1 MB, confluent-kafka", 1.2, 0.7)),
    _compared("tls_fetch_raw", security.tls_fetch_raw, _throughput("fetch, TLS, 1 MB, raw", None, None)),
    _compared(
        "tls_produce", security.tls_produce, _throughput("produce, TLS, 1 MB, confluent-kafka", 1.0, 0.8)
    ),
    _compared(
        "tls_produce_raw", security.tls_produce_raw, _throughput("produce, TLS, 1 MB, raw", None, None)
    ),
    _compared("sasl_ssl_sync", security.synchronous_login_produce, (_latency(50), _latency(99))),
    _compared("handshake", security.handshakes, _cpu_of_each("TLS handshake, ECDSA P-256", 0.33)),
    _compared("login", security.logins, _cpu_of_each("SCRAM-SHA-512 login", 0.5)),
)

_ALONE = (
    _alone(
        "acls",
        security_own.thousand_acls,
        (
            _own("single_cost_percent", "1,000 ACLs: CPU added to a small produce request", "%", 5.0),
            _own("pipelined_cost_percent", "1,000 ACLs: the same, many requests in flight", "%", 5.0),
        ),
    ),
    _alone("idle_plain", security_own.idle_plain, _idle("plain", 100)),
    _alone("idle_tls", security_own.idle_tls, _idle("TLS", 250)),
    _alone(
        "attacks",
        security_own.under_attack,
        (
            _attack("handshakes_ratio", "500 abandoned handshakes/s"),
            _attack("logins_ratio", "200 bad logins/s"),
            _attack("frames_ratio", "200 frames that arrive byte by byte"),
        ),
    ),
)

SECURITY_SUITE = Suite(
    name="security",
    title="TLS, logins and ACLs against Apache Kafka, the same clients, certificates and machine",
    measures=(*_COMPARED, *_ALONE),
    rounds=5,
)
