# SPDX-License-Identifier: Apache-2.0
"""Scene: how many consumers and partitions a stream needs, from given and from measured rates."""

from __future__ import annotations

import re
import time

from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, Stage

TOPIC = "uploads"
RECORDS = 2000
HANDLER = "headrace.demo.scenes.sizing:resize"
SUM = """\
              throughput of all producers
consumers  =  ───────────────────────────      partitions  ≥  consumers
              throughput of one consumer"""


def resize(_: object) -> None:
    """Stand for work that takes five milliseconds for a record."""
    time.sleep(0.005)


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("How many consumers keep up with the producers, and how many partitions do they need?")
    screen.show(SUM)
    screen.run(f"headrace topics create {TOPIC} --partitions 6")
    screen.say("From rates that you know:")
    given = screen.run(f"headrace plan {TOPIC} --produce-rate 5000 --consume-rate 1000")
    screen.check("5,000 records/s over 1,000 records/s need 5 consumers", _consumers(given) == 5)
    screen.say("Or measured: here with a function that takes 5 ms for each record.")
    values = [OutgoingRecord(value=b"picture %d" % number) for number in range(RECORDS)]
    send_records(stage.bootstrap, TOPIC, values)
    measured = screen.run(f"headrace plan {TOPIC} --produce-rate 1000 --handler {HANDLER} --over 1s")
    screen.check("at 1,000 records/s more than 4 consumers are needed", (_consumers(measured) or 0) > 4)


def _consumers(output: str) -> int | None:
    """The number in the row `consumers` of the result."""
    found = re.search(r"(?m)^ *consumers +(\d+)", output)
    return int(found[1]) if found else None


SCENE = Scene(
    name="sizing",
    title="How many consumers and partitions",
    play=play,
    varies=(r"(?ms)^\$ headrace plan \S+ --produce-rate 1000.*?\n(?=✓)",),
)
