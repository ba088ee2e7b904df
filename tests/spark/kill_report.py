"""Renders runs of the kill matrix as a page: every cell with its outcome and how long it took.

Arguments: JUnit files of pytest, one or several (a cell of a later file counts), and --commit of what was
tested where it is not the one at hand. Only what the files hold is written.
"""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from kill_cells import ACCIDENTS, CONDITIONS
from kill_harness import Table, Topic

from headrace.cluster.engines.kafka_jars import KAFKA_VERSION
from headrace.testing.soak import commit

_TEST = "test_spark_kill_matrix["
_OUTPUTS = {
    "tables": "Delta tables, records from Headrace",
    "topics": "Topics on Apache Kafka, read committed, exactlyOnce=batch",
}
_MOMENTS = {
    "before": "before the commit",
    "inside": "inside the commit",
    "after": "after the commit (not yet noted by Spark)",
    "write": "while a task of it writes",
    "read": "when a task is about to read",
}
_NOT_RUN = "not run"

_HEAD = """# Spark programs killed: each record once

Every cell starts a Spark program that reads topics in micro-batches of 400 records and writes them to tables
or topics: one query for each moment that the row names. In the second micro-batch each meets the accident at
its moment; then the program, or one that takes over the checkpoints, goes on to the end. The column says what
Spark does meanwhile. Tasks note their attempts, and a cell whose condition did not take place fails.

Passed means, of every query: each record is in the output exactly once; the group's offsets were ahead of it
at none of the looks taken all the time, about one a second; at the end they say that all is done. An old
driver that was paused and wakes up when its successor is done has ended with an error.

```sh
PYTEST_ADDOPTS=--junitxml=build/soak/spark.xml make soak PART=spark
.venv/bin/python tests/spark/kill_report.py build/soak/spark.xml > docs/evidence/spark-kills.md
```
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    word: str
    seconds: float
    day: str

    def __str__(self) -> str:
        return f"{self.word}, {self.seconds:.0f} s"


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """By cell: `output-accident-condition`."""
    found = {}
    for suite in ET.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = case.attrib["name"]
            if name.startswith(_TEST):
                cell = name.removeprefix(_TEST).removesuffix("]")
                seconds, day = float(case.attrib["time"]), suite.attrib["timestamp"][:10]
                found[cell] = Outcome(word=_word(case), seconds=seconds, day=day)
    return found


def _word(case: ET.Element) -> str:
    kinds = [child.tag for child in case]
    if "skipped" in kinds:
        return "skipped"
    return "**failed**" if "failure" in kinds or "error" in kinds else "passed"


def page(outcomes: dict[str, Outcome], tested: str) -> str:
    passed = [each for each in outcomes.values() if each.word == "passed"]
    cells = len(_OUTPUTS) * len(ACCIDENTS) * len(CONDITIONS)
    days = sorted({each.day for each in outcomes.values()})
    minutes = sum(each.seconds for each in outcomes.values()) / 60
    used = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "deltalake"))
    summary = [
        f"{len(passed)} of {cells} cells passed, in {minutes:.0f} minutes altogether",
        f"on {' and '.join(days)}, commit `{tested[:12]}`, {used}, Apache Kafka {KAFKA_VERSION}",
    ]
    lines = [_HEAD, f"{', '.join(summary)}."]
    for output, title in _OUTPUTS.items():
        lines += ["", f"## {title}", "", *_table(output, outcomes)]
    return "\n".join(lines) + "\n"


def _table(output: str, outcomes: dict[str, Outcome]) -> Iterable[str]:
    yield _row(["", *CONDITIONS])
    yield "|" + "---|" * (len(CONDITIONS) + 1)
    for accident, what in ACCIDENTS.items():
        moments = ", ".join(_MOMENTS[moment] for moment in what.moments or [_needed_at(output)])
        found = (outcomes.get(f"{output}-{accident}-{condition}", _NOT_RUN) for condition in CONDITIONS)
        yield _row([f"{accident}: {moments}", *map(str, found)])


def _needed_at(output: str) -> str:
    return (Table if output == "tables" else Topic).needs_broker_at


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
