# SPDX-License-Identifier: Apache-2.0
"""Scene: a record in full. Key, value, headers and timestamp, set by the producer or by the broker."""

from __future__ import annotations

import json
import time

from headrace.demo.records import read_topic
from headrace.demo.scene import Scene, Stage

TOPIC, STAMPED = "events", "readings"
DRAWING = """\
         ┌ key        YOLO                      who or what it is about
record ──┼ value      foo                       the message
         ├ headers    source=tour               more about it
         └ timestamp  2016-10-23T12:32:31.750Z  when it happened"""
TIMESTAMP_MS = 1_477_225_951_750
RECORD = {"key": "YOLO", "value": "foo", "headers": {"source": "tour"}, "timestamp": TIMESTAMP_MS}


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("A record has a key, a value, headers and a timestamp:")
    screen.show(DRAWING)
    screen.run(f"headrace topics create {TOPIC} --config retention.ms=-1")
    screen.run(f"headrace produce {TOPIC} --json-lines", typed=json.dumps(RECORD))
    screen.run(f"headrace consume {TOPIC} --exit-at-end -v")
    (record,) = read_topic(stage.bootstrap, TOPIC)
    as_sent = (record.key, record.value, record.headers) == (b"YOLO", b"foo", (("source", b"tour"),))
    screen.check("key, value and headers came back as they were sent", as_sent)
    screen.check("the timestamp is the producer's", record.timestamp_ms == TIMESTAMP_MS)
    screen.say("A topic may have the broker set the timestamp when it appends the record:")
    before_ms = time.time_ns() // 1_000_000
    screen.run(f"headrace topics create {STAMPED} --config message.timestamp.type=LogAppendTime")
    old = json.dumps({"value": "21.5", "timestamp": TIMESTAMP_MS})
    screen.run(f"headrace produce {STAMPED} --json-lines", typed=old)
    screen.run(f"headrace consume {STAMPED} --exit-at-end -v")
    (record,) = read_topic(stage.bootstrap, STAMPED)
    stamped = record.append_time and (record.timestamp_ms or 0) >= before_ms
    screen.check("the timestamp is the broker's, not the producer's", stamped)


SCENE = Scene(name="records", title="A record in full", play=play)
