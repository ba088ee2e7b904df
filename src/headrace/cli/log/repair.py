# SPDX-License-Identifier: Apache-2.0
"""`headrace log scrub` and `headrace log repair`: damage in the logs of a node that is stopped.

Parses arguments and prints results. Read next: stopped_node.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import DryRun, Json, Yes, confirm
from headrace.cli.output import Output, human_bytes
from headrace.cli.progress import ProgressBar

if TYPE_CHECKING:
    from headrace.cli.log.stopped_node import Finding

_Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The data directory of a node, or of one partition in it.")
]


def scrub(directory: _Directory, as_json: Json = False) -> None:
    """Check every record batch of a stopped node: CRCs, offsets, leader epochs. Changes nothing.

    A running node does this itself, all the time. Exit code 1 when there is damage.

    \b
    Examples:
      headrace log scrub ~/.local/share/headrace
      headrace log scrub /srv/headrace/orders-0 --json
    """
    from headrace.cli.log.stopped_node import node_is_stopped

    output = Output(as_json=as_json)
    with node_is_stopped(directory):
        findings = _find(directory, output)
    if findings:
        output.note("In a cluster, start the node: it fetches what is damaged from other replicas.")
        output.note(f"Without another replica: headrace log repair {directory}")
        raise typer.Exit(1)


def repair(directory: _Directory, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Make damaged logs of a stopped node readable before and behind the damage.

    For logs without another replica. An empty batch takes the place of what is damaged, so that all other
    records keep their offsets; the damaged file stays beside the new one as NAME.damaged-1.

    \b
    Examples:
      headrace log repair ~/.local/share/headrace --dry-run
      headrace log repair /srv/headrace/orders-0 --yes
    """
    from headrace.cli.log.stopped_node import forget_damage, node_is_stopped
    from headrace.cli.log.stopped_node import repair as repair_segment

    output = Output(as_json=as_json)
    with node_is_stopped(directory):
        findings = _find(directory, output)
        if dry_run:
            return
        if not findings:
            forget_damage(directory)
            return
        lost = sum(_offsets_in(each) for each in findings)
        confirm(f"Give up {_count(lost, 'offset')} in {_count(len(findings), 'damaged file')}", yes=yes)
        for each in findings:
            kept = repair_segment(each)
            document = {"event": "repaired", "file": str(each.fault.path), "kept": str(kept)}
            _say(output, document, f"repaired {each.fault.path}; the damaged file is {kept.name}")
        forget_damage(directory)
    output.note("Start the node now.")
    if lost:
        output.note("Ends of transactions may be among what is lost: headrace transactions find-hanging")


def _find(directory: Path, output: Output) -> list[Finding]:
    """Checks everything and prints what is damaged, and a sum."""
    from headrace.cli.log.stopped_node import stopped_logs

    logs = stopped_logs(directory)
    total = sum(log.size_bytes for log in logs)
    findings: list[Finding] = []
    with ProgressBar("checking", total, in_bytes=True) as bar:
        for log in logs:
            for finding in log.find_damage(bar.advance):
                findings.append(finding)
                _show(finding, output)
    segments = sum(log.segments for log in logs)
    verdict = f"{len(findings)} damaged" if findings else "no damage found"
    sentence = (
        f"{_count(len(logs), 'partition')}, {_count(segments, 'segment')}, {human_bytes(total)}: {verdict}"
    )
    document = {"partitions": len(logs), "segments": segments, "bytes": total, "damaged": len(findings)}
    _say(output, {"event": "summary", **document}, sentence)
    return findings


def _show(finding: Finding, output: Output) -> None:
    if output.as_json:
        output.json_line(_document(finding))
        return
    output.styled(("DAMAGED ", "bold red"), (str(finding.fault), "red"))
    for gap in finding.damage.gaps:
        output.line(f"  offsets {gap.first_offset} to {gap.last_offset} cannot be read")
    if finding.damage.wrong_epochs:
        output.line(f"  {finding.damage.wrong_epochs} leader epochs differ from the partition's history")
    if not finding.damage.gaps:
        output.line("  all records can be read")


def _document(finding: Finding) -> dict[str, Any]:
    fault = finding.fault
    return {
        "event": "damage",
        "file": str(fault.path),
        "position": fault.position,
        "offset": fault.offset,
        "what": fault.what,
        "unreadable": [[gap.first_offset, gap.last_offset] for gap in finding.damage.gaps],
        "wrong_epochs": finding.damage.wrong_epochs,
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s'[: number != 1]}"


def _offsets_in(finding: Finding) -> int:
    return sum(gap.last_offset - gap.first_offset + 1 for gap in finding.damage.gaps)


def _say(output: Output, document: dict[str, Any], sentence: str) -> None:
    if output.as_json:
        output.json_line(document)
    else:
        output.line(sentence)
