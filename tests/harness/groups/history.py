# SPDX-License-Identifier: Apache-2.0
"""Records what members of one group did and received; finds errors of ownership, position and commit.

One topic, both protocols: an epoch is a classic generation or a KIP-848 member epoch. Events carry ticks of
one counter, so that "before" means something. Pure: for the storm and live tests. Read next: member.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Literal, TypeVar

Outcome = Literal["ok", "fail", "info"]
"""As in history.py: `info` is a request whose answer never came, so that it may have been carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The broker told this member that the partition is its own in this epoch."""

    member: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The broker told an owner where to start; -1 when nothing was committed."""

    member: str
    partition: int
    epoch: int
    offset: int
    asked: int
    answered: int

    @property
    def position(self) -> int:
        return max(self.offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """Records `first` to `last`, both included."""

    member: str
    partition: int
    first: int
    last: int
    answered: int


@dataclass(slots=True, kw_only=True)
class Commit:
    member: str
    partition: int
    epoch: int
    offset: int
    asked: int
    outcome: Outcome = "info"
    answered: int | None = None

    @property
    def may_have_happened(self) -> bool:
        return self.outcome != "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnomaly:
    kind: str
    partition: int
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in partition {self.partition}: {self.detail}"


@dataclass(slots=True)
class GroupHistory:
    owned: list[Owned] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    processed: list[Processed] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    _ticks: Iterator[int] = field(default_factory=count, repr=False)

    def tick(self) -> int:
        return next(self._ticks)

    def commit(self, member: str, partition: int, epoch: int, offset: int) -> Commit:
        """A commit that is about to be sent; its answer is passed to `record_outcome`."""
        asked = Commit(member=member, partition=partition, epoch=epoch, offset=offset, asked=self.tick())
        self.commits.append(asked)
        return asked

    def record_outcome(self, commit: Commit, outcome: Outcome) -> None:
        commit.outcome = outcome
        commit.answered = self.tick()

    def take(self, member: str, partition: int, first: int, last: int) -> None:
        self.processed.append(
            Processed(member=member, partition=partition, first=first, last=last, answered=self.tick())
        )


E = TypeVar("E", Start, Processed, Commit)


def check(history: GroupHistory, ends: Mapping[int, int]) -> list[GroupAnomaly]:
    """Every anomaly, given how many records each partition holds; an empty list is a pass."""
    anomalies = list(_two_owners(history.owned))
    starts, commits = _by_partition(history.starts), _by_partition(history.commits)
    processed = _by_partition(history.processed)
    for partition, end in ends.items():
        told, done = starts[partition], processed[partition]
        anomalies += _unprocessed(partition, end, done)
        anomalies += _skipped(partition, told, done)
        anomalies += _former_owners(partition, told, commits[partition])
        anomalies += _went_back(partition, told, commits[partition])
    return anomalies


def _by_partition(events: Sequence[E]) -> defaultdict[int, list[E]]:
    found: defaultdict[int, list[E]] = defaultdict(list)
    for event in events:
        found[event.partition].append(event)
    return found


def _two_owners(owned: Sequence[Owned]) -> Iterable[GroupAnomaly]:
    owner: dict[tuple[int, int], str] = {}
    for told in owned:
        other = owner.setdefault((told.partition, told.epoch), told.member)
        if other != told.member:
            detail = f"{other} and {told.member} in epoch {told.epoch}"
            yield GroupAnomaly(kind="two-owners", partition=told.partition, detail=detail)


class _Covered:
    """Offsets of one partition that were processed, from the beginning on."""

    def __init__(self) -> None:
        self.prefix = 0
        self._beyond: set[int] = set()

    def add(self, first: int, last: int) -> None:
        self._beyond.update(range(max(first, self.prefix), last + 1))
        while self.prefix in self._beyond:
            self._beyond.remove(self.prefix)
            self.prefix += 1


def _unprocessed(partition: int, end: int, processed: Sequence[Processed]) -> Iterable[GroupAnomaly]:
    covered = _Covered()
    for done in processed:
        covered.add(done.first, done.last)
    if covered.prefix < end:
        detail = f"offset {covered.prefix} of {end} was never processed"
        yield GroupAnomaly(kind="unprocessed", partition=partition, detail=detail)


def _skipped(
    partition: int, starts: Sequence[Start], processed: Sequence[Processed]
) -> Iterable[GroupAnomaly]:
    """An owner goes on where the work ended, and then record by record."""

    def skip(detail: str) -> GroupAnomaly:
        return GroupAnomaly(kind="skipped", partition=partition, detail=detail)

    covered = _Covered()
    position: dict[str, int] = {}
    events: list[Start | Processed] = [*starts, *processed]
    for event in sorted(events, key=attrgetter("answered")):
        if isinstance(event, Start):
            position[event.member] = event.position
            if event.position > covered.prefix:
                yield skip(f"{event.member} started at {event.position}, {covered.prefix} was not processed")
            continue
        due = position.get(event.member)
        if event.first != due:
            yield skip(f"{event.member} processed {event.first} where {due} was due")
        position[event.member] = event.last + 1
        covered.add(event.first, event.last)


def _former_owners(
    partition: int, starts: Sequence[Start], commits: Sequence[Commit]
) -> Iterable[GroupAnomaly]:
    """Whoever was owner in an earlier epoch has nothing to say once a later owner was told where to start."""
    begun = sorted(starts, key=attrgetter("answered"))
    latest: Start | None = None
    place = 0
    for commit in sorted(commits, key=attrgetter("asked")):
        while place < len(begun) and begun[place].answered < commit.asked:
            if latest is None or begun[place].epoch >= latest.epoch:
                latest = begun[place]
            place += 1
        former = latest is not None and commit.epoch < latest.epoch and commit.member != latest.member
        if former and latest is not None and commit.outcome == "ok":
            detail = (
                f"{commit.member} committed {commit.offset} in epoch {commit.epoch} after {latest.member} "
                f"was told in epoch {latest.epoch} to start at {latest.offset}"
            )
            yield GroupAnomaly(kind="former-owner-committed", partition=partition, detail=detail)


def _went_back(partition: int, starts: Sequence[Start], commits: Sequence[Commit]) -> Iterable[GroupAnomaly]:
    """What was acknowledged is the least that anybody is told or may replace afterwards."""
    acknowledged = sorted((c for c in commits if c.outcome == "ok"), key=lambda c: c.answered or 0)
    asked: list[Start | Commit] = [*starts, *(c for c in commits if c.outcome == "ok")]
    floor, place = -1, 0
    for event in sorted(asked, key=attrgetter("asked")):
        while place < len(acknowledged) and (acknowledged[place].answered or 0) < event.asked:
            floor = max(floor, acknowledged[place].offset)
            place += 1
        if event.offset < floor:
            what = "was told" if isinstance(event, Start) else "could commit"
            detail = f"{event.member} {what} {event.offset} after {floor} was committed"
            yield GroupAnomaly(kind="went-back", partition=partition, detail=detail)
    yield from _invented(partition, starts, commits)


def _invented(partition: int, starts: Sequence[Start], commits: Sequence[Commit]) -> Iterable[GroupAnomaly]:
    first_asked: dict[int, int] = {}
    for commit in sorted(commits, key=attrgetter("asked")):
        if commit.may_have_happened:
            first_asked.setdefault(commit.offset, commit.asked)
    for start in starts:
        if start.offset >= 0 and first_asked.get(start.offset, start.answered) >= start.answered:
            detail = f"{start.member} was told {start.offset}, which nobody committed"
            yield GroupAnomaly(kind="invented", partition=partition, detail=detail)
