# SPDX-License-Identifier: Apache-2.0
"""Records in a checkpoint which pipeline it belongs to, so that no other one uses it.

Independent of Spark. Read next: definitions/definition.py, pipelines/runner.py.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Pipeline

FILE = "headrace-pipeline.json"


def claim(pipeline: Pipeline, checkpoint: Path) -> None:
    """Raises ClientError when the checkpoint was created by a different pipeline."""
    now = pipeline.identity()
    path = checkpoint / FILE
    if path.exists():
        _compare(pipeline, checkpoint, _read(path), now)
        return
    if (checkpoint / "offsets").exists():
        raise ClientError(
            f"pipeline {pipeline.name!r}: the checkpoint {checkpoint} belongs to a query of another program",
            next_step="choose another --checkpoint, or another name for the pipeline",
        )
    checkpoint.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")


def identity_of(checkpoint: Path) -> dict[str, object] | None:
    """What the checkpoint was made with; None when it is of another program's query."""
    path = checkpoint / FILE
    return _read(path) if path.exists() else None


def _compare(pipeline: Pipeline, checkpoint: Path, before: dict[str, object], now: dict[str, object]) -> None:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise ClientError(
                f"pipeline {pipeline.name!r}: its checkpoint {checkpoint} was made with {name} = "
                f"{json.dumps(before.get(name))}, and now it is {json.dumps(now.get(name))}",
                next_step="choose another name or --checkpoint to start over, or restore the former value",
            )


def _read(path: Path) -> dict[str, object]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ClientError(f"{path} is damaged", next_step="choose another --checkpoint")
    return document
