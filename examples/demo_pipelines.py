"""The demo's scene on Spark: `analyze` and `store` as two groups over one topic, while a producer goes on.

Two of the built-in pipelines in one Spark session, each with a Delta table. Both tables are added up at the
end and held against what was produced. Where Java or Spark is missing it says so, and the rest goes on.
Run by demo.py.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from headrace.cli.pipeline_progress import line_of, table_of
from headrace.client.admin import Admin
from headrace.client.errors import ClientError
from headrace.client.groups import Groups
from headrace.client.producer import OutgoingRecord, RecordProducer
from headrace.pipelines.java import find_java
from headrace.pipelines.quiet import errors_to

TOPIC, PARTITIONS = "sales", 4
SHOPS = ("Basel", "Lyon", "Oslo", "Porto")
RECORDS = 20_000
PRODUCED_FOR_S = 5
MINUTES = 12
"""So much event time passes while the demo produces."""
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "shop STRING, cents BIGINT, at TIMESTAMP"
PICTURE = Path(__file__).resolve().parents[1] / "artifacts" / "demo-pipelines.png"
START_S, SCENE_S = 300, 300
"""How long Spark may take to start, and the scene then."""

Check = Callable[[str, str, bool], None]
Sums = dict[tuple[str, datetime], int]


class SparkStart:
    """Spark takes seconds to start: it does so while the other scenes play."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "spark.log"
        self._session: Any = None
        self.missing: str | None = None
        """What has to be installed."""
        self.failure: str | None = None
        try:
            find_java()
        except ClientError as error:
            self.missing = str(error)
            return
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def session(self) -> Any:
        """None where there is none to be had; `missing` or `failure` says why."""
        if self.missing is None:
            self._thread.join(START_S)
            if self._thread.is_alive():
                self.failure = f"it took more than {START_S} s"
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()

    def _start(self) -> None:
        from headrace.pipelines.session import spark_session

        settings = {"spark.sql.session.timeZone": "UTC", "spark.log.level": "OFF"}
        try:
            with errors_to(self._log):
                self._session = spark_session("local[2]", name="headrace demo", settings=settings)
        except ClientError as error:
            self.missing = str(error)
        except RuntimeError as error:
            self.failure = str(error).strip().splitlines()[0]


