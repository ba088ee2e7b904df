# SPDX-License-Identifier: Apache-2.0
"""Scene: three pipelines on Spark over one topic. Analyze, store and copy are three groups.

At the end the tables and the other topic are compared with what was produced.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table

from headrace.client.tools.groups import Groups
from headrace.client.tools.producer import OutgoingRecord, RecordProducer
from headrace.demo.chart import Chart, Kind, Series
from headrace.demo.requirements import SPARK
from headrace.demo.scene import Scene, Stage

TOPIC, PARTITIONS, COPY = "sales", 4, "large-sales"
SHOPS = ("Basel", "Lyon", "Oslo", "Porto")
RECORDS = 20_000
LARGE = 9_000
"""Cents from which a sale is copied."""
PRODUCED_FOR_S = 4
MINUTES = 12
"""Event time that passes while the demo produces."""
LATE_EVERY, LATE_BY = 8, timedelta(minutes=3)
"""Every eighth sale arrives three minutes of event time late."""
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "shop STRING, cents BIGINT, at TIMESTAMP"
SCENE_S = 300
PIPELINES = ("analyze", "store", "copy")
DRAWING = """\
                    ┌─▶ group analyze ─▶ Spark ─▶ table: sums by shop and minute
producer ─▶ sales ──┼─▶ group store ───▶ Spark ─▶ table: every record
                    └─▶ group copy ────▶ Spark ─▶ topic large-sales"""

Sums = dict[tuple[str, datetime], int]


class _Progress:
    """A table of the last micro-batch of each pipeline."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def __rich__(self) -> Table:
        table = Table("pipeline", box=None, header_style="bold")
        for column in ("micro-batches", "records read", "lag"):
            table.add_column(column, justify="right")
        for name in PIPELINES:
            batch = self.last.get(name)
            if batch is None:
                table.add_row(name, "-", "-", "-")
            else:
                table.add_row(name, str(batch.number + 1), f"{batch.total_rows:,}", f"{batch.lag or 0:,}")
        return table


