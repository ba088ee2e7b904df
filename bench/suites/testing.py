# SPDX-License-Identifier: Apache-2.0
"""The suite of the test broker: how long a test waits for its broker, and what an installation takes.

How it is judged: bench/judge.py.
"""

from __future__ import annotations

from bench.measures import testing
from bench.model import KAFKA, OS, Better, Line, Measure, Suite

LOWER = Better.LOWER


def _own(figure: str, title: str, unit: str, target: float | None = None) -> Line:
    return Line(figure=figure, title=title, unit=unit, better=LOWER, target=target, own=True)


def _size(figure: str, title: str, target: float | None = None) -> Line:
    return _own(figure, title, "MiB", target)


_MEASURES = (
    Measure(
        name="first_produce",
        run=testing.first_produce,
        lines=(
            Line(
                figure="first_produce_ms",
                title="test broker against starting Apache Kafka: to the first acknowledged produce",
                unit="ms",
                better=LOWER,
                target=0.05,
            ),
            Line(figure="ready_ms", title="… to a broker with a topic", unit="ms", better=LOWER),
        ),
        profile=None,
        variants=(KAFKA, OS),
    ),
    Measure(
        name="warm",
        run=testing.first_produce,
        lines=(
            _own(
                "first_produce_ms", "fixture call to first acknowledged produce, warm (own figure)", "ms", 50
            ),
        ),
        profile=None,
        variants=(OS,),
    ),
    Measure(
        name="cold_import",
        run=testing.cold_import,
        lines=(
            _own("cold_s", "fixture call to first acknowledged produce, cold import (own figure)", "s", 0.5),
            _own("cpu_s", "… its CPU time, which other work on the machine hardly changes", "s"),
            _own("broker_s", "… of it until the broker has the topic", "s"),
            _own("pyarrow_s", "… of it the import of pyarrow with NumPy", "s"),
        ),
        profile=None,
        variants=(OS,),
    ),
    Measure(
        name="many_tests",
        run=testing.many_tests,
        lines=(
            _own(
                "tests_s",
                f"{testing.TESTS} tests, each with its own broker, whole pytest run (own figure)",
                "s",
                15,
            ),
        ),
        profile=None,
        variants=(OS,),
        warm_up=False,
    ),
    Measure(
        name="installed_size",
        run=testing.installed_size,
        lines=(
            _size("whole_mib", "`pip install headrace`, without extras, on disk (own figure)", 90),
            *(_size(f"{name}_mib", f"… of it {name}") for name in testing.PACKAGES),
            _size("others_mib", "… of it other packages"),
        ),
        profile=None,
        variants=(OS,),
        warm_up=False,
    ),
)

TESTING_SUITE = Suite(
    name="testing",
    title="The test broker against starting Apache Kafka",
    measures=_MEASURES,
    rounds=5,
    note=(
        "The column *Headrace `os`* is `headrace.testing.Broker` with its defaults, a disk in memory. Apache "
        "Kafka is started from its jars without a container: format the folder, start, create the topic. The "
        "Arrow client writes one record to either; its process has its modules loaded already, except in the "
        "lines with cold import: a new process in an environment made by `pip install headrace[arrow]`."
    ),
)
