# SPDX-License-Identifier: Apache-2.0
"""The suite of damaged replicas: how soon one is whole again, and what looking for damage costs.

How it is judged: bench/judge.py.
"""

from __future__ import annotations

from bench.measures import healing
from bench.model import OS, Better, Line, Measure, Suite


def _own(figure: str, title: str, unit: str, target: float | None) -> Line:
    return Line(figure=figure, title=title, unit=unit, better=Better.LOWER, target=target, own=True)


HEALING_SUITE = Suite(
    name="healing",
    title="Damage on one of three replicas, and the scrub of 10 GB on one node",
    measures=(
        Measure(
            name="found_by_reading",
            run=healing.found_by_reading,
            lines=(
                _own("healed_s", "10 MB damaged: first read to all replicas whole and in sync", "s", 10),
                _own("not_read", "records that a client with retries did not get", "records", 0),
                _own("read_s", "time to read the topic, damage included", "s", None),
            ),
            profile=None,
            variants=(OS,),
            warm_up=False,
        ),
        Measure(
            name="scrub",
            run=healing.scrub,
            lines=(
                _own(
                    "p99_ratio", "p99 of a produce request at half load: with the scrub ÷ without", "×", 1.2
                ),
                _own("without_p99_us", "… without", "µs", None),
                _own("scrub_p99_us", "… with the scrub", "µs", None),
                _own("minutes_for_10_gb", "scrub of 10 GB at the default rate", "min", 10),
            ),
            profile=None,
            variants=(OS,),
            warm_up=False,
        ),
    ),
    rounds=1,
    note="`--quick` scrubs 0.8 GB and tells the time for 10 GB by that. Clients and nodes share the "
    "machine's cores.",
)
