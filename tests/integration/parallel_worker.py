# SPDX-License-Identifier: Apache-2.0
"""A program with a parallel consumer, for tests that kill it: notes each record that it has handled.

Arguments: bootstrap, group, topic, file for the notes, milliseconds per record, executor. A note is one line,
`partition offset key`, written in one piece before the handler returns.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

from headrace.client.parallel import ParallelConsumer, Record

SESSION_MS = 2_000


def handle(notes: str, pause_ms: float, record: Record) -> None:
    time.sleep(pause_ms / 1000)  # the slow handler
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{record.partition} {record.offset} {(record.key or b'').decode()}\n".encode())
    os.close(file)


def main() -> None:
    bootstrap, group, topic, notes, pause_ms, executor = sys.argv[1:]
    ParallelConsumer(
        bootstrap,
        group,
        topic,
        partial(handle, notes, float(pause_ms)),
        workers=4,
        executor="processes" if executor == "processes" else "threads",
        commit_interval_ms=100,
        settings={"session.timeout.ms": SESSION_MS},
    ).run()


if __name__ == "__main__":
    main()
