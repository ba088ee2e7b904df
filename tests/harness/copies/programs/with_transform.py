# SPDX-License-Identifier: Apache-2.0
"""Copies a topic by headrace.transform, one batch in sixteen refused by its function on purpose."""

from __future__ import annotations

import random
from typing import Any

import headrace
from headrace.client.arrow.transform.transformer import TransformFailed
from tests.harness.copies.programs.arguments import CopyArguments
from tests.harness.groups.stream_members import QUICK

_ABORTED = 16


def copy(batch: Any) -> Any:
    if random.randrange(_ABORTED) == 0:
        raise ValueError("not wanted now")
    print(f"copied {batch.num_rows}", flush=True)
    return batch


def main(plan: CopyArguments) -> None:
    options: dict[str, Any] = {**QUICK, "session_timeout_ms": 6000, "write": {"partition": "partition"}}
    while True:
        try:
            headrace.transform(
                plan.source,
                plan.target,
                copy,
                group=plan.group,
                bootstrap=plan.bootstrap,
                protocol="classic",
                transactional_id=plan.transactional_id,
                transaction_timeout_ms=int(plan.timeout_ms),
                commit_interval_ms=50,
                commit_records=int(plan.size),
                budget=40_000,
                **options,
            )
        except TransformFailed as error:
            print(f"again: {error}", flush=True)


if __name__ == "__main__":
    main(CopyArguments.given())
