# SPDX-License-Identifier: Apache-2.0
"""Tests of a lane of tests/gate.toml run one after the other, in one worker, beside those of other files.

So Spark has one session at a time, and no two clusters are taken apart at once, while the other core is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdist.scheduler import LoadFileScheduling

from tests.harness.gate import TESTS, read_lanes


class LaneScheduling(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile` where a lane counts as one file. What has most tests begins first."""

    def __init__(self, *arguments: Any, lanes: Mapping[str, str]) -> None:
        super().__init__(*arguments)
        self._lanes = lanes

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.removeprefix(f"{TESTS.name}/").partition("::")
        name = test.partition("[")[0]
        return self._lanes.get(file) or self._lanes.get(f"{file}::{name}") or file


def make_scheduler(config: Any, log: Any) -> LaneScheduling | None:
    """None: xdist's own choice."""
    if config.getvalue("dist") != "loadfile":
        return None
    return LaneScheduling(config, log, lanes=read_lanes())
