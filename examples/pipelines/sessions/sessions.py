# SPDX-License-Identifier: Apache-2.0
"""State of your own with `transformWithState`: clicks of a customer become sessions, one record for each.

    python examples/pipelines/sessions/sessions.py --folder /tmp/sessions --once

A session ends when a customer has not clicked for ten minutes; a timer in event time notices. Clicks are
JSON: {"customer": "ann", "page": "/tea", "at": "2026-01-02T03:04:05Z"}. They may be five minutes late.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.client.errors import ClientError
from headrace.spark import spark_session

CLICK = "customer STRING NOT NULL, page STRING, at TIMESTAMP NOT NULL"
SESSION = "customer STRING, began TIMESTAMP, ended TIMESTAMP, clicks INT"
STATE = "began_ms BIGINT, ended_ms BIGINT, clicks INT"
GAP_MS = 10 * 60 * 1000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Sessions(StatefulProcessor):
    """One customer's open session: when it began, its last click, and how many there were."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getValueState("open", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.open.get()
        for at in sorted(_ms(row.at) for row in rows):
            if found is not None and at > found[1] + GAP_MS:
                yield _session(key, found)
                found = None
            began, ended, clicks = found or (at, at, 0)
            found = (min(began, at), max(ended, at), clicks + 1)
        if found is not None:
            self._keep(found)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield _session(key, self.open.get())
        self.open.clear()

    def _keep(self, session: tuple[int, int, int]) -> None:
        """A session has one timer, which each click moves."""
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(session[1] + GAP_MS)
        self.open.update(session)


def _session(key: Any, session: Any) -> Row:
    began, ended, clicks = session
    return Row(customer=key[0], began=_moment(began), ended=_moment(ended), clicks=clicks)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def sessions(spark: SparkSession, bootstrap: str, folder: str, trigger: dict[str, Any]) -> StreamingQuery:
    clicks = (
        spark.readStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .option("group", "sessions")
        .option("value", "json")
        .option("valueSchema", CLICK)
        .load()
        .select("value.*")
    )
    found = (
        clicks.withWatermark("at", "5 minutes")
        .groupBy("customer")
        .transformWithState(Sessions(), outputStructType=SESSION, outputMode="append", timeMode="eventTime")
    )
    return (
        found.selectExpr("customer AS key", "to_json(struct(*)) AS value")
        .writeStream.queryName("sessions")
        .format("headrace")
        .option("bootstrap", bootstrap)
        .option("topic", "sessions")
        .option("checkpointLocation", f"{folder}/checkpoints/sessions")
        .outputMode("append")
        .trigger(**trigger)
        .start()
    )


def run(spark: SparkSession, bootstrap: str, folder: str, *, once: bool) -> None:
    """`once`: what is there now, then end. Otherwise until it is interrupted."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)  # timers need it
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    sessions(spark, bootstrap, folder, trigger).awaitTermination()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--folder", required=True, help="for the checkpoint")
    parser.add_argument("--master", default="local[*]", help="also a Spark Connect server: sc://HOST:15002")
    parser.add_argument("--once", action="store_true", help="read what is there, then end")
    asked = parser.parse_args()
    try:
        spark = spark_session(asked.master, name="sessions")
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        run(spark, asked.bootstrap, asked.folder, once=asked.once)
    except KeyboardInterrupt:
        return 130
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
