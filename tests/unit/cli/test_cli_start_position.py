# SPDX-License-Identifier: Apache-2.0
"""Where `headrace consume` begins."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import typer

from headrace.cli.start_position import Start, find_starts, parse_start
from headrace.client.errors import ClientError

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start(kind="beginning")),
        ("end", Start(kind="end")),
        ("0", Start(kind="offset", value=0)),
        ("42", Start(kind="offset", value=42)),
        ("-10", Start(kind="last", value=10)),
        ("earliest", Start(kind="beginning")),
        ("latest", Start(kind="end")),
        ("PT1H", Start(kind="time", value=NOW - 3_600_000)),
        ("15m", Start(kind="time", value=NOW - 900_000)),
        ("2d", Start(kind="time", value=NOW - 172_800_000)),
        ("250ms", Start(kind="time", value=NOW - 250)),
        ("@123", Start(kind="time", value=123)),
        ("2026-01-31T12:00:00Z", Start(kind="time", value=1_769_860_800_000)),
        ("2026-01-31T13:00:00.5+01:00", Start(kind="time", value=1_769_860_800_500)),
    ],
)
def test_the_forms_of_from(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize("text", ["", "middle", "5 m", "1w", "@x", "--1", "2026-13-01"])
def test_an_invalid_position_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"is not valid; use beginning, end, an offset, -10"):
        parse_start(text, NOW)


class FakeAdmin:
    """Partition 0 holds 5 to 9, partition 1 is empty, partition 2 holds 0 to 99."""

    OFFSETS: ClassVar[dict[Any, dict[int, int]]] = {
        "earliest": {0: 5, 1: 0, 2: 0},
        "latest": {0: 10, 1: 0, 2: 100},
        123: {0: 7, 1: 0, 2: 50},
    }

    def offsets(self, topic: str, partitions: list[int], spec: Any) -> dict[int, int]:
        return {index: self.OFFSETS[spec][index] for index in partitions}


@pytest.mark.row("D1")
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start(kind="beginning"), {0: 5, 1: 0, 2: 0}),
        (Start(kind="end"), {0: 10, 1: 0, 2: 100}),
        (Start(kind="last", value=7), {0: 5, 1: 0, 2: 93}),
        (Start(kind="time", value=123), {0: 7, 1: 0, 2: 50}),
        (Start(kind="offset", value=8), {0: 8, 1: 0, 2: 8}),
        (Start(kind="offset", value=100), {0: 10, 1: 0, 2: 100}),
        (Start(kind="offset", value=1), {0: 5, 1: 0, 2: 1}),
    ],
)
def test_every_start_has_its_offsets(start: Start, expected: dict[int, int]) -> None:
    assert find_starts(FakeAdmin(), "t", [0, 1, 2], start) == expected  # type: ignore[arg-type]


def test_an_offset_that_no_partition_holds_is_refused_with_those_it_holds() -> None:
    with pytest.raises(ClientError, match="has no offset 11: its offsets are 5 to 10 in partition 0"):
        find_starts(FakeAdmin(), "t", [0], Start(kind="offset", value=11))  # type: ignore[arg-type]
