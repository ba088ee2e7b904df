# SPDX-License-Identifier: Apache-2.0
"""A consumer to be killed between processing and commit: says each thing that it does, then waits for more.

    python killed_consumer.py BOOTSTRAP GROUP TOPIC PROTOCOL COMMITTED PROCESSED

It processes COMMITTED records, commits, processes on to PROCESSED, and never commits those.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer


def main(bootstrap: str, group: str, topic: str, protocol: str, committed: str, processed: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    count = 0
    while count < int(processed):
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        print("processed", message.value().decode(), flush=True)
        count += 1
        if count == int(committed):
            consumer.commit(asynchronous=False)
            print("committed", flush=True)
    print("waiting", flush=True)
    time.sleep(60)  # until it is killed


if __name__ == "__main__":
    main(*sys.argv[1:])
