# SPDX-License-Identifier: Apache-2.0
"""A member of a transforming group to be killed: says the size of each batch, and goes on until then.

python transform_worker.py BOOTSTRAP SOURCE TARGET GROUP PROTOCOL
"""

from __future__ import annotations

import sys
import time
from typing import Any

import headrace
from tests.harness.groups.stream_members import QUICK


def main(bootstrap: str, source: str, target: str, group: str, protocol: Any) -> None:
    def copy(batch: Any) -> Any:
        print(batch.num_rows, flush=True)
        time.sleep(0.02)  # the slow member: it is killed with a transaction open
        return batch

    options: dict[str, Any] = {"transaction_timeout_ms": 4000, "commit_interval_ms": 50, "budget": 40_000}
    headrace.transform(
        source,
        target,
        copy,
        group=group,
        bootstrap=bootstrap,
        protocol=protocol,
        transactional_id=f"{group}-killed",
        write={"partition": "partition"},
        **options,
        **QUICK,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
