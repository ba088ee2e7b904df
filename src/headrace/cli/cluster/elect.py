# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster elect`: with --unclean, shows what would be lost before it asks for confirmation.

The requests are in client/tools/unclean_election.py and client/tools/reassignments.py. The offsets that were
actually lost are reported by the nodes (`__headrace_events`, log lines that begin with `audit:`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.options import confirm
from headrace.cli.output import Output
from headrace.client.cluster import Cluster
from headrace.client.tools.reassignments import elect_preferred, preferred_changes
from headrace.client.tools.unclean_election import elect_unclean, leaderless
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.tools.unclean_election import ElectedLeader, Leaderless

_NAMED = 20
"""Partitions named in the confirmation."""
_ALL_LEAD = "Every preferred leader that is in sync is leader already."
_NONE_LACKS = "Every partition has a leader; there is nothing to elect."


def run_preferred_election(
    bootstrap: str | Cluster, topic: str | None, output: Output, *, dry_run: bool
) -> None:
    if dry_run:
        _preview_preferred(preferred_changes(bootstrap, topic), output)
        return
    changed = elect_preferred(bootstrap, topic)
    output.say(
        {"changed": [f"{name}-{index}" for name, index in changed]},
        f"{len(changed)} partitions are led by their preferred leader again." if changed else _ALL_LEAD,
    )


def _preview_preferred(changes: Mapping[TopicPartition, int], output: Output) -> None:
    if output.as_json:
        found = [{"partition": str(place), "leader": leader} for place, leader in sorted(changes.items())]
        output.document({"dry_run": True, "would_elect": found})
        return
    for place, leader in sorted(changes.items()):
        output.line(f"{place}: node {leader} would be leader again.")
    if not changes:
        output.line(_ALL_LEAD)


def run_unclean_election(
    bootstrap: str | Cluster,
    topic: str | None,
    partition: int | None,
    output: Output,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Exit code 1 when a partition is still without a leader."""
    lacking = leaderless(bootstrap, topic, partition)
    if dry_run:
        _preview_unclean(lacking, output)
        return
    if not lacking:
        _show(output, [], {}, _NONE_LACKS)
        return
    for each in lacking[:_NAMED]:
        output.note(_at_risk(each))
    if len(lacking) > _NAMED:
        output.note(f"… and {len(lacking) - _NAMED} more.")
    confirm(_question(lacking), yes=yes)
    outcome = elect_unclean(bootstrap, [each.place for each in lacking])
    had_all = {each.place: each.had_all for each in lacking}
    documents = [_document(each, had_all[each.place]) for each in outcome.elected]
    sentences = [_result(each, had_all[each.place]) for each in outcome.elected]
    _show(output, documents, {str(place): why for place, why in outcome.refused.items()}, *sentences)
    if outcome.refused:
        raise typer.Exit(1)


def _preview_unclean(lacking: tuple[Leaderless, ...], output: Output) -> None:
    if output.as_json:
        found = [
            {"partition": str(each.place), "had_all": list(each.had_all), "may_lead": list(each.may_lead)}
            for each in lacking
        ]
        output.document({"dry_run": True, "would_elect": found})
        return
    for each in lacking:
        output.line(_at_risk(each))
    if not lacking:
        output.line(_NONE_LACKS)


def _question(lacking: tuple[Leaderless, ...]) -> str:
    named = ", ".join(str(each.place) for each in lacking[:_NAMED])
    more = ", …" if len(lacking) > _NAMED else ""
    holders = sorted({node for each in lacking for node in each.had_all})
    only = f" that only {_nodes(holders)} had" if holders else ""
    return f"elect unclean leaders for {named}{more} and lose acknowledged records{only}"


def _at_risk(each: Leaderless) -> str:
    owners = f"{_nodes(each.had_all)} had every acknowledged record" if each.had_all else "no replica had all"
    able = f"{_nodes(each.may_lead)} can lead and may lack some" if each.may_lead else "no replica is up"
    return f"{each.place} has no leader: {owners}; {able}."


def _result(each: ElectedLeader, had_all: tuple[int, ...]) -> str:
    if each.leader is None:
        return f"{each.place}: elected, but no leader was seen yet."
    if each.leader in had_all:
        return f"{each.place}: node {each.leader} is leader and had every record; nothing is lost."
    begins = "where its log ended" if each.begins_at is None else f"offset {each.begins_at}"
    return (
        f"{each.place}: node {each.leader} is leader. Acknowledged records from {begins} on are lost; "
        f"the exact offsets are in the nodes' logs (audit:) and in __headrace_events."
    )


def _document(each: ElectedLeader, had_all: tuple[int, ...]) -> dict[str, Any]:
    return {
        "partition": str(each.place),
        "leader": each.leader,
        "from": each.begins_at,
        "had_all": list(had_all),
    }


def _show(output: Output, elected: list[dict[str, Any]], refused: dict[str, str], *sentences: str) -> None:
    if output.as_json:
        output.document({"elected": elected, "refused": refused})
        return
    for sentence in sentences:
        output.line(sentence)
    for place, why in refused.items():
        output.line(f"{place}: still without a leader: {why}")


def _nodes(node_ids: Iterable[int]) -> str:
    numbers = [str(node) for node in node_ids]
    return f"node {numbers[0]}" if len(numbers) == 1 else f"nodes {', '.join(numbers)}"
