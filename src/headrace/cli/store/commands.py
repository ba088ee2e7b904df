# SPDX-License-Identifier: Apache-2.0
"""`headrace store`: check, back up and restore the coordination store of a cluster.

Parses arguments and prints results. Read next: local_store.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, Json, Yes, confirm
from headrace.cli.output import Output
from headrace.cli.users.commands import Config, Coordination, Data

if TYPE_CHECKING:
    from headrace.cli.store.local_store import LocalStore

app = typer.Typer(
    help="The coordination store: check, back up, restore.", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)

_CONSEQUENCES = (
    "Topics, settings, users, ACLs and quotas are as in this store; later changes of them are gone.",
    "A partition is served when all of its replicas run: the one with the longest log then leads.",
    "Logs of topics that this store does not have stay in the data folders, in folders named *-kept.",
    "Now start all nodes.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Which store; by default that of a single node in the user's data folder."""

    data: Data = None
    coordination: Coordination = None
    config: Config = None

    def store(self) -> LocalStore:
        from headrace.cli.store.local_store import local_store

        return local_store(self.data, self.coordination, self.config)


@app.command("check")
@takes_options
def check(*, where: StoreOptions, as_json: Json = False) -> None:
    """Check the file of a SQLite store, also while nodes run. Exit code 1 when it is damaged.

    \b
    Examples:
      headrace store check --data /srv/headrace
      headrace store check --coordination sqlite:/srv/cluster/coordination --json
    """
    report = where.store().check()
    output = Output(as_json=as_json)
    if as_json:
        output.document(report)
        return
    output.line(
        f"{report['file']}: no damage found, {report['commits']} commits, {report['entries']} entries"
    )
    newest = report["newest_backup"]
    output.line(f"{report['backups']} backups" + (f", the newest is {newest}" if newest else ""))


@app.command("backup")
@takes_options
def backup(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup, which must not exist yet.")],
    where: StoreOptions,
    as_json: Json = False,
) -> None:
    """Back up a SQLite store to one file, also while nodes run. The copy is checked before it gets its name.

    \b
    Examples:
      headrace store backup /backups/coordination.db --data /srv/headrace
      headrace store backup before.db --coordination sqlite:/srv/cluster/coordination
    """
    report = where.store().backup(file)
    _report(report, [f"Backed up {report['commits']} commits to {report['file']}"], as_json=as_json)


@app.command("restore")
@takes_options
def restore(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup, which stays as it is.")],
    where: StoreOptions,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replace a SQLite store by a backup. All nodes must be stopped; the replaced files stay beside it.

    Acknowledged records are kept: a partition waits for all of its replicas, and the longest log leads.

    \b
    Examples:
      headrace store restore /srv/headrace/coordination/backups/coordination-….db --data /srv/headrace
      headrace store restore before.db --coordination sqlite:/srv/cluster/coordination --yes
    """
    store = where.store()
    confirm(f"replace the coordination store {store.place} by {file}", yes=yes)
    report = store.restore(file)
    kept = [f"The replaced files are kept: {', '.join(report['replaced'])}."] if report["replaced"] else []
    lines = [
        f"Restored {report['topics']} topics with {report['partitions']} partitions.",
        *kept,
        *_CONSEQUENCES,
    ]
    _report(report, lines, as_json=as_json)


@app.command("accept")
@takes_options
def accept(*, where: StoreOptions, yes: Yes = False, as_json: Json = False) -> None:
    """Go on with a store that nodes refuse because it was put back to an older copy, SQLite's or ZooKeeper's.

    All nodes must be stopped. What changed since the copy was made is gone; acknowledged records are kept as
    with `restore`.

    \b
    Examples:
      headrace store accept --coordination zk://h1:2181,h2:2181,h3:2181/headrace
      headrace store accept --coordination sqlite:/srv/cluster/coordination --yes
    """
    store = where.store()
    confirm(f"go on with the coordination store {store.place} as it is", yes=yes)
    report = store.accept()
    lines = [f"Nodes take the store now, with {report['topics']} topics.", *_CONSEQUENCES]
    _report(report, lines, as_json=as_json)


def _report(document: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    if as_json:
        output.document(document)
        return
    for line in lines:
        output.line(line)
