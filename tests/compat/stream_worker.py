# SPDX-License-Identifier: Apache-2.0
"""A stream to be killed: says each record that it has dealt with, and goes on until then.

python stream_worker.py BOOTSTRAP GROUP TOPIC PROTOCOL
"""

from __future__ import annotations

import sys
import time
from typing import Any

import headrace
from tests.harness.groups.stream_members import QUICK


def main(bootstrap: str, group: str, topic: str, protocol: Any) -> None:
    options: dict[str, Any] = {**QUICK, "commit_interval_ms": 50}
    for batch in headrace.stream(topic, bootstrap=bootstrap, group=group, protocol=protocol, **options):
        for value in batch["value"].to_pylist():
            print(value.decode(), flush=True)
        time.sleep(0.02)  # the slow reader: it is killed with records in hand


if __name__ == "__main__":
    main(*sys.argv[1:])
