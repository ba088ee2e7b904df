"""The options about key ranges (D5), and what they mean together.

The ranges themselves are client/ranges.py's; where they are kept is client/partitioner_store.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from headrace.cli.input import open_input

if TYPE_CHECKING:
    from headrace.client.admin import TopicDescription
    from headrace.client.partitioner_store import StoredRanges
    from headrace.client.ranges import KeyRange

Ranges = Annotated[
    str | None,
    typer.Option(
        "--ranges",
        metavar="LOW..HIGH,…",
        help="Place keys by range, one range per partition, both ends included, compared as bytes: "
        "AAAA..MZZZ,NAAA..ZZZZ. An end may be left out.",
    ),
]
RangesFrom = Annotated[
    Path | None,
    typer.Option(
        "--ranges-from", metavar="FILE", help="Learn the ranges from sample keys, one a line (- for stdin)."
    ),
]
OutsideOption = Annotated[
    str | None,
    typer.Option("--outside", metavar="error|nearest", help="What to do with a key that no range holds."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeChoice:
    """What --ranges, --ranges-from and --outside say."""

    ranges: Ranges = None
    ranges_from: RangesFrom = None
    outside: OutsideOption = None

    def __post_init__(self) -> None:
        if self.ranges is not None and self.ranges_from is not None:
            raise typer.BadParameter("give either --ranges or --ranges-from")
        if self.outside not in (None, "error", "nearest"):
            raise typer.BadParameter(f"{self.outside!r} is neither error nor nearest", param_hint="--outside")

    @property
    def given(self) -> bool:
        return not (self.ranges is None and self.ranges_from is None and self.outside is None)

    @property
    def policy(self) -> Literal["error", "nearest"] | None:
        """What to do with keys outside, where it is said."""
        return cast('Literal["error", "nearest"] | None', self.outside)

    def parsed(self, partitions: int | None) -> tuple[KeyRange, ...] | None:
        """None when no ranges were given; as many as partitions, else it is an error."""
        from headrace.client.errors import ClientError
        from headrace.client.ranges import boundaries_from_sample, parse_ranges

        if self.ranges_from is not None:
            if partitions is None:
                raise typer.BadParameter("--ranges-from needs --partitions")
            return boundaries_from_sample(_sample_keys(self.ranges_from), partitions)
        if self.ranges is None:
            return None
        parsed = parse_ranges(self.ranges)
        if partitions is not None and len(parsed) != partitions:
            raise ClientError(f"{len(parsed)} key ranges were given for {partitions} partitions")
        return parsed

    def for_altered(
        self, topic: TopicDescription, total: int, stored: StoredRanges | None
    ) -> StoredRanges | None:
        """What is to be kept for a topic that shall have `total` partitions; None: leave it as it is."""
        from headrace.client.errors import ClientError
        from headrace.client.partitioner_store import StoredRanges
        from headrace.client.ranges import format_ranges

        given = self.parsed(total)
        if given is None and stored is not None and total != len(topic.partitions):
            raise ClientError(
                f"topic '{topic.name}' places keys by range ({format_ranges(stored.ranges)}): "
                f"{total} partitions need {total} ranges",
                next_step=f"headrace topics alter {topic.name} --partitions {total} --ranges LOW..HIGH,…",
            )
        ranges = given or (stored.ranges if stored else None)
        if not self.given:
            return None
        if ranges is None:
            raise ClientError(f"topic '{topic.name}' has no key ranges", next_step="give them with --ranges")
        outside = self.policy or (stored.outside if stored else "error")
        return StoredRanges(topic_id=topic.topic_id, ranges=ranges, outside=outside)


def _sample_keys(path: Path) -> list[bytes]:
    with open_input(path) as lines:
        return [line.rstrip(b"\r\n") for line in lines if line.strip()]
