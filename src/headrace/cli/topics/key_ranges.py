# SPDX-License-Identifier: Apache-2.0
"""Options for partitioning by key range (D5).

The ranges are parsed in key_ranges.py and stored as told in
client/partitioning/stored_ranges.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from headrace.cli.input import open_input

if TYPE_CHECKING:
    from headrace.client.partitioning.stored_ranges import StoredRanges
    from headrace.client.tools.admin import TopicDescription
    from headrace.key_ranges import KeyRange

Ranges = Annotated[
    str | None,
    typer.Option(
        "--ranges",
        metavar="LOW..HIGH,…",
        help="Partition by key range, one range per partition, both ends included, compared as bytes: "
        "AAAA..MZZZ,NAAA..ZZZZ. An end may be omitted.",
    ),
]
RangesFrom = Annotated[
    Path | None,
    typer.Option(
        "--ranges-from", metavar="FILE", help="Derive ranges from sample keys, one per line (- for stdin)."
    ),
]
OutsideOption = Annotated[
    str | None,
    typer.Option("--outside", metavar="error|nearest", help="What to do with a key outside all ranges."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeChoice:
    """The values of --ranges, --ranges-from and --outside."""

    ranges: Ranges = None
    ranges_from: RangesFrom = None
    outside: OutsideOption = None

    def __post_init__(self) -> None:
        if self.ranges is not None and self.ranges_from is not None:
            raise typer.BadParameter("use either --ranges or --ranges-from")
        if self.outside not in (None, "error", "nearest"):
            raise typer.BadParameter(f"{self.outside!r} is neither error nor nearest", param_hint="--outside")
        if self.ranges is not None:
            self._check_ranges(self.ranges)

    @staticmethod
    def _check_ranges(text: str) -> None:
        from headrace.errors import ConfigError
        from headrace.key_ranges import parse_ranges

        try:
            parse_ranges(text)
        except ConfigError as error:
            raise typer.BadParameter(str(error), param_hint="--ranges") from None

    @property
    def given(self) -> bool:
        return not (self.ranges is None and self.ranges_from is None and self.outside is None)

    @property
    def policy(self) -> Literal["error", "nearest"] | None:
        """What to do with keys outside all ranges; None: not set."""
        return cast('Literal["error", "nearest"] | None', self.outside)

    def parsed(self, partitions: int | None) -> tuple[KeyRange, ...] | None:
        """The ranges, one per partition; None when no ranges are set."""
        from headrace.client.errors import ClientError
        from headrace.key_ranges import boundaries_from_sample, parse_ranges

        if self.ranges_from is not None:
            if partitions is None:
                raise typer.BadParameter("--ranges-from needs --partitions")
            return boundaries_from_sample(_sample_keys(self.ranges_from), partitions)
        if self.ranges is None:
            return None
        parsed = parse_ranges(self.ranges)
        if partitions is not None and len(parsed) != partitions:
            raise ClientError(f"{len(parsed)} key ranges for {partitions} partitions")
        return parsed

    def for_altered(
        self, topic: TopicDescription, total: int, stored: StoredRanges | None
    ) -> StoredRanges | None:
        """The ranges to store for a topic with `total` partitions; None: no change."""
        from headrace.client.errors import ClientError
        from headrace.client.partitioning.stored_ranges import StoredRanges
        from headrace.key_ranges import format_ranges

        given = self.parsed(total)
        if given is None and stored is not None and total != len(topic.partitions):
            raise ClientError(
                f"topic '{topic.name}' is partitioned by key range ({format_ranges(stored.ranges)}): "
                f"{total} partitions need {total} ranges",
                next_step=f"headrace topics alter {topic.name} --partitions {total} --ranges LOW..HIGH,…",
            )
        ranges = given or (stored.ranges if stored else None)
        if not self.given:
            return None
        if ranges is None:
            raise ClientError(f"topic '{topic.name}' has no key ranges", next_step="set them with --ranges")
        outside = self.policy or (stored.outside if stored else "error")
        return StoredRanges(topic_id=topic.topic_id, ranges=ranges, outside=outside)


def _sample_keys(path: Path) -> list[bytes]:
    with open_input(path) as lines:
        return [line.rstrip(b"\r\n") for line in lines if line.strip()]