class _Pipelines:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._screen = stage.screen
        self._produced: Counter[tuple[str, datetime]] = Counter()
        self._late: Counter[datetime] = Counter()
        """Cents of late sales by the minute they belong to."""
        self._large = 0

    def play(self) -> None:
        screen = self._screen
        screen.say(
            "A data pipeline is a group that reads the topic with Spark. One sums up, one stores, one "
            "copies to another topic; each receives all records:"
        )
        screen.show(DRAWING)
        screen.run(f"headrace topics create {TOPIC} --partitions {PARTITIONS}")
        screen.run(f"headrace topics create {COPY}")
        screen.note("Spark starts …")
        assert self._stage.spark is not None
        read = self._run(self._stage.spark.session())
        screen.check(f"each pipeline read all {RECORDS:,} records", read == [RECORDS] * len(PIPELINES))
        self._check_groups()
        self._check_copy()
        self._stage.draw("late-data", self._late_data(self._check_tables()))

    def _run(self, spark: Any) -> list[int]:
        """Run the pipelines until they have read everything; the number of records of each."""
        from headrace.pipelines.runner import Runner

        runner = Runner(spark, self._pipelines(), once=False)
        producer = threading.Thread(target=self._produce, daemon=True)
        producer.start()
        try:
            runner.start()
            with self._progress() as progress:
                self._watch(runner, progress)
            producer.join(SCENE_S)
            runner.stop_at_boundary()
            for failure in filter(None, (query.failure() for query in runner.queries)):
                self._screen.check(str(failure), False)
            return [query.batches.total_rows for query in runner.queries]
        finally:
            runner.close()

    def _watch(self, runner: Any, progress: _Progress) -> None:
        deadline = time.monotonic() + SCENE_S
        while time.monotonic() < deadline:
            batches = [batch for query in runner.queries for batch in query.new_batches()]
            progress.last.update({batch.pipeline: batch for batch in batches})
            if all(query.batches.total_rows >= RECORDS for query in runner.queries):
                return
            time.sleep(0.2)

    @contextmanager
    def _progress(self) -> Iterator[_Progress]:
        progress = _Progress()
        with self._screen.live(progress):
            yield progress

    def _pipelines(self) -> Any:
        from headrace.pipelines.definitions.definition_file import pipelines_of

        folder = self._stage.folder
        typed = {"topic": TOPIC, "value": "json", "schema": SCHEMA}
        sums = {"window": "1m", "by": "shop", "sum": "cents", "emit": "all", "time": "at"}
        return pipelines_of(
            {
                "bootstrap": self._stage.bootstrap,
                "checkpoints": str(folder / "checkpoints"),
                "analyze": {"analyze": {**typed, **sums, "path": str(folder / "per_minute")}},
                "store": {"store": {**typed, "time": "at", "path": str(folder / "sales")}},
                "copy": {"copy": {**typed, "where": f"cents >= {LARGE}", "to": COPY}},
            },
            "the demo",
        ).pipelines

    def _produce(self) -> None:
        """Produce evenly over some seconds; event time passes faster."""
        dice = random.Random(7)
        producer = RecordProducer(self._stage.bootstrap, TOPIC, partitions=PARTITIONS)
        started = time.monotonic()
        for number in range(RECORDS):
            share = number / RECORDS
            shop, cents = dice.choice(SHOPS), dice.randrange(100, 10_000)
            late = number % LATE_EVERY == 0
            at = max(BEGIN + timedelta(minutes=MINUTES) * share - LATE_BY * late, BEGIN)
            value = json.dumps({"shop": shop, "cents": cents, "at": at.isoformat()})
            producer.send(OutgoingRecord(key=shop.encode(), value=value.encode()))
            self._produced[shop, at.replace(second=0, microsecond=0)] += cents
            self._late[at.replace(second=0, microsecond=0)] += cents * late
            self._large += cents >= LARGE
            if number % 100 == 0:
                time.sleep(max(0.0, started + share * PRODUCED_FOR_S - time.monotonic()))
        producer.close()

    def _check_groups(self) -> None:
        groups = Groups(self._stage.bootstrap)
        committed = [groups.committed(name) for name in PIPELINES]
        at_end = all(bool(offsets) and offsets == groups.ends(offsets) for offsets in committed)
        self._screen.check("the three groups are at the end of the topic", at_end)

    def _check_copy(self) -> None:
        """By its records: the marker of each transaction has an offset, too."""
        import headrace

        copied = headrace.read(COPY, bootstrap=self._stage.bootstrap).read_all().num_rows
        promise = f"the topic {COPY} holds the {self._large:,} sales of {LARGE:,} cents or more"
        self._screen.check(promise, copied == self._large)

    def _check_tables(self) -> Sums:
        from deltalake import DeltaTable

        columns = ["cents", "_partition", "_offset"]
        stored = DeltaTable(self._stage.folder / "sales").to_pyarrow_table(columns=columns)
        places = set(zip(stored["_partition"].to_pylist(), stored["_offset"].to_pylist(), strict=True))
        once = stored.num_rows == len(places) == RECORDS
        self._screen.check(f"store holds each of the {RECORDS:,} records once", once)
        total = sum(self._produced.values())
        same_sum = sum(stored["cents"].to_pylist()) == total
        self._screen.check(f"store's sum is what was produced: {total:,}", same_sum)
        rows = DeltaTable(self._stage.folder / "per_minute").to_pyarrow_table().to_pylist()
        analyzed = {(row["shop"], row["window_start"]): row["sum_cents"] for row in rows}
        same = analyzed == dict(self._produced) and len(rows) == len(analyzed)
        self._screen.check(f"analyze's {len(self._produced)} sums by shop and minute are exact", same)
        return analyzed

    def _late_data(self, analyzed: Sums) -> Chart:
        """The table of analyze by minute, split into what came in time and what came late."""
        sums: Counter[datetime] = Counter()
        for (_, minute), cents in analyzed.items():
            sums[minute] += cents
        minutes = sorted(sums)
        return Chart(
            title="Late sales are in the window they belong to",
            x_label="window of event time, minutes after noon",
            y_label="sales by minute, summed up by Spark",
            series=[
                _bars("in time", {each: sums[each] - self._late[each] for each in minutes}),
                _bars("up to three minutes late", {each: self._late[each] for each in minutes}),
            ],
        )


def _bars(name: str, cents: dict[datetime, int]) -> Series:
    points = [((minute - BEGIN).total_seconds() / 60, value / 100) for minute, value in cents.items()]
    return Series(name=name, points=points, kind=Kind.BARS)


def play(stage: Stage) -> None:
    _Pipelines(stage).play()


SCENE = Scene(
    name="pipelines",
    title="One topic, three pipelines on Spark",
    play=play,
    needs=(SPARK,),
    varies=(r"(?m)^ *(analyze|store|copy) +[\d, ]+$",),
)