class PipelineScene:
    def __init__(self, bootstrap: str, folder: Path, console: Console, check: Check) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._console = console
        self._check = check
        self._produced: Counter[tuple[str, datetime]] = Counter()

    def play(self, start: SparkStart) -> None:
        self._console.print(Rule("5  One topic, two pipelines on Spark: analyze and store"))
        spark = start.session()
        if spark is None:
            self._console.print(f"Left out: {start.missing or start.failure}")
            if start.failure is not None:
                self._check("D12", "Spark started", False)
            return
        Admin(self._bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        read = self._run(spark)
        self._check("D12", f"both pipelines read all {RECORDS:,} records", read == [RECORDS] * 2)
        self._check_groups()
        analyzed = self._check_tables()
        draw(analyzed, PICTURE)
        self._console.print(f"Drawn from the table of analyze: {PICTURE.relative_to(PICTURE.parents[1])}")

    def _run(self, spark: Any) -> list[int]:
        """Both pipelines until they have read everything; how many records each has."""
        from headrace.pipelines.runner import Runner

        runner = Runner(spark, self._pipelines(), once=False)
        producer = threading.Thread(target=self._produce, daemon=True)
        producer.start()
        try:
            runner.start()
            deadline = time.monotonic() + SCENE_S
            with self._drawn([query.name for query in runner.queries]) as shown:
                while time.monotonic() < deadline:
                    shown([batch for query in runner.queries for batch in query.new_batches()])
                    if all(query.batches.total_rows >= RECORDS for query in runner.queries):
                        break
                    time.sleep(0.2)
            producer.join(SCENE_S)
            runner.stop_at_boundary()
            failures = [failure for query in runner.queries if (failure := query.failure())]
            for failure in failures:
                self._console.print(f"✗ {failure}")
            return [query.batches.total_rows for query in runner.queries]
        finally:
            runner.close()

    def _pipelines(self) -> Any:
        from headrace.pipelines.definition_file import pipelines_of

        typed = {"topic": TOPIC, "value": "json", "schema": SCHEMA, "time": "at"}
        sums = {"window": "1m", "by": "shop", "sum": "cents", "emit": "all"}
        return pipelines_of(
            {
                "bootstrap": self._bootstrap,
                "checkpoints": str(self._folder / "checkpoints"),
                "analyze": {"analyze": {**typed, **sums, "path": str(self._folder / "per_minute")}},
                "store": {"store": {**typed, "path": str(self._folder / "sales")}},
            },
            "the demo",
        ).pipelines

    def _produce(self) -> None:
        """Evenly over some seconds; event time passes faster."""
        dice = random.Random(7)
        producer = RecordProducer(self._bootstrap, TOPIC, partitions=PARTITIONS)
        started = time.monotonic()
        for number in range(RECORDS):
            share = number / RECORDS
            shop, cents = dice.choice(SHOPS), dice.randrange(100, 10_000)
            at = BEGIN + timedelta(minutes=MINUTES) * share
            value = json.dumps({"shop": shop, "cents": cents, "at": at.isoformat()})
            producer.send(OutgoingRecord(key=shop.encode(), value=value.encode()))
            self._produced[shop, at.replace(second=0, microsecond=0)] += cents
            if number % 100 == 0:
                time.sleep(max(0.0, started + share * PRODUCED_FOR_S - time.monotonic()))
        producer.close()

    def _check_groups(self) -> None:
        groups = Groups(self._bootstrap)
        for name in ("analyze", "store"):
            committed = groups.committed(name)
            there = bool(committed) and committed == groups.ends(committed)
            self._check("D22", f"group '{name}' is at the end of the topic", there)

    def _check_tables(self) -> Sums:
        from deltalake import DeltaTable

        stored = DeltaTable(self._folder / "sales").to_pyarrow_table(
            columns=["cents", "_partition", "_offset"]
        )
        places = set(zip(stored["_partition"].to_pylist(), stored["_offset"].to_pylist(), strict=True))
        once = stored.num_rows == len(places) == RECORDS
        self._check("D12", f"store holds each of the {RECORDS:,} records once", once)
        total = sum(self._produced.values())
        self._check(
            "D12", f"store's sum is what was produced: {total:,}", sum(stored["cents"].to_pylist()) == total
        )
        rows = DeltaTable(self._folder / "per_minute").to_pyarrow_table().to_pylist()
        analyzed = {(row["shop"], row["window_start"]): row["sum_cents"] for row in rows}
        same = analyzed == dict(self._produced) and len(rows) == len(analyzed)
        self._check("D22", f"analyze's {len(self._produced)} sums by shop and minute are exact", same)
        return analyzed

    @contextmanager
    def _drawn(self, names: list[str]) -> Iterator[Callable[[list[Any]], None]]:
        """A live table on a terminal, a line for each micro-batch in a pipe."""
        if not self._console.is_terminal:
            yield self._print_lines
            return
        last: dict[str, Any] = {}
        with Live(table_of(names, last), console=self._console, refresh_per_second=4) as live:

            def redraw(batches: list[Any]) -> None:
                last.update({batch.pipeline: batch for batch in batches})
                live.update(Group(table_of(names, last), self._bars()))

            yield redraw

    def _print_lines(self, batches: list[Any]) -> None:
        for batch in batches:
            self._console.print(line_of(batch), soft_wrap=True)

    def _bars(self) -> Text:
        sums: Counter[str] = Counter()
        for (shop, _), cents in list(self._produced.items()):
            sums[shop] += cents
        most = max(sums.values(), default=1)
        bars = [f"{shop:<6} {'█' * (30 * sums[shop] // most)} {sums[shop]:,}" for shop in SHOPS]
        return Text("\n".join(["produced so far, in cents:", *bars]))


def draw(sums: Sums, path: Path) -> None:
    """Bars by minute, one shop on the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    minutes = sorted({minute for _, minute in sums})
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    below = [0.0] * len(minutes)
    for shop in SHOPS:
        heights = [sums.get((shop, minute), 0) / 100 for minute in minutes]
        axes.bar(
            [minute.strftime("%H:%M") for minute in minutes], heights, bottom=below, label=shop, width=0.8
        )
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_title("Sales by minute and shop, summed up by Spark from the topic")
    axes.set_ylabel("sales")
    axes.set_xlabel("event time")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=len(SHOPS), loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
