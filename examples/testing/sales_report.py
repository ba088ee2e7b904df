# SPDX-License-Identifier: Apache-2.0
"""A batch job on the Arrow client: sums the sales since its last run by customer, and writes them to a topic.

    python sales_report.py 127.0.0.1:9092 offsets.json

The client repeats requests that fail for a moment. When a run fails nothing is saved, so the next run does it
again; the header `run` is the same then. Sales that retention removed before they were read are reported.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headrace
from headrace.client.errors import ClientError

SALE = pa.schema({"customer": pa.string(), "amount": pa.float64()})


@dataclass(frozen=True)
class Report:
    sales: int
    rejected: int
    """Records that are no sales."""
    missed: int
    """Records that were removed before they were read."""


def run(bootstrap: str, progress: Path, *, timeout_ms: int = 60_000) -> Report:
    """Reads the topic `sales` from where the last run ended, writes to `revenue`. Raises ClientError."""
    begin = (
        {int(key): value for key, value in json.loads(progress.read_text()).items()}
        if progress.exists()
        else {}
    )
    rejects = headrace.Rejects()
    sales = headrace.read(
        "sales",
        bootstrap=bootstrap,
        columns=["value", "partition", "offset"],
        start=begin or None,
        value=headrace.Json(SALE),
        rejects=rejects,
        timeout_ms=timeout_ms,
        progress=False,
    ).read_all()
    offsets = _offsets(sales, rejects)
    if not offsets:
        return Report(0, 0, 0)
    totals = _totals(sales, run=json.dumps(begin))
    headrace.write(
        totals,
        "revenue",
        bootstrap=bootstrap,
        key="customer",
        value=["customer", "amount"],
        headers="headers",
        timeout_ms=timeout_ms,
        progress=False,
    )
    _save(progress, begin | {partition: max(seen) + 1 for partition, seen in offsets.items()})
    missed = sum(min(seen) - begin.get(partition, 0) for partition, seen in offsets.items())
    return Report(sales.num_rows, len(rejects), missed)


def _offsets(sales: Any, rejects: headrace.Rejects) -> dict[int, list[int]]:
    """What was read, by partition; also what was rejected."""
    found: dict[int, list[int]] = {}
    for table in (sales, rejects.to_arrow()):
        for partition, offset in zip(
            table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
        ):
            found.setdefault(partition, []).append(offset)
    return found


def _totals(sales: Any, *, run: str) -> Any:
    values = sales["value"].combine_chunks()
    flat = pa.table({name: pc.struct_field(values, name) for name in SALE.names})
    totals = flat.group_by("customer").aggregate([("amount", "sum")]).rename_columns({"amount_sum": "amount"})
    header = [{"key": "run", "value": run.encode()}]
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    return totals.append_column("headers", pa.array([header] * totals.num_rows, kind))


def _load(progress: Path) -> dict[int, int]:
    """The offsets to begin with; none before the first run."""
    if not progress.exists():
        return {}
    return {int(partition): offset for partition, offset in json.loads(progress.read_text()).items()}


def _save(progress: Path, offsets: dict[int, int]) -> None:
    new = progress.with_suffix(".new")
    new.write_text(json.dumps(offsets))
    os.replace(new, progress)  # the old file or the new one, whenever the process ends


if __name__ == "__main__":
    try:
        print(run(sys.argv[1], Path(sys.argv[2])))
    except ClientError as failure:
        sys.exit(f"{failure}")
