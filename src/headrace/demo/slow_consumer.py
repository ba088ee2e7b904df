# SPDX-License-Identifier: Apache-2.0
"""A program for the scene `positions`: a consumer that commits only every third record it has processed.

    python -m headrace.demo.slow_consumer HOST:PORT TOPIC GROUP

It prints a line for each record and for each commit, and waits for more until it is ended.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer

COMMIT_EVERY = 3


def consume(bootstrap: str, topic: str, group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": "one",  # after a crash it gets its partition back at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    processed = 0
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        processed += 1
        print(f"processed {message.offset()}", flush=True)
        if processed % COMMIT_EVERY == 0:
            consumer.commit(message=message, asynchronous=False)
            print(f"committed {(message.offset() or 0) + 1}", flush=True)


if __name__ == "__main__":
    consume(*sys.argv[1:4])
