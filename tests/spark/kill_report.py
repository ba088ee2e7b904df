# SPDX-License-Identifier: Apache-2.0
"""Renders runs of the kill matrix as a page: every condition and place, the outcome and the time.

Arguments: JUnit files of pytest, one or several (the outcome in a later file counts), and --commit of what
was tested where it is not the one at hand. Only what the files hold is written.
"""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from headrace.cluster.engines.kafka_jars import KAFKA_VERSION
from tests.harness.soak import commit
from tests.spark.kill_cells import ACCIDENTS, CONDITIONS, PLACES

_TEST = "test_spark_kill_matrix["
_OUTPUTS = {
    "one node": "tables and topics, one Headrace node",
    "three nodes": "topics, three Headrace nodes",
    "Apache Kafka": "topics, Apache Kafka",
}

_HEAD = """# Kill matrix of Spark programs: each record exactly once

Queries read topics in micro-batches of 400 records and write them to Delta tables and to topics (read committed,
exactly once by default): on one Headrace node, on three Headrace nodes with three replicas of each partition, and on Apache Kafka. In the second
micro-batch of a query a fault is injected; then the program, or a new one on the same checkpoint, runs to the
end. Each cell of the table below is a run with all seven faults, each for a query of its own; its column is the condition
under which Spark runs. Tasks record their attempts, and a condition that did not occur fails its cell.

| fault | what happens |
|---|---|
| driver killed before, inside, after the commit | SIGKILL of its Python and Java with the process that commits, before anything is written, before the last step of the commit, and after the commit but before Spark recorded it; executors have to detect it |
| old driver woken before, inside its commit | SIGSTOP of driver and executors at those points; SIGCONT when the new driver has finished: every query of the old one must fail |
| executor killed | SIGKILL of the executor and its workers when a task has passed its rows to the sink |
| broker killed | SIGKILL, restarted after two seconds: tables before a task reads, topics before the transaction is committed; of three nodes, the one that coordinates the transaction |

| condition | |
|---|---|
| adaptive slices | adaptive execution merges partitions, different ones in the program that continues |
| speculation | in every micro-batch a slow task runs twice at the same time |
| task failure | in every micro-batch a task fails after it has passed on its rows |
| other slices and executors | 3 shuffle partitions on 2 executors, then 7 on 1 |

Passed means, for every output: each record is there exactly once; the group's offsets, read about once a second, were
never ahead of the output; at the end they are at the end of the topic.

```sh
PYTEST_ADDOPTS=--junitxml=build/soak/spark.xml make soak PART=spark_kill_matrix
PYTHONPATH=. .venv/bin/python tests/spark/kill_report.py build/soak/spark.xml > docs/evidence/spark-kills.md
```
"""  # noqa: E501 rows of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    word: str
    seconds: float
    day: str


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """By condition and place."""
    found = {}
    for suite in ET.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = case.attrib["name"]
            if name.startswith(_TEST):
                seconds, day = float(case.attrib["time"]), suite.attrib["timestamp"][:10]
                cell = name.removeprefix(_TEST).removesuffix("]")
                found[cell] = Outcome(word=_word(case), seconds=seconds, day=day)
    return found


def _word(case: ET.Element) -> str:
    kinds = [child.tag for child in case]
    if "skipped" in kinds:
        return "not run"
    return "**failed**" if "failure" in kinds or "error" in kinds else "passed"


def page(outcomes: dict[str, Outcome], tested: str) -> str:
    return "\n".join([_HEAD, _summary(outcomes, tested), "", *_table(outcomes)]) + "\n"


def _summary(outcomes: dict[str, Outcome], tested: str) -> str:
    if not outcomes:
        return "Not run as a whole yet; `make check` and `make compat` run some of its faults."
    days = sorted({each.day for each in outcomes.values()})
    used = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "deltalake"))
    passed = sum(each.word == "passed" for each in outcomes.values())
    parts = [
        f"{passed} of {len(CONDITIONS) * len(PLACES)} cells passed, {len(ACCIDENTS)} faults in each",
        f"on {' and '.join(days)}, commit `{tested[:12]}`, {used}, Apache Kafka {KAFKA_VERSION}",
    ]
    return f"{', '.join(parts)}."


def _table(outcomes: dict[str, Outcome]) -> Iterable[str]:
    yield _row(["place", *CONDITIONS])
    yield "|" + "---|" * (len(CONDITIONS) + 1)
    for place in PLACES:
        cells = (outcomes.get(f"{condition}-{place}") for condition in CONDITIONS)
        yield _row([_OUTPUTS[place], *map(_shown, cells)])


def _shown(outcome: Outcome | None) -> str:
    if outcome is None or outcome.word == "not run":
        return "not run"
    return f"{outcome.word}, {outcome.seconds:.0f} s"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="The kill matrix as a page.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--commit", default=commit())
    given = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for path in given.files:
        outcomes |= read_outcomes(path)
    print(page(outcomes, given.commit), end="")


if __name__ == "__main__":
    main()
